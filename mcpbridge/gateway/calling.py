"""One request of the gateway, from the action's name to the envelope.

resolve -> policy (declared against the catalog) -> scope -> parameters -> pre-gate -> activation -> pre-validation and
impact -> run under isolation -> artifact -> post-gate. Whatever fails raises `DevFlowError`; the dispatcher records
it and `envelopes` gives it the protocol's shape.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from devflow import ports
from devflow.errors import DevFlowError, ErrorCode, forbidden
from mcpbridge.gateway import large, policy
from mcpbridge.gateway.artifacts import shaped, text_of
from mcpbridge.gateway.beforehand import activated, validated
from mcpbridge.gateway.catalog import Snapshot, catalog, refuse_unusable, usable
from mcpbridge.gateway.changes import Look, look_at
from mcpbridge.gateway.conversing import Conversation
from mcpbridge.gateway.deadlines import Deadline
from mcpbridge.gateway.faults import LostError, ToolFailedError, out_of_time, unavailable
from mcpbridge.gateway.gating import Gated
from mcpbridge.gateway.protocol import GatewayRequest, corrected_call, unnested
from mcpbridge.gateway.questions import Asking
from mcpbridge.gateway.running import placed
from mcpbridge.gateway.sessions import pool
from mcpbridge.gateway.specs import ActionSpec, BackendSpec
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import SCOPE_FOR, Caller, Effect, Intent

BACKOFF_SECONDS = 0.1
FAIR_MS = 10_000
"""Who gives a call this long, or as long as it usually has, may tell by its end that the backend fails."""


def callable_by(caller: Caller, snapshot: Snapshot) -> list[ActionSpec]:
    """The actions a caller's key allows, of backends that are not known to be down."""
    return [
        action
        for action in usable(snapshot.actions.values())
        if caller.allows(action.effect) and snapshot.backends[action.backend].status != "down"
    ]


def caller_key(caller: Caller) -> str:
    """Whose session it is: state of a backend is never shared between two of these."""
    return f"{caller.scope.key_id}/{caller.agent_name}/{caller.session}"


@dataclass
class Work:
    """One request on its way: what was resolved, and how long its steps took."""

    caller: Caller
    request: GatewayRequest
    spec: BackendSpec
    action: ActionSpec
    started: float = field(default_factory=time.perf_counter)
    isolation: str = "agent"
    root: str | None = None
    timeout: float = 30.0
    is_hurried: bool = False
    """Whether the client gave it less time than it usually has."""
    has_place: bool = False
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    is_sent: bool = False
    impact: dict[str, Any] = field(default_factory=dict)

    @property
    def is_change(self) -> bool:
        return self.action.effect is not Effect.READ_ONLY

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.caller.facts.setdefault("spans", []).append((name, round((time.perf_counter() - started) * 1000, 3)))


async def execute(caller: Caller, request: GatewayRequest) -> dict[str, Any]:
    """Run a request and give the success envelope. Raises `DevFlowError`."""
    from mcpbridge.gateway import own

    snapshot = await catalog.current()
    if (tool := own.tool_called(request.action, caller, snapshot)) is not None:
        return await own.execute(caller, request, tool)
    action = snapshot.resolve(request.action)
    request = request.model_copy(update={"params": unnested(request.params, action.input_schema)})
    return await run(caller, request, snapshot.backend(action.backend), action)


async def run(caller: Caller, request: GatewayRequest, spec: BackendSpec, action: ActionSpec) -> dict[str, Any]:
    """`execute` for an action that is known, also of a backend no row describes."""
    work = admitted(caller, request, spec, action)
    wire, look = await perform(work)
    caller.facts["wire"] = wire
    with work.step("artifact"):
        left = work.timeout + work.deadline.rested - (time.perf_counter() - work.started)
        wanted = request.artifact or action.artifact
        data, artifact = await shaped(wire, wanted, root=work.root, source=action, seconds=left)
        data = await large.fitting_data(caller, data)
    return {
        "ok": True,
        "request": {
            "intent": request.intent.value,
            "action": action.full_name,
            "effect": action.effect.value,
        },
        "result": {
            "artifact_type": artifact,
            "data": data,
            "affected_files": look.files if look else [],
            "affected_symbols": look.symbols if look else [],
        },
        "meta": {
            "duration_ms": round((time.perf_counter() - work.started) * 1000, 3),
            "mcp_name": spec.id,
            "isolation_used": work.isolation,
            **({"impact": work.impact} if work.impact else {}),
            "trace_id": caller.trace_id,
        },
    }


def admitted(caller: Caller, request: GatewayRequest, spec: BackendSpec, action: ActionSpec) -> Work:
    """Everything that is decided before anything is started. Raises `DevFlowError`."""
    caller.facts.update(backend=spec.id, action=action.full_name, effect=action.effect.value)
    refuse_unusable(action)
    if spec.problem:
        raise unavailable(spec.id, spec.problem)
    refuse_understatement(request, action.full_name, action.intent, action.effect)
    if not caller.allows(action.effect):
        raise forbidden(
            f"This key may not call {action.full_name}: it needs the scope `{SCOPE_FOR[action.effect]}`.",
            suggestion="Ask for a key with that scope, or leave the change to somebody who has one.",
        )
    try:
        params = action.check(request.params)
    except DevFlowError as exc:
        example = {**request.as_json(), "action": action.full_name, "params": example_of(action.input_schema)}
        raise DevFlowError(exc.code, exc.message, details=exc.details, suggestion=corrected_call(example)) from None
    wished = request.constraints.isolation or spec.isolation
    isolation = wished if spec.is_process else "agent"
    if spec.transport == "agent_cli":
        isolation = "subprocess"  # each call is a command of its own
    wished_ms = request.constraints.timeout_ms
    ms = policy.timeout_ms(request.intent, isolation, wished=wished_ms, of_backend=spec.timeouts)
    usual_ms = policy.timeout_ms(request.intent, isolation, wished=None, of_backend=spec.timeouts)
    root = spec.root(request.context.project_root or caller.project_root)
    context = request.context.model_copy(update={"project_root": root})
    return Work(
        caller=caller,
        request=request.model_copy(update={"params": params, "context": context}),
        spec=spec,
        action=action,
        isolation=isolation,
        root=root,
        timeout=ms / 1000,
        is_hurried=ms < min(usual_ms, FAIR_MS),
    )


def refuse_understatement(request: GatewayRequest, name: str, intent: Intent, effect: Effect) -> None:
    """Neither the declared effect nor the declared intent may be weaker than the catalog's."""
    if not policy.is_weaker(request.declared_effect, effect) and not policy.intent_is_weaker(request.intent, intent):
        return
    fits = policy.DEFAULT_EFFECT[intent] == effect
    right = {
        **request.as_json(),
        "intent": (intent if fits else policy.intent_for(effect)).value,
        "action": name,
        "effect": effect.value,
    }
    raise DevFlowError(
        ErrorCode.FORBIDDEN,
        f"{name} is {intent.value} with the effect {effect.value}; the request declares "
        f"{request.intent.value} with {request.declared_effect.value}.",
        details={"intent": intent.value, "effect": effect.value},
        suggestion=corrected_call(right),
    )


async def perform(work: Work) -> tuple[dict[str, Any], Look | None]:
    """Run an admitted call inside its deadline: the backend's result as it came, and what changed around it."""
    work.caller.facts["is_change"] = work.is_change
    try:
        async with Deadline(work.timeout) as work.deadline, Gated(work):
            return await _tried(work)
    except TimeoutError:
        _note_failure(work)
        raise out_of_time(work.action.full_name, work.timeout) from None


async def _tried(work: Work) -> tuple[dict[str, Any], Look | None]:
    """Try, and again after faults as often as asked: reads, or what has an idempotency key and was never sent."""
    left, is_replaced = work.request.constraints.retry_count, False
    while True:
        try:
            return await _once(work)
        except DevFlowError as exc:
            may_repeat = not work.is_change or not work.is_sent
            if exc.code is not ErrorCode.UNAVAILABLE or not may_repeat:
                raise
            if isinstance(exc, LostError) and not is_replaced:  # the session had died: once more with a fresh one
                is_replaced = True
                continue
            if left == 0 or (work.is_change and not work.caller.facts.get("is_kept")):
                raise
            tried = work.request.constraints.retry_count - left
            left -= 1
            with work.step("backoff"):
                await asyncio.sleep(BACKOFF_SECONDS * 2**tried * (0.5 + random.random()))  # noqa: S311  # jitter


async def _once(work: Work) -> tuple[dict[str, Any], Look | None]:
    breaker = pool.breaker(work.spec)
    await breaker.admit(work.spec.id, work.caller.scope.key_id, seconds=work.timeout)
    try:
        async with placed(work) as session:
            await activated(work, session)
            await validated(work, session)
            before = await look_at(work.root) if work.is_change and work.root else None
            with work.step("call"):
                wire = await _call(work, session)
        look = await _compared(work, before)
    except DevFlowError as exc:
        if exc.code in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT):
            _note_failure(work, is_timeout=exc.code is ErrorCode.TIMEOUT)
        raise
    breaker.note(ok=True)
    if wire.get("isError"):
        raise ToolFailedError(work.action.full_name, text_of(wire), wire)
    return wire, look


def _note_failure(work: Work, *, is_timeout: bool = True) -> None:
    """Tell the breaker. Waiting for a place, or a deadline that the client cut short, says nothing of the backend."""
    if not is_timeout or (work.has_place and not work.is_hurried):
        pool.breaker(work.spec).note(ok=False)


async def _compared(work: Work, before: Look | None) -> Look | None:
    """What changed around the call; agents whose tasks name one of the files are told."""
    if before is None:
        return None
    with work.step("affected"):
        look = await before.compared()
        if look.files:
            await run_blocking(_tell, work, look.files)
    return look


def _tell(work: Work, files: list[str]) -> None:
    caller = work.caller
    writer = caller.writer(work.action.full_name)
    ports.watchers().files_changed(caller.project.id, files, writer, by=work.action.full_name)


async def _call(work: Work, session: Conversation) -> dict[str, Any]:
    if not session.is_over:
        work.is_sent = work.caller.facts["is_sent"] = True
    report = work.caller.report

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        report(progress, total, message)

    return await session.request(
        "tools/call",
        {"name": work.action.name, "arguments": work.request.params},
        timeout=work.timeout,
        progress=on_progress,
        asking=Asking(work.caller.asker, work.deadline) if work.caller.asker and work.spec.may_ask else None,
    )


def example_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The required parameters of an action, each with a value of its kind."""
    properties = schema.get("properties") or {}
    values = {"string": "text", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    made: dict[str, Any] = {}
    for name in schema.get("required") or ():
        part = properties.get(name)
        part = part if isinstance(part, Mapping) else {}
        kind = part.get("type")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        choices = part.get("enum") or part.get("examples") or [part.get("default", values.get(str(kind), "value"))]
        made[name] = choices[0]
    return made
