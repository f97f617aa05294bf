"""A project whose sources are read at once, in the test's own thread, into a vector store that starts empty."""

from collections.abc import Callable, Iterator

import pytest

from devflow import actors, jobs
from devflow.events import LiveEvent, bus
from devflow.vectors import stores
from knowledge.models import Source
from knowledge.services import cache, sources
from workflow.models import Project
from workflow.services import projects

ADA = actors.Actor(kind="system", name="ada")

Add = Callable[..., Source]


@pytest.fixture(autouse=True)
def read_at_once(transactional_db: None) -> Iterator[None]:
    """Jobs run where they are enqueued; nothing of an earlier test is in the store or the cache."""
    cache.forget()
    for name in stores.store().collections():
        stores.store().drop(name)
    with jobs.immediately():
        yield


@pytest.fixture
def shop(read_at_once: None) -> Project:
    return projects.create(slug="shop", name="Shop")


@pytest.fixture
def other(read_at_once: None) -> Project:
    return projects.create(slug="other", name="Other")


@pytest.fixture
def add(shop: Project) -> Add:
    """Add a source and have it read: `add(title, text)`, or any arguments of `sources.create`."""

    def made(title: str, text: str = "", **given: object) -> Source:
        values = {"project_id": shop.pk, "actor": ADA, "type": "manual", "content": text, **given}
        source = sources.create(title=title, **values)  # type: ignore[arg-type]  # what a test gives
        source.refresh_from_db()
        return source

    return made


@pytest.fixture
def heard() -> Iterator[Callable[[], list[str]]]:
    """The types of the live events published since the test began."""
    types: list[str] = []
    deliver = bus.deliver

    def listening(event: LiveEvent) -> None:
        types.append(event.type)
        deliver(event)

    bus.deliver = listening  # type: ignore[method-assign]  # the bus has no loop here to hear it on
    try:
        yield lambda: types
    finally:
        bus.deliver = deliver  # type: ignore[method-assign]
