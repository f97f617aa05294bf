"""Isolation `subprocess`: a process that serves one call and ends, fresh or kept ready before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.gateway.sessions import Session, pool
from mcpbridge.gateway.specs import BackendSpec

END_SECONDS = 0.5
"""What an answer waits for the end of its process, so that what it wrote last is seen with the rest."""


@asynccontextmanager
async def fresh(
    spec: BackendSpec, root: str | None, *, is_change: bool, features: frozenset[str] = frozenset()
) -> AsyncIterator[Session]:
    """A session in a process of its own, ended on the way out. A spare that cannot be opened is replaced once."""
    session = pool.spare(spec, root, features=features) or Session(spec, root, kind="call", features=features)
    try:
        try:
            await session.client()
        except DevFlowError as exc:
            if exc.code is not ErrorCode.UNAVAILABLE:
                raise
            pool.discard(session)
            session = Session(spec, root, kind="call", features=features)
            await session.client()
        yield session
    except BaseException:
        pool.discard(session)
        raise
    else:
        if not is_change:
            session.hurry()
        await asyncio.wait({pool.discard(session)}, timeout=END_SECONDS)
    finally:
        pool.refill(spec, root, features=features)
