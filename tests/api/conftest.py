"""The REST door as clients meet it: the whole ASGI application in this process, tools only tests see, real keys."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async

from mcpbridge.models import ApiKey
from tests.mcpbridge.conftest import fresh_process_state, test_tools

__all__ = ["fresh_process_state", "test_tools"]

MakeKey = Callable[..., str]
NewKey = Callable[..., Awaitable[str]]


@pytest.fixture
def make_key(transactional_db: None) -> MakeKey:
    def make(*scopes: str, rate: int | None = 0, **more: Any) -> str:
        return ApiKey.objects.issue(
            name=more.pop("name", "tests"), scopes=list(scopes or ("read", "write")), rate_per_minute=rate, **more
        )[1]

    return make


@pytest.fixture
def new_key(make_key: MakeKey) -> NewKey:
    """`make_key` for tests that are coroutines."""
    return sync_to_async(make_key)


@pytest.fixture
def key(make_key: MakeKey) -> str:
    return make_key()


@pytest.fixture
def no_refusals_yet() -> Iterator[None]:
    """Refused keys are counted per address; a test that counts them starts from none and leaves none."""
    from django.core.cache import caches

    caches["doors"].clear()
    yield
    caches["doors"].clear()


@pytest.fixture
async def web(transactional_db: None, no_refusals_yet: None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the whole application: doors, Django, DRF."""
    from devflow.asgi import application, runtime

    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8051") as client:
        yield client
    await runtime.stop()


@pytest.fixture
def as_key(key: str) -> dict[str, str]:
    return {"X-API-Key": key}
