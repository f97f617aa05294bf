"""Composite tools at work: the rows as tools of the main list, their steps in order under the caller's own key.

A step runs like a call the caller makes itself, so scope, policy, gates and the log hold for each. What a composite
may do is the strongest of its steps, as the catalog says it now.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Max
from pydantic import TypeAdapter

from devflow.digits import whole
from devflow.errors import DevFlowError, ErrorCode, invalid
from mcpbridge import ratelimit
from mcpbridge.gateway import large, own, policy
from mcpbridge.gateway.catalog import Snapshot, catalog, load, refuse_unusable
from mcpbridge.gateway.composites import COMPOSITE, INPUT, PLACEHOLDER, check_arguments
from mcpbridge.gateway.specs import validator_of
from mcpbridge.models import CompositeTool
from mcpbridge.registry import CALL_TOOL, GATEWAY_EXECUTE, SEARCH_TOOLS, registry
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import STRENGTH, Caller, Effect, Intent, Tool

LOOK_SECONDS = 2.0
MOST_OF_A_FAILURE = 16 * 1024
"""Characters of an answer that a failure repeats."""
_ANSWER: TypeAdapter[Any] = TypeAdapter(dict[str, Any])

OUTPUT = {
    "type": "object",
    "properties": {
        "result": {"type": "object", "description": "The last step's answer."},
        "steps": {"type": "object", "description": "Every step's answer by its id, in order."},
    },
    "required": ["result", "steps"],
}


@dataclass(frozen=True)
class Step:
    """One step as it would run now; `problem` says why it would not."""

    id: str
    action: str
    params: Mapping[str, Any]
    own: str = ""
    intent: Intent = Intent.QUERY
    effect: Effect = Effect.READ_ONLY
    problem: str = ""


def step_of(given: Mapping[str, Any], snapshot: Snapshot) -> Step:
    identifier, action, params = given["id"], given["action"], given["params"]
    name = action.removeprefix("devflow.")
    tool = registry.find(name)
    if tool is not None and tool.backend:
        tool = None
    if action.startswith("devflow.") or (tool is not None and action.partition(".")[0] not in snapshot.backends):
        if tool is None or tool.name in (GATEWAY_EXECUTE, CALL_TOOL, SEARCH_TOOLS):
            return Step(identifier, action, params, effect=Effect.EXTERNAL_EXEC, problem="DevFlow has no such tool.")
        return Step(identifier, action, params, own=tool.name, intent=tool.intent, effect=tool.effect)
    try:
        found = snapshot.resolve(action)
        refuse_unusable(found)
    except DevFlowError as exc:
        return Step(identifier, action, params, effect=Effect.EXTERNAL_EXEC, problem=exc.message)
    fits = policy.DEFAULT_EFFECT[found.intent] == found.effect
    intent = found.intent if fits else policy.intent_for(found.effect)
    return Step(identifier, found.full_name, params, intent=intent, effect=found.effect)


# --- placeholders ---------------------------------------------------------------------------------------------------


class _Absent:
    pass


ABSENT = _Absent()
"""An optional input the caller left out: a parameter that is exactly this placeholder is left out too."""


def filled(value: Any, answers: Mapping[str, Any], optional: frozenset[str] = frozenset()) -> Any:
    """`value` with its placeholders replaced from `answers` (by step id, and `input`). Replacements are data: they are
    not looked at again. Raises `invalid_input` for a path that leads nowhere."""
    if isinstance(value, str):
        if (match := PLACEHOLDER.fullmatch(value)) is not None:
            return _looked_up(match[0], match[1], match[2], answers, optional)
        return PLACEHOLDER.sub(
            lambda match: _as_text(_looked_up(match[0], match[1], match[2], answers, optional)), value
        )
    if isinstance(value, list):
        return [made for item in value if (made := filled(item, answers, optional)) is not ABSENT]
    if isinstance(value, dict):
        items = ((key, filled(item, answers, optional)) for key, item in value.items())
        return {key: made for key, made in items if made is not ABSENT}
    return value


def _looked_up(text: str, source: str, path: str, answers: Mapping[str, Any], optional: frozenset[str]) -> Any:
    found: Any = answers.get(source)
    for depth, part in enumerate(path.split(".")[1:]):
        large.refuse_cut(found, f"The step {source}")
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and (place := whole(part)) is not None and place < len(found):
            found = found[place]
        elif source == INPUT and depth == 0 and part in optional:
            return ABSENT
        else:
            has = ", ".join(list(found)[:20]) if isinstance(found, Mapping) else type(found).__name__
            raise invalid(f"{text}: there is no {part}; there is: {has or 'nothing'}.", **{text: f"no {part}"})
    large.refuse_cut(found, f"The step {source}")
    return found


def _as_text(value: Any) -> str:
    if value is ABSENT or value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- running --------------------------------------------------------------------------------------------------------


async def run_steps(
    caller: Caller, name: str, steps: list[Step], arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> dict[str, Any]:
    """Run the steps in order: `{result, steps}`. Raises what a step raised, with which one it was and the answers so
    far in its details."""
    for step in steps:
        if step.problem:
            raise DevFlowError(
                ErrorCode.UNAVAILABLE,
                f"{name} cannot run: its step {step.id} ({step.action}) is not available. {step.problem}",
                details={"step": step.id},
                suggestion="An administrator has to approve or switch on what the step calls, or change the tool.",
            )
        if not caller.allows(step.effect):
            raise DevFlowError(
                ErrorCode.FORBIDDEN,
                f"This key may not call {name}: its step {step.id} has the effect {step.effect.value}.",
            )
    await ratelimit.spend(caller, len(steps) - 1)
    properties = schema.get("properties") or {}
    given = {key: part["default"] for key, part in properties.items() if isinstance(part, dict) and "default" in part}
    answers: dict[str, Any] = {INPUT: {**given, **arguments}}
    optional = frozenset(properties) - frozenset(schema.get("required") or ())
    caller.facts["is_change"] = any(step.effect is not Effect.READ_ONLY for step in steps)
    for number, step in enumerate(steps):
        caller.report(number, len(steps), f"{step.id}: {step.action}")
        started = time.perf_counter()
        try:
            answers[step.id] = await _run_step(caller, step, filled(dict(step.params), answers, optional))
        except DevFlowError as exc:
            raise _failed(name, step, exc, answers) from exc
        finally:
            ms = round((time.perf_counter() - started) * 1000, 3)
            caller.facts.setdefault("spans", []).append((f"{step.id}: {step.action}"[:100], ms))
    del answers[INPUT]
    return await large.fitting_data(caller, {"result": answers[steps[-1].id], "steps": answers})


async def _run_step(caller: Caller, step: Step, params: dict[str, Any]) -> Any:
    from mcpbridge import dispatcher

    if step.own:
        outcome = await dispatcher.call(step.own, params, caller, prepaid=True)
    else:
        request = {"intent": step.intent.value, "effect": step.effect.value, "action": step.action, "params": params}
        outcome = await dispatcher.call(GATEWAY_EXECUTE, request, caller, prepaid=True)
    if own.may_have_happened(outcome, step.effect):
        caller.facts["is_sent"] = True  # something may have happened: the call's idempotency key stays taken
    if outcome.error is not None:
        raise outcome.error
    value = outcome.value or {}
    return value if step.own else value["result"]["data"]


def _failed(name: str, step: Step, exc: DevFlowError, answers: Mapping[str, Any]) -> DevFlowError:
    done = {key: value for key, value in answers.items() if key != INPUT}
    short = {key: value if len(json.dumps(value)) <= MOST_OF_A_FAILURE else "(long)" for key, value in done.items()}
    return DevFlowError(
        exc.code,
        f"{name} stopped at its step {step.id} ({step.action}): {exc.message}",
        details={**exc.details, "step": step.id, "action": step.action, "answers": short},
        suggestion=exc.suggestion,
        retry_after_ms=exc.retry_after_ms,
    )


def strongest(steps: list[Step]) -> Effect:
    return max((step.effect for step in steps), key=STRENGTH.__getitem__)


# --- as tools -------------------------------------------------------------------------------------------------------


def tool_of(row: CompositeTool, name: str, snapshot: Snapshot, *, hidden: bool) -> Tool:
    steps = [step_of(step, snapshot) for step in row.steps]
    effect = strongest(steps)
    intent = next((step.intent for step in steps if step.effect is effect), policy.intent_for(effect))
    validator = validator_of(row.input_schema)

    def check(given: Mapping[str, Any]) -> dict[str, Any]:
        check_arguments(validator, given)
        return {"arguments": dict(given)}

    async def run(caller: Caller, *, arguments: dict[str, Any]) -> dict[str, Any]:
        await composed.refresh()
        now = composed.row_of(name)
        if now is None:
            raise DevFlowError(ErrorCode.NOT_FOUND, f"{name} was retired or switched off.")
        if now.pk != row.pk:  # the name went to another version a moment ago
            check_arguments(validator_of(now.input_schema), arguments)
        snapshot = await catalog.current()
        steps = [step_of(step, snapshot) for step in now.steps]
        caller.facts["effect"] = strongest(steps).value
        return await run_steps(caller, name, steps, arguments, now.input_schema)

    facts = [row.version, row.changed_at.isoformat(), effect, [step.problem for step in steps]]
    return Tool(
        name=name,
        title=name.replace("_", " ").capitalize(),
        description=row.description,
        toolset="gateway",
        intent=intent,
        effect=effect,
        artifact="JSON",
        version=f"{row.version}-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:8]}",
        input_schema=row.input_schema,
        output_schema=OUTPUT,
        check=check,
        output=_ANSWER,
        run=run,
        is_async=True,
        needs_project=False,
        destructive=effect is not Effect.READ_ONLY,
        idempotent=False,
        deadline=policy.MAX_TIMEOUT_MS / 1000,
        hidden=hidden,
        backend=COMPOSITE,
    )


class Composed:
    """A source of the registry: the newest version under the plain name, each version under `name_v2` and so on."""

    def __init__(self) -> None:
        self._rows: list[CompositeTool] = []
        self._stamp: object = None
        self._snapshot: Snapshot | None = None
        self._by_name: dict[str, Tool] = {}
        self._named: dict[str, CompositeTool] = {}
        self._until = 0.0

    def find(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def all(self) -> Iterable[Tool]:
        return self._by_name.values()

    def row_of(self, name: str) -> CompositeTool | None:
        return self._named.get(name)

    def forget(self) -> None:
        """Look at the rows before the next call."""
        self._until = 0.0

    async def refresh(self) -> None:
        snapshot = await catalog.current()
        if self._until <= time.monotonic():
            await run_blocking(self._read)
        self._follow(snapshot)

    def look(self) -> None:
        """`refresh` for a thread (blocks)."""
        self._read()
        self._follow(load(self._snapshot or catalog.known))

    def _read(self) -> None:
        """Read the rows, unless nothing changed."""
        stamp = tuple(CompositeTool.objects.aggregate(Max("changed_at"), Count("pk")).values())
        if stamp != self._stamp:
            self._rows = list(CompositeTool.objects.filter(is_enabled=True, retired_at=None))
            self._stamp, self._snapshot = stamp, None
        self._until = time.monotonic() + LOOK_SECONDS

    def _follow(self, snapshot: Snapshot) -> None:
        if snapshot is self._snapshot:
            return
        named: dict[str, CompositeTool] = {}
        for row in self._rows:  # the newest version of a name comes first
            named.setdefault(row.name, row)
            named[f"{row.name}_v{row.version}"] = row
        self._named, self._snapshot = named, snapshot
        self._by_name = {name: tool_of(row, name, snapshot, hidden=name != row.name) for name, row in named.items()}


composed = Composed()
