"""DevFlow with a few tools that only these tests see: what a client hears of a long call, and what stops one."""

import asyncio
from collections import defaultdict

import devflow.asgi
from mcpbridge.tooling import Caller, Effect, Intent, Limit, Result, ShortText, tool

started: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
cancelled: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


class Told(Result):
    text: str


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="gateway", needs_project=False)
def count_aloud(caller: Caller, *, steps: Limit) -> Told:
    """Report every step."""
    for step in range(1, steps + 1):
        caller.report(step, steps, f"step {step}")
    return Told(text="counted")


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="gateway", needs_project=False)
async def hold(caller: Caller, *, name: ShortText) -> Told:
    """Wait until somebody cancels the call."""
    started[name].set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled[name].set()
        raise
    return Told(text="nobody cancelled")


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="gateway", needs_project=False)
async def was_started(caller: Caller, *, name: ShortText) -> Told:
    """Wait until a `hold` has started."""
    await started[name].wait()
    return Told(text="started")


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="gateway", needs_project=False)
async def was_cancelled(caller: Caller, *, name: ShortText) -> Told:
    """Wait until a `hold` was cancelled."""
    await cancelled[name].wait()
    return Told(text="cancelled")


application = devflow.asgi.application
