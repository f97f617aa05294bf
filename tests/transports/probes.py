"""Tools that exist only while the tests of the transports run: they report, wait, and say who called."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mcpbridge.registry import registry
from mcpbridge.tooling import Caller, Effect, Intent, Result, ShortText, Tool, declared


class Said(Result):
    text: str


@dataclass
class Held:
    """What a test sees of a call to `probe_hold`: threading events, for the server has a loop of its own."""

    started: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)


held: dict[str, Held] = {}


async def probe_hold(caller: Caller, *, name: ShortText) -> Said:
    """Wait until the client gives up.

    Args:
        name: Which entry of `held` to use.
    """
    seen = held[name]
    seen.started.set()
    try:
        await asyncio.sleep(25)
    except asyncio.CancelledError:
        seen.cancelled.set()
        raise
    return Said(text="nobody gave up")


async def probe_progress(caller: Caller, *, steps: int = 3) -> Said:
    """Report progress, then answer.

    Args:
        steps: How often to report.
    """
    for step in range(1, steps + 1):
        caller.report(step, steps, f"step {step}")
    return Said(text="done")


async def probe_caller(caller: Caller) -> Said:
    """Say who calls."""
    return Said(text=f"{caller.agent_name}|{caller.session}|{caller.client}|{caller.transport}|{caller.project_slug}")


async def probe_large(caller: Caller, *, size: int = 1) -> Said:
    """Answer many characters.

    Args:
        size: How many.
    """
    return Said(text="x" * size)


@contextmanager
def probes() -> Iterator[None]:
    """Publish the probes for a while."""
    made = [
        Tool.from_function(
            function, intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="gateway", needs_project=False
        )
        for function in (probe_hold, probe_progress, probe_caller, probe_large)
    ]
    before = len(declared)
    declared.extend(made)
    try:
        yield
    finally:
        del declared[before:]
        registry._by_name.clear()
        registry._indexed = 0
