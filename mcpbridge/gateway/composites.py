"""Composite tools: saved, versioned, retired. Every fault of one is found when it is saved, not when it is called.

A change makes the next version. The newest one answers to the plain name, each one to `name_v2` and so on, until it
is retired. Composites belong to no project, so no project's activity records them; the admin's own log does.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from devflow.errors import DevFlowError, invalid, not_found
from mcpbridge.gateway import catalog
from mcpbridge.gateway.specs import misfits, schema_fault
from mcpbridge.models import CompositeTool
from mcpbridge.models.gateway import TOOL_NAME
from mcpbridge.registry import CALL_TOOL, GATEWAY_EXECUTE, SEARCH_TOOLS, registry

MAX_STEPS = 20
MAX_DESCRIPTION = 4000
MAX_VERSIONS = 1000
INPUT = "input"
"""What a placeholder calls the arguments of the call."""

PLACEHOLDER = re.compile(r"\{\{\s*([a-z][a-z0-9_]*)((?:\.[A-Za-z0-9_-]+)*)\s*\}\}")
_STEP_ID = re.compile(r"[a-z][a-z0-9_]{0,31}")
_VERSIONED = re.compile(r"_v[0-9]+$")


@transaction.atomic
def save(
    name: str,
    description: str,
    input_schema: Mapping[str, Any],
    steps: list[dict[str, Any]],
    *,
    is_enabled: bool = True,
) -> CompositeTool:
    """Make a composite tool, or its next version where it differs from the newest (blocks).

    `name`: lower case, digits and `_`, at most 48, not ending in `_v<number>`. `input_schema`: JSON Schema of an
    object. `steps`: 1 to 20 of `{"id", "action", "params"}`; `action` is a gateway action (`backend.action`) or a
    tool of DevFlow (`devflow.get_tasks`), never a composite. In params, a text that is `{{input.name}}` or
    `{{id.path.0.to}}` as a whole stands for that value of the call or of an earlier step's data; inside other text it
    is put in as text.

    The same again changes nothing but `is_enabled`. Raises `invalid_input` naming each fault (`details` maps
    `name`, `description`, `input_schema`, `steps.2.action` ... to the reason).
    """
    schema = _as_object(input_schema)
    faults = dict(_faults(name, description, schema, steps))
    if faults:
        where, reason = next(iter(faults.items()))
        raise invalid(f"{where}: {reason}", **faults)
    steps = [{"id": step["id"], "action": step["action"], "params": step.get("params") or {}} for step in steps]
    facts = {"description": description.strip(), "input_schema": schema, "steps": steps}
    newest = CompositeTool.objects.select_for_update().filter(name=name).order_by("-version").first()
    if newest is not None and newest.retired_at is None and newest.facts == facts:
        if newest.is_enabled != is_enabled:
            newest.is_enabled = is_enabled
            newest.save(update_fields=["is_enabled", "changed_at"])
        return newest
    version = newest.version + 1 if newest else 1
    if version > MAX_VERSIONS:
        raise invalid(f"{name} has {MAX_VERSIONS} versions; take another name.", name="has too many versions")
    return CompositeTool.objects.create(name=name, version=version, is_enabled=is_enabled, **facts)


@transaction.atomic
def retire(name: str, version: int | None = None) -> list[CompositeTool]:
    """Take a version out of use, or all of them, for good (blocks). Returns what was retired now.

    When the newest is retired, the one before it answers to the plain name again. Raises `not_found`.
    """
    rows = CompositeTool.objects.select_for_update().filter(name=name)
    if version is not None:
        rows = rows.filter(version=version)
    found = list(rows)
    if not found:
        raise not_found("Composite tool", name if version is None else f"{name} v{version}")
    retired = [row for row in found if row.retired_at is None]
    for row in retired:
        row.retired_at = timezone.now()
        row.save(update_fields=["retired_at", "changed_at"])
    return retired


def versions(name: str) -> list[CompositeTool]:
    """Every version, newest first, also the retired (blocks). Raises `not_found`."""
    found = list(CompositeTool.objects.filter(name=name))
    if not found:
        raise not_found("Composite tool", name)
    return found


def _as_object(schema: Any) -> Any:
    return {"type": "object", **schema} if isinstance(schema, Mapping) else schema


def _faults(name: Any, description: Any, schema: Any, steps: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(name, str) or not re.fullmatch(TOOL_NAME, name):
        yield "name", "lower case letters, digits and _, at most 48, a letter first"
    elif "__" in name:
        yield "name", "must not have __: tools of backends are named so"
    elif _VERSIONED.search(name):
        yield "name", "must not end in _v and a number: versions are named so"
    elif (taken := registry.find(name)) is not None and not is_composite(taken.name):
        yield "name", f"is taken by the tool {taken.name}"
    if not isinstance(description, str) or not description.strip():
        yield "description", "is required: agents decide by it"
    elif len(description) > MAX_DESCRIPTION or "\x00" in description:
        yield "description", f"at most {MAX_DESCRIPTION} characters, without NUL"
    if fault := schema_fault(schema):
        yield "input_schema", fault
        schema = {}
    elif schema.get("type") != "object":
        yield "input_schema", "must describe an object"
    if not isinstance(steps, list) or not 1 <= len(steps) <= MAX_STEPS:
        yield "steps", f"a list of 1 to {MAX_STEPS} steps"
        return
    known: set[str] = set()
    for number, step in enumerate(steps):
        for where, reason in _step_faults(step, schema, known):
            yield f"steps.{number}{where}", reason
        if isinstance(step, dict) and isinstance(step.get("id"), str):
            known.add(step["id"])


def _step_faults(step: Any, schema: Mapping[str, Any], earlier: set[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(step, dict):
        yield "", 'must be an object such as {"id": "find", "action": "serena.find_symbol", "params": {}}'
        return
    for key in sorted(step.keys() - {"id", "action", "params"}, key=str):
        yield f".{key}", "unknown key; a step has id, action and params"
    identifier = step.get("id")
    if not isinstance(identifier, str) or not _STEP_ID.fullmatch(identifier) or identifier == INPUT:
        yield ".id", f"lower case letters, digits and _, at most 32, a letter first, not {INPUT}"
    elif identifier in earlier:
        yield ".id", f"{identifier} is an earlier step already"
    if fault := _action_fault(step.get("action")):
        yield ".action", fault
    params = step.get("params") or {}
    if not isinstance(params, dict):
        yield ".params", "must be an object"
        return
    for text in _texts(params):
        if fault := _placeholder_fault(text, schema, earlier):
            yield ".params", fault


def _action_fault(action: Any) -> str:
    """Why a step cannot name this action, empty when it can (blocks)."""
    if not isinstance(action, str) or not action:
        return "is required: backend.action, or devflow.tool"
    snapshot = catalog.load()
    tool = registry.find(action.removeprefix("devflow."))
    if action.startswith("devflow.") or (tool is not None and action.partition(".")[0] not in snapshot.backends):
        if tool is None or tool.backend:
            return "DevFlow has no such tool" if tool is None else "a composite cannot be a step of another"
        if tool.name in (GATEWAY_EXECUTE, CALL_TOOL, SEARCH_TOOLS):
            return f"{tool.name} cannot be a step; name what it would call"
        return ""
    try:
        snapshot.resolve(action)
    except DevFlowError as exc:
        return f"{exc.message} {exc.suggestion}"
    return ""


def _placeholder_fault(text: str, schema: Mapping[str, Any], earlier: set[str]) -> str:
    for match in PLACEHOLDER.finditer(text):
        source, path = match[1], match[2].split(".")[1:]
        if source == INPUT:
            if not path:
                return f"{match[0]}: name what of the input is meant, such as {{{{input.name}}}}"
            if path[0] not in (schema.get("properties") or {}):
                return f"{match[0]}: input_schema has no property {path[0]}"
        elif source not in earlier:
            return f"{match[0]}: there is no earlier step {source}"
    if "{{" in PLACEHOLDER.sub("", text):
        return "a {{ that is no placeholder: write {{input.name}} or {{step.path}}"
    return ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if "{{" in key:
                yield "{{"  # a key is never filled in
            yield from _texts(item)


COMPOSITE = "composite"
"""What `Tool.backend` says of a composite: not one of DevFlow's own."""


def is_composite(name: str) -> bool:
    found = registry.find(name)
    return found is not None and found.backend == COMPOSITE


def check_arguments(validator: Any, given: Mapping[str, Any]) -> None:
    """Raises `invalid_input` naming each argument the schema refuses."""
    if reasons := misfits(validator, dict(given), "arguments"):
        first, reason = next(iter(reasons.items()))
        raise invalid(f"{first}: {reason}", **reasons)
