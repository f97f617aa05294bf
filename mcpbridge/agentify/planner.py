"""Which action a task means, with which parameters: by its name, by the model's choice, or where nothing is in doubt.

exact name -> what this caller may do now -> shortlist -> one question to the model, one repair; without a model only a
clear match whose required parameters the task states. Nothing runs here.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from devflow.errors import DevFlowError
from mcpbridge.agentify.asking import asked
from mcpbridge.agentify.extraction import Extracted, extract
from mcpbridge.agentify.llm import Model, ModelFaultError
from mcpbridge.agentify.retrieval import Near, ranked
from mcpbridge.agentify.tasks import Choice, NoActionError, Task
from mcpbridge.gateway import calling, own, protocol
from mcpbridge.gateway.catalog import Snapshot, usable
from mcpbridge.gateway.sessions import pool
from mcpbridge.gateway.specs import ActionSpec
from mcpbridge.tooling import Caller, Intent

SHORTLIST = 8
MARGIN = 0.2
LIKENESS = 0.3
"""A match is clear where it leads the next by `MARGIN` (of 1) and means the same by at least this cosine. Over the 60
requests of the tests nothing wrong passes both."""


_NAME = re.compile(
    r"\s*(?:(QUERY|ANALYZE|GENERATE|MODIFY|EXECUTE)\b\s*:?\s*)?([\w.-]{1,200})\s*(\{.*\})?\s*\Z", re.DOTALL
)


async def choose(caller: Caller, task: Task, snapshot: Snapshot, model: Model | None) -> Choice:
    """Raises `NoActionError`, `ModelFaultError`, and `invalid_input` for a gateway request that is none."""
    named = _named(task.query, caller, snapshot)
    if named is not None:
        named = _with_stated(named, task)
        if not task.admits(named.action):
            raise NoActionError(
                f"{named.action.full_name} has the effect {named.action.effect.value}, which allow_effects leaves out.",
                candidates=[named.action.full_name],
            )
        if model is None or named.request is not None or not _missing(named):
            return _checked(named)
        shortlist = [named.action]
    else:
        may = [action for action in callable_now(caller, snapshot) if task.admits(action)]
        near = await asyncio.to_thread(ranked, task.query, may)
        if not near:
            raise NoActionError("There is no action this caller may use here.", candidates=[])
        if model is None:
            return await asyncio.to_thread(stated, task, near)
        shortlist = [item.action for item in near[:SHORTLIST]]
    try:
        return await asked(task, shortlist, model)
    except ModelFaultError as fault:
        fault.details = {"candidates": [action.full_name for action in shortlist], "missing": []}
        if not fault.is_away or named is not None:
            raise
        try:
            found = await asyncio.to_thread(stated, task, near)
            return replace(found, model=model.name, attempts=1)
        except NoActionError as exc:
            fault.details = exc.data
            raise fault from None


def callable_now(caller: Caller, snapshot: Snapshot) -> list[ActionSpec]:
    """What the caller's key allows, of backends that answer."""
    return [
        action
        for action in calling.callable_by(caller, snapshot)
        if not (spec := snapshot.backends[action.backend]).problem and pool.breaker(spec).state != "open"
    ]


def _named(query: str, caller: Caller, snapshot: Snapshot) -> Choice | None:
    """The choice of a task that is an action's name, alone or with intent and parameters, or a gateway request."""
    if query.lstrip().startswith("{"):
        return _requested(query, caller, snapshot)
    if (match := _NAME.match(query)) is None:
        return None
    action = _resolved(match[2], caller, snapshot)
    if action is None:
        return None
    params: Any = {}
    if match[3]:
        try:
            params = json.loads(match[3])
        except (ValueError, RecursionError):
            return None
    intent = Intent(match[1]) if match[1] else None
    return Choice(action, params, "exact", [action.full_name], intent=intent)


def _requested(query: str, caller: Caller, snapshot: Snapshot) -> Choice | None:
    try:
        body = json.loads(query)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, Mapping) or not body.keys() & {"action", "tool_name"}:
        return None
    request = protocol.parse(body)
    action = own_action(request.action, caller, snapshot) or snapshot.resolve(request.action)
    request = request.model_copy(update={"params": protocol.unnested(request.params, action.input_schema)})
    return Choice(action, request.params, "exact", [action.full_name], intent=request.intent, request=request)


def own_action(name: str, caller: Caller, snapshot: Snapshot) -> ActionSpec | None:
    """DevFlow's own tool of that name as an action. It is never proposed, only found by its name."""
    tool = own.tool_called(name, caller, snapshot)
    if tool is None or tool.name in _NOT_AGAIN:
        return None
    facts = json.dumps([tool.version, tool.input_schema], sort_keys=True)
    return ActionSpec(
        backend=own.OWN,
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        fingerprint=hashlib.sha256(facts.encode()).hexdigest(),
        intent=tool.intent,
        effect=tool.effect,
    )


_NOT_AGAIN = ("orchestrate_task", "confirm_plan")


def _resolved(name: str, caller: Caller, snapshot: Snapshot) -> ActionSpec | None:
    if (action := own_action(name, caller, snapshot)) is not None:
        return action
    try:
        return snapshot.resolve(name)
    except DevFlowError:
        # One that only one backend lets be called: the others' are switched off or held back.
        found = [action for action in usable(snapshot.actions.values()) if action.name == name]
        return found[0] if len(found) == 1 else None


def _missing(choice: Choice) -> list[str]:
    return [name for name in choice.action.input_schema.get("required") or () if name not in choice.params]


def _with_stated(choice: Choice, task: Task) -> Choice:
    """A name alone takes what it needs from the context: the selection, the open document."""
    if choice.params or choice.request is not None:
        return choice
    return replace(choice, params=extract("", choice.action.input_schema, task.around).params)


def _checked(choice: Choice) -> Choice:
    if missing := _missing(choice):
        raise NoActionError(
            f"{choice.action.full_name} needs {', '.join(missing)}.", candidates=choice.candidates, missing=missing
        )
    return choice


# --- without a model ------------------------------------------------------------------------------------------------


def stated(task: Task, near: Sequence[Near]) -> Choice:
    """The nearest action, where it is clearly the one and the task states all it needs. Raises `NoActionError`."""
    candidates = [item.action.full_name for item in near[:SHORTLIST]]
    best = near[0]
    extracted = extract(task.query, best.action.input_schema, task.around)
    lead = best.score - (near[1].score if len(near) > 1 else 0.0)
    if lead < MARGIN or best.likeness is None or best.likeness < LIKENESS:
        raise NoActionError(
            "It is not clear which action this means, and no model was there to ask.", candidates=candidates
        )
    if not extracted.is_complete:
        raise NoActionError(_incomplete(best.action, extracted), candidates=candidates, missing=extracted.missing)
    try:
        params = best.action.check(extracted.params)
    except DevFlowError as exc:
        raise NoActionError(exc.message, candidates=candidates, missing=list(exc.details)) from None
    return Choice(best.action, params, "deterministic", candidates)


def _incomplete(action: ActionSpec, extracted: Extracted) -> str:
    if extracted.missing:
        return f"{action.full_name} needs {', '.join(extracted.missing)}, which the task does not state outright."
    unused = ", ".join(text[:60] for text in extracted.unused[:5])
    return f"{action.full_name} fits, but it is not clear which of its parameters {unused} should be."
