"""Isolation `subprocess`: a fresh process for each call."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcpbridge.gateway.sessions import Session
from mcpbridge.gateway.specs import BackendSpec


@asynccontextmanager
async def fresh(spec: BackendSpec, root: str | None) -> AsyncIterator[Session]:
    """A session in a process of its own, ended on the way out."""
    session = Session(spec, root, kind="call")
    try:
        await session.client()
        yield session
    finally:
        await session.close()
