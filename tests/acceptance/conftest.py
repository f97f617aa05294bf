"""Projects to work in."""

from collections.abc import Iterator

import pytest

from tests.running import RunningServer

MAKE = """
from workflow.models import Phase
from workflow.services import projects
for number in range({count}):
    project = projects.create(slug=f"{prefix}{{number}}")
    Phase.objects.filter(project=project, number=1).update(requires_review=True)
"""


def make_projects(server: RunningServer, prefix: str, count: int) -> list[str]:
    """Make projects whose phase 1 requires review; gives their slugs."""
    server.run_python(MAKE.format(prefix=prefix, count=count))
    return [f"{prefix}{number}" for number in range(count)]


@pytest.fixture(scope="module")
def projects(live_server_process: RunningServer) -> Iterator[str]:
    """Slugs of empty projects on the module's server; `next(projects)` is nobody else's."""
    return iter(make_projects(live_server_process, "work-", 40))


@pytest.fixture
def project(projects: Iterator[str]) -> str:
    return next(projects)
