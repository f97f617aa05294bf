"""Where a call runs: in the caller's open session, in a process of its own, or through an agent's command line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcpbridge.gateway import agent_cli, isolate
from mcpbridge.gateway.conversing import Conversation
from mcpbridge.gateway.sessions import Session, pool

if TYPE_CHECKING:
    from mcpbridge.gateway.calling import Work


@asynccontextmanager
async def placed(work: "Work") -> AsyncIterator[Conversation]:
    """A session that is open, and one of the backend's places while the call is at work."""
    async with pool.place(work.spec):
        work.has_place = True
        if work.spec.transport == "agent_cli":
            yield agent_cli.AgentRun(work.spec, work.root)
        elif work.isolation == "subprocess":
            async with isolate.fresh(
                work.spec, work.root, is_change=work.is_change, features=work.caller.features
            ) as session:
                yield session
        else:
            session = await _open_session(work)
            with session.in_use():
                yield session


async def _open_session(work: "Work") -> Session:
    from mcpbridge.gateway.calling import caller_key

    with work.step("session"):
        return await pool.ready(work.spec, work.root, caller_key(work.caller), features=work.caller.features)
