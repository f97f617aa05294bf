import pytest

from devflow.actors import Actor
from workflow.models import Project
from workflow.services import projects

from .scenes import joined


@pytest.fixture
def project(db: None) -> Project:
    return projects.create(slug="shop", name="Shop")


@pytest.fixture
def other(db: None) -> Project:
    return projects.create(slug="other", name="Other")


@pytest.fixture
def ada(project: Project) -> Actor:
    return joined(project, "ada")


@pytest.fixture
def ben(project: Project) -> Actor:
    return joined(project, "ben")
