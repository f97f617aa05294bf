"""A served DevFlow with backends behind it, and the official client at one of them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from devflow.config import PROJECT_ROOT
from mcpbridge.access import keyring
from mcpbridge.audit import recorder
from mcpbridge.gateway import catalog, discovery
from mcpbridge.gateway.sessions import pool
from mcpbridge.models import ApiKey, Backend
from tests.transports.site import WAIT, Site

PLAIN = PROJECT_ROOT / "tests" / "fakes" / "plain_backend.py"
SCOPES = ("read", "write", "execute")


@contextmanager
def opened(site: Site) -> Iterator[Site]:
    """The site with fresh keys and no backends; afterwards no process of one is left."""
    keyring.forget()
    catalog.catalog.forget()
    key, other = (ApiKey.objects.issue(name=name, scopes=list(SCOPES), rate_per_minute=0)[1] for name in ("a", "b"))
    yield replace(site, key=key, other_key=other)
    on_server(site, pool.close())
    recorder.stop()  # before its keys are gone


def on_server(site: Site, work: Any) -> Any:
    """Run a coroutine on the server's loop."""
    return asyncio.run_coroutine_threadsafe(work, site.loop).result(WAIT)


def add(site: Site, identifier: str = "plain", *command: str, **fields: Any) -> Backend:
    """A backend, discovered; by default the plain one."""
    program, *args = command or (sys.executable, str(PLAIN))
    row = Backend.objects.create(backend_id=identifier, transport="stdio", command=program, args=args, **fields)
    found = on_server(site, discovery.refresh(catalog.backend_spec(row)))
    assert not isinstance(found, Exception), found
    return row


@asynccontextmanager
async def passed(
    site: Site, backend: str = "plain", *, key: str | None = None, **options: Any
) -> AsyncIterator[Client]:
    """The official client at a backend through DevFlow."""
    headers = {"X-API-Key": key or site.key, **options.pop("headers", {})}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(
            streamable_http_client(f"{site.url}/mcp/backends/{backend}/mcp", http_client=http), cache=None, **options
        ) as client,
    ):
        yield client
