"""What a backend offers: asked, classified, compared with what was approved.

A tool whose description, schema or annotations changed is held back with what it wants to be (rug-pull guard); what
was approved stays in the row until a person says yes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone
from mcp import Client

from devflow.errors import DevFlowError
from devflow.events import EVERY_PROJECT, LiveEvent, bus
from mcpbridge.asking import EVERYTHING
from mcpbridge.gateway import policy
from mcpbridge.gateway.catalog import catalog
from mcpbridge.gateway.presets import preset_for
from mcpbridge.gateway.sessions import Session
from mcpbridge.gateway.specs import ActionSpec, BackendSpec, fingerprint_of, schema_fault
from mcpbridge.models import Action, Backend
from mcpbridge.subscriptions import TOOLS_CHANGED
from mcpbridge.threads import run_blocking

BACKEND_CHANGED = "backend.changed"
MAX_TOOLS = 1000
MAX_PAGES = 50
MAX_NAME = 128
LOOK_SECONDS = 60.0


@dataclass(frozen=True)
class Found:
    """What a backend said of itself: its tools as it lists them."""

    tools: list[dict[str, Any]]
    server: Mapping[str, Any]
    protocol_version: str


async def ask(session: Session, *, timeout: float = LOOK_SECONDS) -> Found:
    """Ask an open session for its tools. Raises what `Session.request` does."""
    client = await session.client()
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    if client.server_capabilities.tools is not None:
        for _ in range(MAX_PAGES):
            page = await session.request("tools/list", {"cursor": cursor} if cursor else None, timeout=timeout)
            tools += filter(_can_be_kept, page.get("tools", []))
            cursor = page.get("nextCursor")
            if not cursor or len(tools) >= MAX_TOOLS:
                break
    return Found(tools[:MAX_TOOLS], server_of(client), client.protocol_version)


def _can_be_kept(tool: Mapping[str, Any]) -> bool:
    """Whether a row can hold it: its name is no longer than MCP allows, and no text in it has a NUL."""
    return 1 <= len(str(tool.get("name", ""))) <= MAX_NAME and "\\u0000" not in json.dumps(tool)


def server_of(client: Client) -> dict[str, Any]:
    info = client.server_info
    return {
        "name": _without_nul(info.name if info else ""),
        "version": _without_nul(info.version if info else ""),
        "capabilities": client.server_capabilities.model_dump(by_alias=True, mode="json", exclude_none=True),
        "instructions": _without_nul(client.instructions or ""),
    }


def _without_nul(text: str) -> str:
    return text.replace("\x00", "")


async def discover(spec: BackendSpec) -> Found:
    """Open a fresh session, ask, close. Raises `unavailable`, `timeout` or `backend_error`."""
    session = Session(spec, None, kind="discovery", features=EVERYTHING)  # some list tools only for those who have them
    try:
        return await ask(session)
    finally:
        await session.close()


def as_actions(spec: BackendSpec, found: Found) -> list[ActionSpec]:
    """The actions of a backend that no row describes."""
    made = []
    for tool in found.tools:
        intent, effect = policy.classify(tool.get("annotations") or {})
        made.append(
            ActionSpec(
                backend=spec.id,
                name=str(tool["name"]),
                title=str(tool.get("title") or ""),
                description=str(tool.get("description") or ""),
                input_schema=tool.get("inputSchema") or {},
                output_schema=tool.get("outputSchema"),
                annotations=tool.get("annotations") or {},
                fingerprint=fingerprint_of(tool),
                intent=intent,
                effect=effect,
                problem=schema_fault(tool.get("inputSchema")),
            )
        )
    return made


async def refresh(spec: BackendSpec) -> Found | DevFlowError:
    """Discover a backend and keep what it said, or that it cannot be reached."""
    try:
        found = await discover(spec)
    except DevFlowError as exc:
        await run_blocking(mark_down, spec, exc.message)
        return exc
    await run_blocking(keep, spec, found)
    return found


def mark_down(spec: BackendSpec, why: str) -> None:
    _note(spec, Backend.Status.DOWN, why[:2000])


def _note(spec: BackendSpec, status: str, detail: str) -> None:
    changed = Backend.objects.filter(pk=spec.pk or 0).exclude(status=status, status_detail=detail)
    if changed.update(status=status, status_detail=detail, checked_at=timezone.now(), changed_at=timezone.now()):
        bus.publish(LiveEvent(BACKEND_CHANGED, EVERY_PROJECT, spec.id))
    else:
        Backend.objects.filter(pk=spec.pk or 0).update(checked_at=timezone.now())
    catalog.forget()


@transaction.atomic
def keep(spec: BackendSpec, found: Found, *, is_all: bool = True) -> None:
    """Write what was found into the rows (blocks). What changed since it was approved is held back.

    Not `is_all`: a client was asked for that cannot answer questions, so what is missing may be there for others.
    """
    backend = Backend.objects.select_for_update().filter(pk=spec.pk or 0).first()
    if backend is None:
        return
    known = {row.name: row for row in backend.actions.all()}
    is_changed = False
    listed: set[str] = set()
    for tool in found.tools:
        name = str(tool.get("name", ""))
        if not name or name in listed:
            continue
        listed.add(name)
        row = known.get(name)
        if row is None:
            _new_row(backend, tool).save()
            is_changed = True
        elif _compare(row, tool):
            row.save()
            is_changed = True
    for name, row in known.items():
        if is_all and name not in listed and not row.is_gone:
            row.is_gone = True
            row.save(update_fields=["is_gone", "changed_at"])
            is_changed = True
    Backend.objects.filter(pk=backend.pk).update(
        server_info=dict(found.server), protocol_version=found.protocol_version
    )
    _note(spec, Backend.Status.UP, "")
    if is_changed:
        bus.publish(LiveEvent(TOOLS_CHANGED, EVERY_PROJECT, spec.id))


def _new_row(backend: Backend, tool: Mapping[str, Any]) -> Action:
    row = Action(backend=backend, name=str(tool["name"]))
    _approve(row, tool)
    preset = preset_for(backend.backend_id, row.name)
    if preset is not None:
        row.intent_override, row.effect_override = preset.intent, preset.effect
        row.lookup, row.references = preset.lookup, preset.references
    return row


def _approve(row: Action, tool: Mapping[str, Any]) -> None:
    intent, effect = policy.classify(tool.get("annotations") or {})
    row.title = str(tool.get("title") or (tool.get("annotations") or {}).get("title") or "")[:200]
    row.description = str(tool.get("description") or "")
    row.problem = schema_fault(tool.get("inputSchema"))
    row.input_schema = tool.get("inputSchema") or {}
    row.output_schema = tool.get("outputSchema")
    row.annotations = tool.get("annotations") or {}
    row.intent, row.effect = intent.value, effect.value
    row.fingerprint = fingerprint_of(tool)
    row.held, row.held_since = None, None


def _compare(row: Action, tool: Mapping[str, Any]) -> bool:
    """Bring a row up to date with the tool as it is now. Whether anything changed."""
    was = (row.is_gone, row.held)
    row.is_gone = False
    if fingerprint_of(tool) == row.fingerprint:
        row.held, row.held_since = None, None
    elif row.held != tool:
        row.held, row.held_since = dict(tool), timezone.now()
    return was != (row.is_gone, row.held)


@transaction.atomic
def approve(action: Action) -> None:
    """A person says yes to what a held tool wants to be (blocks)."""
    row = Action.objects.select_for_update().select_related("backend").get(pk=action.pk)
    if row.held is not None:
        _approve(row, row.held)
        row.save()
        bus.publish(LiveEvent(TOOLS_CHANGED, EVERY_PROJECT, row.backend.backend_id))
        catalog.forget()
