"""The one call pipeline: every door ends here, and nothing else runs a tool.

rate limit -> resolve -> permission -> bounds and schema -> idempotency -> run under a deadline (writes in one
transaction with their audit row) -> output schema -> audit and metrics -> `Outcome`. Transports above stay thin;
`envelopes` gives the outcome its shape.
"""

import asyncio
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from devflow import ports
from devflow.errors import DevFlowError, ErrorCode, forbidden, invalid
from mcpbridge import answers, metrics, payload, ratelimit, remote
from mcpbridge.audit import recorder
from mcpbridge.envelopes import NEARLY_SPENT, Outcome
from mcpbridge.registry import CALL_TOOL, registry
from mcpbridge.threads import run_blocking, run_outside
from mcpbridge.tooling import SCOPE_FOR, Caller, Effect, Tool, WireResult

logger = logging.getLogger(__name__)

TRANSIENT_TRIES = 4


class Unchanged:
    """The last answers of tools with a fingerprint, each kept `SECONDS` at most. Shared by the call threads.

    Callers that want the same answer at once wait for the first of them to make it.
    """

    SECONDS = 5.0
    AT_MOST = 64

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, tuple[float, dict[str, Any]]] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The kept answer, else what `make` gives."""
        known = self._kept(key)
        if known is not None:
            return known
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            known = self._kept(key)
            if known is None:
                try:
                    known = make()
                    self._keep(key, known)
                finally:
                    self._making.pop(key, None)
        return known

    def _kept(self, key: Hashable) -> dict[str, Any] | None:
        until, answer = self._answers.get(key, (0.0, None))
        return answer if until > time.monotonic() else None

    def _keep(self, key: Hashable, answer: dict[str, Any]) -> None:
        with self._lock:
            self._answers[key] = (time.monotonic() + self.SECONDS, answer)
            self._answers.move_to_end(key)
            while len(self._answers) > self.AT_MOST:
                self._answers.popitem(last=False)

    def forget(self) -> None:
        with self._lock:
            self._answers.clear()


unchanged = Unchanged()


@dataclass(slots=True)
class _Call:
    """One call on its way through the pipeline."""

    caller: Caller
    name: str
    arguments: dict[str, Any]
    started: float
    wished_key: object = None
    idempotency_key: str | None = None
    tool: Tool | None = None
    unread: int = 0
    replayed: bool = False
    recorded: bool = False
    wire: dict[str, Any] | None = None

    def outcome(self, value: dict[str, Any] | None, error: DevFlowError | None) -> Outcome:
        return Outcome(
            name=self.tool.name if self.tool else self.name,
            trace_id=self.caller.trace_id,
            duration_ms=(time.perf_counter() - self.started) * 1000,
            tool=self.tool,
            value=value,
            error=error,
            unread=self.unread,
            replayed=self.replayed,
            notes=self.caller.notes(),
            agent=self.caller.known_agent,
            wire=self.wire,
            facts=self.caller.facts,
            dialect=known.dialect if (known := self.tool or registry.find(self.name)) else "mcp",
        )


async def call(
    name: str,
    arguments: Mapping[str, Any] | None,
    caller: Caller,
    *,
    idempotency_key: object = None,
    prepaid: bool = False,
) -> Outcome:
    """Run one tool for a caller. Never raises for a failed call: the outcome carries the error.

    `prepaid` calls (a batch's) were already charged to the rate limit. Cancelling this coroutine cancels the call:
    a write that has not committed is rolled back.
    """
    caller = caller.for_one_call()
    at_work = _Call(caller, str(name), {}, time.perf_counter(), idempotency_key)
    value: dict[str, Any] | None = None
    error: DevFlowError | None = None
    try:
        if not prepaid:
            await ratelimit.spend(caller)
        value = await _checked(at_work, {} if arguments is None else arguments)
        if at_work.tool is not None and at_work.tool.dialect == "taiga":
            caller.facts[NEARLY_SPENT] = await ratelimit.nearly_spent(caller)
    except DevFlowError as exc:
        error = exc
        if at_work.tool is not None and at_work.tool.backend:
            at_work.wire = getattr(exc, "wire", None)  # a backend's failure goes out as it came
    except asyncio.CancelledError:
        caller.cancelled.set()
        _note(at_work, at_work.outcome(None, DevFlowError(ErrorCode.TIMEOUT, "The client gave this call up.")))
        raise
    except Exception:
        logger.exception("a tool failed", extra={"tool": at_work.name, "trace_id": caller.trace_id})
        error = DevFlowError(ErrorCode.INTERNAL, f"Something went wrong on the server (trace {caller.trace_id}).")
    outcome = at_work.outcome(value, error)
    await _keep(at_work, outcome)
    return outcome


async def _keep(at_work: _Call, outcome: Outcome) -> None:
    """Record and count a call. What changed something outside is in the log before its caller hears of it."""
    tool = at_work.tool
    if tool is not None and at_work.caller.facts.get("is_change") and not at_work.recorded:
        try:
            await run_blocking(recorder.write_now, outcome, at_work.caller, at_work.arguments)
            at_work.recorded = True
        except DatabaseError:
            logger.exception("a change was not recorded at once", extra={"trace_id": at_work.caller.trace_id})
    _note(at_work, outcome)


def _note(at_work: _Call, outcome: Outcome) -> None:
    """Record and count a call, unless it was recorded with what it wrote."""
    if not at_work.recorded:
        recorder.buffer(outcome, at_work.caller, at_work.arguments)
    named = at_work.caller.facts.get("action") or (outcome.tool.name if outcome.tool else "unknown")
    logger.debug(
        "[MCP] %s %s %dms",
        named,
        "success" if outcome.error is None else "failure",
        outcome.duration_ms,
        extra={"trace_id": outcome.trace_id},
    )
    metrics.observe(named, outcome.code, outcome.duration_ms / 1000)


async def _checked(at_work: _Call, arguments: object) -> dict[str, Any]:
    caller = at_work.caller
    given = payload.bounded(arguments)
    if at_work.name == CALL_TOOL and registry.find(CALL_TOOL) is not None:
        at_work.name, given = _unwrapped(given)
    if registry.find(at_work.name) is None:
        await registry.refresh()  # it may be a tool that was added a moment ago
    tool = registry.resolve(at_work.name, caller)
    at_work.tool, at_work.arguments = tool, given
    if not caller.allows(tool.needs):
        raise forbidden(
            f"This key may not call {tool.name}: it needs the scope `{SCOPE_FOR[tool.needs]}`.",
            suggestion="Ask for a key with that scope, or leave the change to somebody who has one.",
        )
    values = tool.validate(given)
    if at_work.wished_key is not None:
        at_work.idempotency_key = answers.checked_key(at_work.wished_key)
    try:
        async with asyncio.timeout(tool.deadline):
            if remote.serves(tool):
                return await remote.run(tool, caller, given, idempotency_key=at_work.idempotency_key)
            if tool.is_async:
                return await _awaited(at_work, tool, values)
            if tool.outside is not None and await run_blocking(_waits_outside, tool.outside, caller, values):
                return await run_outside(_run_outside, at_work, tool, values)
            return await run_blocking(_run_blocking, at_work, tool, values)
    except TimeoutError:
        caller.cancelled.set()
        raise DevFlowError(
            ErrorCode.TIMEOUT, f"{tool.name} did not finish within {tool.deadline:g} s and was stopped."
        ) from None


def _unwrapped(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The call inside `call_tool`: it is limited, checked and recorded as itself."""
    inner, arguments = given.get("name"), given.get("arguments", {})
    unknown = given.keys() - {"name", "arguments"}
    if not isinstance(inner, str) or not isinstance(arguments, dict) or unknown:
        raise invalid(
            "call_tool takes `name` (text) and `arguments` (an object).",
            **dict.fromkeys(sorted(unknown), "unknown argument"),
        )
    if inner == CALL_TOOL:
        raise invalid("call_tool cannot call itself.", name="another tool's name")
    return inner, arguments


async def _awaited(at_work: _Call, tool: Tool, values: dict[str, Any]) -> dict[str, Any]:
    """Run an async tool. With an idempotency key its answer is kept, and a repeat is given that answer.

    What it does outside cannot be rolled back, so a repeat that finds the first call unfinished is refused.
    """
    caller, key = at_work.caller, at_work.idempotency_key
    if key is None or tool.effect is Effect.READ_ONLY:
        return _answer_of(at_work, tool, await tool.run(caller, **values))
    fingerprint = answers.fingerprint(tool.name, at_work.arguments, caller)
    kept = await run_blocking(answers.reserve_alone, caller.scope.key_id, key, fingerprint)
    if kept is not None:
        at_work.replayed, at_work.wire = True, kept.get("wire")
        value: dict[str, Any] = kept["value"]
        return value
    caller.facts["is_kept"] = True
    try:
        value = _answer_of(at_work, tool, await tool.run(caller, **values))
    except DevFlowError as exc:
        if not caller.facts.get("is_sent"):
            await run_blocking(answers.release, caller.scope.key_id, key)
        elif exc.code not in (ErrorCode.TIMEOUT, ErrorCode.UNAVAILABLE):  # otherwise nobody knows what it did
            await run_blocking(answers.store_failure, caller.scope.key_id, key, exc)
        raise
    await run_blocking(answers.store, caller.scope.key_id, key, {"value": value, "wire": at_work.wire})
    return value


def _answer_of(at_work: _Call, tool: Tool, result: Any) -> dict[str, Any]:
    if isinstance(result, WireResult):
        at_work.wire = result.wire
        return result.value
    return tool.published(result)


def _run_blocking(at_work: _Call, tool: Tool, values: dict[str, Any]) -> dict[str, Any]:
    """Run a sync tool on a worker thread, again after transient database faults as long as nothing was committed."""
    tries = 0
    while True:
        tries += 1
        try:
            if tool.effect is Effect.READ_ONLY:
                return _read(at_work, tool, values)
            return _finished(at_work, tool, _write(at_work, tool, values))
        except (OperationalError, InterfaceError) as exc:
            connection.close()
            repeatable = _may_repeat(at_work, tool)
            at_work.recorded = False
            if tries >= TRANSIENT_TRIES or not repeatable:
                raise DevFlowError(ErrorCode.UNAVAILABLE, "The database is busy or away.", retry_after_ms=1000) from exc
            at_work.caller.check_cancelled()
            at_work.caller.__dict__.pop("agent", None)  # it may have been registered in what was rolled back
            time.sleep(0.02 * 2**tries)


def _waits_outside(
    outside: Callable[[Caller, Mapping[str, Any]], bool], caller: Caller, values: Mapping[str, Any]
) -> bool:
    try:
        return outside(caller, values)
    except (OperationalError, InterfaceError) as exc:
        connection.close()
        raise DevFlowError(ErrorCode.UNAVAILABLE, "The database is busy or away.", retry_after_ms=1000) from exc


def _run_outside(at_work: _Call, tool: Tool, values: dict[str, Any]) -> dict[str, Any]:
    """Run a sync tool whose work is another server's: its database work commits piece by piece, as it goes."""
    caller, key = at_work.caller, at_work.idempotency_key
    is_write = tool.effect is not Effect.READ_ONLY
    if is_write and key is not None:
        fingerprint = answers.fingerprint(tool.name, at_work.arguments, caller)
        kept = answers.reserve_alone(caller.scope.key_id, key, fingerprint)
        if kept is not None:
            at_work.replayed = True
            earlier: dict[str, Any] = kept["value"]
            return earlier
    caller.facts["is_change"] = is_write
    try:
        value = tool.published(tool.run(caller, **values))
    except DevFlowError as exc:
        if is_write and key is not None and "written" not in exc.details:  # else nobody knows whether it was
            answers.release(caller.scope.key_id, key)
        raise
    if is_write and key is not None:
        answers.store(caller.scope.key_id, key, {"value": value})
    _look_for_mail(at_work)
    return value


def _may_repeat(at_work: _Call, tool: Tool) -> bool:
    """A write whose COMMIT failed may have happened: only reads, and calls with an idempotency key, go again."""
    return tool.effect is Effect.READ_ONLY or at_work.idempotency_key is not None or not at_work.recorded


def _read(at_work: _Call, tool: Tool, values: dict[str, Any]) -> dict[str, Any]:
    caller = at_work.caller
    if tool.fingerprint is None:
        value = tool.published(tool.run(caller, **values))
    else:
        # Taken before the read: a change in between makes the answer newer than its fingerprint, never older.
        key = (tool.name, json.dumps(at_work.arguments, sort_keys=True), tool.fingerprint(caller))
        value = unchanged.get(key, lambda: tool.published(tool.run(caller, **values)))
    _look_for_mail(at_work)
    return value


def _write(at_work: _Call, tool: Tool, values: dict[str, Any]) -> dict[str, Any]:
    caller, key = at_work.caller, at_work.idempotency_key
    at_work.recorded = False
    with transaction.atomic():
        if key is not None:
            fingerprint = answers.fingerprint(tool.name, at_work.arguments, caller)
            earlier = answers.reserve(caller.scope.key_id, key, fingerprint)
            if earlier is not None and earlier.answer is not None:
                at_work.replayed = True
                answer: dict[str, Any] = earlier.answer
                return answer
        value = tool.published(tool.run(caller, **values))
        if key is not None:
            answers.store(caller.scope.key_id, key, value)
        _look_for_mail(at_work)
        recorder.write_now(at_work.outcome(value, None), caller, at_work.arguments)
        caller.check_cancelled()
        at_work.recorded = True  # from here on a fault may come after the commit
    return value


def _finished(at_work: _Call, tool: Tool, value: dict[str, Any]) -> dict[str, Any]:
    if tool.finish is None:
        return value
    try:
        return tool.published(tool.finish(at_work.caller, tool.output.validate_python(value)))
    except Exception:  # the write is committed: whatever happens now, the caller must hear that
        logger.exception(
            "an answer went out unfinished", extra={"tool": tool.name, "trace_id": at_work.caller.trace_id}
        )
        return value


def _look_for_mail(at_work: _Call) -> None:
    """Every call is a contact: it registers the agent, whose heartbeat the recorder then passes on."""
    caller = at_work.caller
    if at_work.tool is not None and at_work.tool.needs_project and caller.agent.id:
        at_work.unread = ports.directory().unread(caller.agent.id)
