"""A backend that is registered and discovered, callers, and no process left behind."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from devflow.config import PROJECT_ROOT
from mcpbridge import access, dispatcher
from mcpbridge.audit import recorder
from mcpbridge.envelopes import Outcome, gateway_envelope
from mcpbridge.gateway import catalog, discovery
from mcpbridge.gateway.sessions import pool
from mcpbridge.models import ApiKey, Backend
from mcpbridge.tooling import Caller
from tests.mcpbridge.conftest import in_thread

SMALL = PROJECT_ROOT / "tests" / "fakes" / "small_backend.py"

Execute = Callable[..., Awaitable[dict[str, Any]]]


def children_carrying(value: str) -> list[int]:
    """Live processes whose environment has `value`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if value.encode() in (entry / "environ").read_bytes() and b"Z" not in _state(entry):
                    found.append(int(entry.name))
            except OSError:
                continue
    return [pid for pid in found if pid != os.getpid()]


def _state(entry: Path) -> bytes:
    return (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]


@pytest.fixture
async def gateway(transactional_db: None) -> AsyncIterator[None]:
    """The gateway of a process that has just started; its sessions end with the test."""
    catalog.catalog.__init__()  # type: ignore[misc]  # a new process knows nothing
    pool.__init__()  # type: ignore[misc]  # likewise
    recorder.__init__()  # type: ignore[misc]  # likewise
    yield
    await pool.close()
    await asyncio.to_thread(in_thread, recorder.stop)


async def register(identifier: str = "small", **fields: Any) -> Backend:
    """A backend's row, discovered: by default the small server over stdio."""
    given = {"transport": "stdio", "command": sys.executable, "args": [str(SMALL)], **fields}
    row = await asyncio.to_thread(in_thread, lambda: Backend.objects.create(backend_id=identifier, **given))
    found = await discovery.refresh(catalog.backend_spec(row))
    assert not isinstance(found, Exception), found
    catalog.catalog.forget()
    return row


@pytest.fixture
async def small(gateway: None) -> Backend:
    return await register()


@pytest.fixture
def project(transactional_db: None) -> Any:
    from workflow.services import projects

    return in_thread(lambda: projects.create(name="Gateway", slug="gateway"))


@pytest.fixture
def make_caller(project: Any) -> Callable[..., Caller]:
    def make(*scopes: str, **more: Any) -> Caller:
        def issue() -> access.Identity | None:
            key, _ = ApiKey.objects.issue(
                name="gateway", scopes=list(scopes or ("read", "write", "execute")), rate_per_minute=0
            )
            return access.keyring.look_up(key.digest)

        identity = in_thread(issue)
        assert identity is not None
        return access.caller_for(identity, transport="rest", headers={"x-agent-id": more.pop("agent", "agent-1")})

    return make


@pytest.fixture
def caller(make_caller: Callable[..., Caller]) -> Caller:
    return make_caller()


async def outcome_of(caller: Caller, idempotency_key: str | None = None, **request: Any) -> Outcome:
    return await dispatcher.call("gateway_execute", request, caller, idempotency_key=idempotency_key)


@pytest.fixture
def execute(caller: Caller) -> Execute:
    """Send a gateway request and give its envelope."""

    async def run(*, by: Caller | None = None, idempotency_key: str | None = None, **request: Any) -> dict[str, Any]:
        return gateway_envelope(await outcome_of(by or caller, idempotency_key, **request))

    return run
