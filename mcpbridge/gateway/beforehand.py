"""What a backend is asked before a call: its activation, what a change is about, and who refers to that."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.gateway.artifacts import text_of
from mcpbridge.gateway.catalog import catalog, refuse_unusable
from mcpbridge.gateway.conversing import Conversation
from mcpbridge.gateway.faults import unavailable

if TYPE_CHECKING:
    from mcpbridge.gateway.calling import Work


async def _ask(work: "Work", session: Conversation, action: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Call another action of the backend for this call's sake. Raises `forbidden` for one that is held back."""
    known = catalog.known.actions.get((work.spec.id, action))
    if known is not None:
        refuse_unusable(replace(known, is_enabled=True))  # it may be switched off for callers
    return await session.request("tools/call", {"name": action, "arguments": params}, timeout=work.timeout)


async def activated(work: "Work", session: Conversation) -> None:
    """Call the backend's activation once in a session, such as Serena's `activate_project`."""
    activation = work.spec.activation
    if not activation:
        return
    async with session.activating:
        if session.is_activated:
            return
        params = filled(activation.get("params") or {}, {"project_root": work.root})
        if params is None:
            return  # it needs a project root, and this call has none
        with work.step("activate"):
            answer = await _ask(work, session, activation["action"], params)
        if answer.get("isError"):
            raise unavailable(work.spec.id, f"{activation['action']} failed: {text_of(answer)[:500]}")
        session.is_activated = True


async def validated(work: "Work", session: Conversation) -> None:
    """Pre-validation and impact of a change, where the catalog names actions for them."""
    if not work.is_change:
        return
    own = work.request.params
    if (lookup := work.action.lookup) and (params := filled(lookup.get("params") or {}, own)) is not None:
        with work.step("pre-validation"):
            found = await _ask(work, session, lookup["action"], params)
        if found.get("isError") or count_of(found) == 0:
            raise DevFlowError(
                ErrorCode.NOT_FOUND,
                f"{work.action.full_name} was not called: {lookup['action']} found nothing to change.",
                details={"params": json.dumps(params)[:500]},
                suggestion=f"Look it up with {work.spec.id}.{lookup['action']} and call again with what it finds.",
            )
    if (references := work.action.references) and (params := filled(references.get("params") or {}, own)) is not None:
        with work.step("impact"):
            found = await _ask(work, session, references["action"], params)
        count = 0 if found.get("isError") else count_of(found)
        work.impact = {"references": count, "by": references["action"]}
        limit = references.get("limit")
        if isinstance(limit, int) and count > limit:
            raise DevFlowError(
                ErrorCode.PRECONDITION_FAILED,
                f"{work.action.full_name} was not called: {count} places refer to it, more than the {limit} allowed.",
                details=work.impact,
                suggestion="Change less at once, or ask an administrator to raise the limit of this action.",
            )


def filled(template: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """`template` with each text `{name}` replaced by that value; None when one of them is not there.

    A value that is exactly `{name}` keeps its type; a trailing `?` (`{name?}`) leaves the key out instead.
    """
    made: dict[str, Any] = {}
    for key, text in template.items():
        if isinstance(text, str) and text.startswith("{") and text.endswith("}"):
            name = text[1:-1]
            is_optional = name.endswith("?")
            name = name.removesuffix("?")
            if values.get(name) is None:
                if is_optional:
                    continue
                return None
            made[key] = values[name]
        else:
            made[key] = text
    return made


def count_of(wire: Mapping[str, Any]) -> int:
    """How many things a lookup found: entries of its list or object, else the lines it says."""
    structured = wire.get("structuredContent")
    return _size(text_of(wire) if structured is None else structured)


def _size(value: Any) -> int:
    while True:
        if isinstance(value, Mapping) and len(value) == 1:
            value = next(iter(value.values()))
        elif isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return len(value.splitlines())
        else:
            break
    if isinstance(value, str):
        return len(value.strip().splitlines())
    return len(value) if isinstance(value, list | Mapping) else int(value not in (None, False))
