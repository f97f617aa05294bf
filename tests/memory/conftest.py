from collections.abc import Iterator

import pytest

from devflow.actors import Actor
from devflow.vectors import stores
from memory.services.uses import uses
from tests.pages.conftest import log_in, no_limits_left_over
from tests.workflow.scenes import joined, person_named
from workflow.models import Project
from workflow.services import projects

__all__ = ["log_in", "no_limits_left_over"]


@pytest.fixture(autouse=True)
def nothing_left_over() -> Iterator[None]:
    """Vectors and counts live outside the test's transaction."""
    yield
    uses.forget()
    for name in stores.store().collections():
        stores.store().drop(name)


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
def mia(project: Project) -> Actor:
    return person_named("mia")
