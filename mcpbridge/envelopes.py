"""One outcome, four shapes: the only place where an answer is given the form a client sees."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode, taiga_error
from devflow.ports import AgentRef
from mcpbridge.tooling import Effect, Nothing, Tool

NEARLY_SPENT = "nearly_spent_ms"
"""The fact of a call that few more are allowed now: milliseconds until the next one is given back."""

NOTHING = Nothing.model_fields.keys()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one call ended. `value` is JSON-ready and None exactly when `error` is set.

    `name` is what was asked for, also where no such tool exists; `duration_ms` is the whole pipeline's. `agent` is
    set where the call got so far as to know its agent.
    """

    name: str
    trace_id: str
    duration_ms: float
    tool: Tool | None = None
    value: dict[str, Any] | None = None
    error: DevFlowError | None = None
    unread: int = 0
    replayed: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)
    agent: AgentRef | None = None
    wire: dict[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    dialect: str = "mcp"

    @property
    def code(self) -> str:
        return "ok" if self.error is None else self.error.code.value

    @property
    def is_nothing(self) -> bool:
        """Whether the tool had nothing to give (the PRD's None)."""
        return self.value is not None and self.value.keys() == NOTHING and self.value["task"] is None


def as_mcp(outcome: Outcome) -> dict[str, Any]:
    """A `CallToolResult` in wire form: structured content and the same JSON as text; failures set `isError`.

    A mapping, because the SDK validates and shapes results itself: building its model first would do that twice.
    """
    meta: dict[str, Any] = {"devflow/traceId": outcome.trace_id, **outcome.notes}
    if outcome.unread:
        meta["devflow/unread"] = outcome.unread
    if outcome.replayed:
        meta["devflow/replayed"] = True
    if outcome.wire is not None:
        return {**outcome.wire, "resultType": "complete", "_meta": {**outcome.wire.get("_meta", {}), **meta}}
    error = outcome.error
    if (own := own_envelope(outcome)) is not None:
        content: dict[str, Any] = own
    elif error is None:
        content = outcome.value or {}
    else:
        content = {"code": error.code.value, "message": error.message, "suggestion": error.suggestion}
        if error.details:
            content["details"] = dict(error.details)
        if error.retry_after_ms is not None:
            content["retryAfterMs"] = error.retry_after_ms
        content["traceId"] = outcome.trace_id
    return {
        "content": [{"type": "text", "text": to_json(content).decode()}],
        "structuredContent": content,
        "isError": error is not None,
        "resultType": "complete",
        "_meta": meta,
    }


def error_detail(error: DevFlowError, trace_id: str) -> dict[str, Any]:
    """The `detail` of a failed REST answer."""
    return {
        "code": error.code.value,
        "message": error.message,
        "suggestion": error.suggestion,
        "details": dict(error.details),
        "retry_after_ms": error.retry_after_ms,
        "trace_id": trace_id,
    }


def as_rest(outcome: Outcome, request_id: str | None) -> tuple[int, dict[str, Any]]:
    """HTTP status and body `{request_id, result, error}` (+ `detail`)."""
    if outcome.error is not None:
        status = ERROR_TABLE[outcome.error.code].http
        return status, {
            "request_id": request_id,
            "result": own_envelope(outcome),
            "error": outcome.error.message,
            "detail": error_detail(outcome.error, outcome.trace_id),
        }
    own = own_envelope(outcome)
    body: dict[str, Any] = {"request_id": request_id, "result": own or outcome.value, "error": None}
    if outcome.is_nothing and outcome.value is not None:
        body["result"] = None
        body["detail"] = {"reason": outcome.value["reason"], "advice": outcome.value["advice"]}
    if outcome.unread:
        body["unread"] = outcome.unread
    return 200, body


def own_envelope(outcome: Outcome) -> dict[str, Any] | None:
    """What tools with a dialect of their own answer on every door, else None."""
    if outcome.dialect == "gateway":
        return gateway_envelope(outcome)
    return as_taiga(outcome) if outcome.dialect == "taiga" else None


def gateway_envelope(outcome: Outcome) -> dict[str, Any]:
    """The answer of a tool whose value is the gateway's success envelope already."""
    if outcome.error is None:
        return outcome.value or {}
    return gateway_failure(outcome.error, outcome.facts.get("effect", Effect.READ_ONLY), outcome.trace_id)


def gateway_failure(error: DevFlowError, effect: str, trace_id: str = "") -> dict[str, Any]:
    """`{ok: false, error}`; `effect` of the call decides whether a timeout may be tried again."""
    row = ERROR_TABLE[error.code]
    shape: dict[str, Any] = {
        "type": row.gateway,
        "code": error.code.value,
        "message": error.message,
        "recoverable": row.recoverable and not (error.code is ErrorCode.TIMEOUT and effect != Effect.READ_ONLY),
        "suggestion": error.suggestion,
    }
    if error.details:
        shape["details"] = dict(error.details)
    if error.retry_after_ms is not None:
        shape["retry_after_ms"] = error.retry_after_ms
    if trace_id:
        shape["trace_id"] = trace_id
    return {"ok": False, "error": shape}


def as_gateway(
    outcome: Outcome, *, intent: str, action: str, effect: str, mcp_name: str = "devflow", isolation: str = "agent"
) -> dict[str, Any]:
    """The envelope of the gateway protocol for a tool of ours; `intent`, `action` and `effect` echo the request."""
    if outcome.error is not None:
        return gateway_failure(outcome.error, effect)
    return {
        "ok": True,
        "request": {"intent": intent, "action": action, "effect": effect},
        "result": {
            "artifact_type": outcome.tool.artifact if outcome.tool else "JSON",
            "data": outcome.value or {},
            "affected_files": [],
            "affected_symbols": [],
        },
        "meta": {"duration_ms": round(outcome.duration_ms, 3), "mcp_name": mcp_name, "isolation_used": isolation},
    }


def as_taiga(outcome: Outcome) -> dict[str, Any]:
    """The envelope of the Taiga document: `{ok, data}` or `{ok, error}`; near the limit with `_rateLimit`."""
    if outcome.error is None:
        near = outcome.facts.get(NEARLY_SPENT)
        return {"ok": True, "data": outcome.value} | ({"_rateLimit": {"retryAfterMs": near}} if near else {})
    return {"ok": False, "error": {**taiga_error(outcome.error), "_traceId": str(uuid.UUID(outcome.trace_id))}}
