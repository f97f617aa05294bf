"""What one client of the orchestrator works with: the server's backends, and those it brought for its session alone.

A realm is in reach of the tools while a method of its session runs (`here`); nothing of it is ever stored.
"""

import asyncio
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from devflow.errors import DevFlowError
from mcpbridge.gateway import discovery
from mcpbridge.gateway.catalog import Snapshot, catalog
from mcpbridge.gateway.specs import ActionSpec, BackendSpec

AGAIN_SECONDS = 10.0
"""After which a backend of the session that could not be reached is asked again."""


@dataclass
class Realm:
    """`specs` over the server's own backends. `openai_key` is the session's, where it brought one."""

    specs: Mapping[str, BackendSpec] = field(default_factory=dict)
    openai_key: str = field(default="", repr=False)
    problems: dict[str, str] = field(default_factory=dict)
    """Backends of the session that cannot be reached, and why."""
    _actions: dict[str, list[ActionSpec]] = field(default_factory=dict)
    _asking: "dict[str, asyncio.Task[None]]" = field(default_factory=dict)
    _asked_at: dict[str, float] = field(default_factory=dict)

    def discover(self) -> None:
        """Begin to ask the session's backends for their tools."""
        for name, spec in self.specs.items():
            is_due = time.monotonic() - self._asked_at.get(name, -AGAIN_SECONDS) >= AGAIN_SECONDS
            if name not in self._actions and name not in self._asking and is_due:
                self._asked_at[name] = time.monotonic()
                self._asking[name] = asyncio.create_task(self._ask(spec))

    async def _ask(self, spec: BackendSpec) -> None:
        try:
            found = await discovery.discover(spec)
            self._actions[spec.id] = discovery.as_actions(spec, found)
            self.problems.pop(spec.id, None)
        except DevFlowError as exc:
            self.problems[spec.id] = exc.message
        finally:
            self._asking.pop(spec.id, None)

    async def snapshot(self) -> Snapshot:
        """The server's catalog with the session's backends over it."""
        known = await catalog.current()
        if not self.specs:
            return known
        self.discover()
        if self._asking:
            await asyncio.wait(set(self._asking.values()))
        backends = {**known.backends, **self.specs}
        theirs = {key: action for key, action in known.actions.items() if key[0] not in self.specs}
        own = {(action.backend, action.name): action for found in self._actions.values() for action in found}
        return Snapshot(backends, {**theirs, **own}, None)

    async def close(self) -> None:
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


here: ContextVar[Realm] = ContextVar("realm")


def current() -> Realm:
    """The realm of the call at work: its session's, else the server's alone."""
    return here.get(_SERVER)


_SERVER = Realm()
