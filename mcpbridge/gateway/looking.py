"""Asking a backend what it offers, now: for people who press a button, commands, and the look once a minute."""

import asyncio
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync

from devflow.errors import DevFlowError
from mcpbridge.gateway import discovery
from mcpbridge.gateway.backends import find
from mcpbridge.gateway.catalog import backend_spec, catalog
from mcpbridge.gateway.discovery import Found
from mcpbridge.gateway.faults import unavailable
from mcpbridge.gateway.specs import BackendSpec, struck_out
from mcpbridge.models import Transport

LOOK_SECONDS = 75.0


@dataclass(frozen=True)
class Looked:
    """What a backend said when it was asked just now, or why it did not (`error`)."""

    ok: bool
    duration_ms: float
    server: Mapping[str, Any] = field(default_factory=dict)
    protocol_version: str = ""
    tools: int = 0
    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    error: str = ""
    suggestion: str = ""


async def ask(spec: BackendSpec, *, seconds: float = LOOK_SECONDS) -> Found:
    """What a backend offers, from a session of its own. Raises `unavailable`, `timeout` or `backend_error`."""
    if spec.problem:
        raise unavailable(spec.id, spec.problem)
    if spec.transport == Transport.AGENT_CLI:
        if shutil.which(spec.command) is None:
            raise unavailable(spec.id, f"{spec.command} is not installed on this server.")
        await catalog.current()  # what it wraps is reached for its tools
    try:
        async with asyncio.timeout(seconds):
            return await discovery.discover(spec)
    except TimeoutError:
        raise unavailable(spec.id, f"it said nothing within {seconds:g} s.") from None


def look(backend_id: str) -> Looked:
    """Ask a backend what it offers, now, and keep what it says (blocks, up to two minutes). Raises `not_found`."""
    row = find(backend_id)
    spec = backend_spec(row)
    started = time.perf_counter()
    known = {action.name: action.is_gone for action in row.actions.all()}
    try:
        found = async_to_sync(ask)(spec)
    except DevFlowError as exc:
        why = struck_out(exc.message, spec.secrets)
        discovery.mark_down(spec, why)
        return Looked(False, _since(started), error=why, suggestion=struck_out(exc.suggestion, spec.secrets))
    discovery.keep(spec, found)
    actions = list(row.actions.all())
    return Looked(
        True,
        _since(started),
        server={name: found.server.get(name, "") for name in ("name", "version")},
        protocol_version=found.protocol_version,
        tools=sum(not action.is_gone for action in actions),
        new=[action.name for action in actions if action.name not in known],
        gone=[action.name for action in actions if action.is_gone and not known.get(action.name, True)],
        held=[action.name for action in actions if action.held is not None and not action.is_gone],
        problems={action.name: action.problem for action in actions if action.problem and not action.is_gone},
    )


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
