"""One server on a thread for each module, with the file-based test database."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mcpbridge.access import keyring
from mcpbridge.audit import recorder
from mcpbridge.models import ApiKey
from tests.transports.probes import probes
from tests.transports.site import Site, serve
from workflow.models import Project
from workflow.services import projects

SCOPES = ["read", "write", "execute", "admin"]


@pytest.fixture(scope="module")
def _served() -> Iterator[Site]:
    with probes(), serve() as running:
        yield running


@pytest.fixture
def site(_served: Site, transactional_db: None) -> Iterator[Site]:
    """The module's server with fresh keys in an empty database."""
    keyring.forget()
    _, key = ApiKey.objects.issue(name="transports", scopes=SCOPES, rate_per_minute=0)
    _, other = ApiKey.objects.issue(name="somebody else", scopes=SCOPES, rate_per_minute=0)
    yield replace(_served, key=key, other_key=other)
    recorder.stop()  # before its keys are gone


@pytest.fixture
def project(transactional_db: None) -> Project:
    """The only project there is, so that nobody has to name it."""
    return projects.create(slug="apollo")
