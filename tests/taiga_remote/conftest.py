from collections.abc import Iterator

import pytest

from devflow.actors import SYSTEM, Actor
from tests.fakes.taiga_server import TaigaServer
from workflow.models import Project
from workflow.services import projects
from workflow.taiga import remotes, transport
from workflow.taiga.remote import RemoteProvider

from .scenes import ADMIN, PASSWORD


@pytest.fixture
def taiga() -> Iterator[TaigaServer]:
    with TaigaServer() as server:
        yield server
    transport.close()


@pytest.fixture
def project(db: None, taiga: TaigaServer) -> Project:
    """A project connected to project 2 of the loopback Taiga."""
    made = projects.create(slug="far", name="Far away")
    taiga.world.project({"name": "Far away", "is_private": True})
    remotes.connect(made, url=taiga.url, actor=SYSTEM, username=ADMIN, password=PASSWORD, is_trusted=True)
    taiga.writes.clear()
    return made


@pytest.fixture
def ada(project: Project) -> Actor:
    return SYSTEM


@pytest.fixture
def far(project: Project) -> RemoteProvider:
    return RemoteProvider(project, SYSTEM)
