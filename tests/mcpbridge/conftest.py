"""A key, a caller, and tools that only tests see."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from django.db import connections

from mcpbridge import access, ratelimit, tooling
from mcpbridge.audit import recorder
from mcpbridge.models import ApiKey
from mcpbridge.registry import registry
from mcpbridge.tooling import Caller

MakeCaller = Callable[..., Caller]
T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> T:
    """Database work for fixtures and tests that run on an event loop."""

    def worked() -> T:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(worked).result()


@pytest.fixture(scope="package", autouse=True)
def test_tools() -> Iterator[None]:
    from tests.mcpbridge import declared

    tooling.declared.extend(declared.TOOLS)
    yield
    del tooling.declared[-len(declared.TOOLS) :]
    registry.__init__(tooling.declared)  # type: ignore[misc]  # a fresh index over what is left


@pytest.fixture(autouse=True)
def fresh_process_state() -> None:
    """What a server process remembers must not leak from one test into the next."""
    from tests.mcpbridge import declared

    access.keyring.forget()
    ratelimit._limiter.cache_clear()
    declared.faults.clear()
    declared.release.clear()
    recorder.__init__()  # type: ignore[misc]  # a new process would have a chain of its own too


@pytest.fixture
def make_caller(transactional_db: None) -> Iterator[MakeCaller]:
    def make(*, scopes: tuple[str, ...] = ("read", "write", "execute"), rate: int | None = 0, **more: Any) -> Caller:
        toolsets = more.pop("toolsets", [])

        def issue() -> access.Identity | None:
            key, _ = ApiKey.objects.issue(name="tests", scopes=list(scopes), rate_per_minute=rate, toolsets=toolsets)
            return access.keyring.look_up(key.digest)

        identity = in_thread(issue)
        assert identity is not None
        return access.caller_for(identity, transport=more.pop("transport", "rest"), **more)

    yield make
    in_thread(recorder.stop)


@pytest.fixture
def caller(make_caller: MakeCaller) -> Caller:
    return make_caller()
