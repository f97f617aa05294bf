"""The two-layer request of the gateway protocol: its schema, and what models get wrong about it.

A half-right envelope is unwrapped where it can mean one thing only; everything else is refused with a corrected call.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.gateway.policy import DEFAULT_EFFECT, MAX_RETRIES, MAX_TIMEOUT_MS
from mcpbridge.tooling import Effect, Intent

Artifact = Literal["TEXT", "JSON", "CODE_PY", "CODE_TS", "PATCH", "BINARY"]
IsolationName = Literal["agent", "subprocess"]

MAX_ACTION = 200
MAX_PATH = 4096

_TEXT = r"^[^\x00]*$"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Constraints(_Part):
    timeout_ms: Annotated[int, Field(strict=True, ge=1, le=MAX_TIMEOUT_MS)] | None = Field(
        None, description="Milliseconds the whole request may take; default by intent."
    )
    retry_count: Annotated[int, Field(strict=True, ge=0, le=MAX_RETRIES)] = Field(
        0, description="Further tries after a fault; reads only, or with an idempotency key."
    )
    isolation: IsolationName | None = Field(
        None, description="`agent`: an open session; `subprocess`: a fresh process. Default: the backend's."
    )


class Context(_Part):
    caller: Annotated[str, Field(max_length=200, pattern=_TEXT)] | None = Field(
        None, description="A label for the log; never an identity."
    )
    project_root: Annotated[str, Field(min_length=1, max_length=MAX_PATH, pattern=_TEXT)] | None = Field(
        None, description="Directory on the server the action works in, inside the allowed roots."
    )


class GatewayRequest(_Part):
    """What to do, on which backend, within which bounds."""

    intent: Intent = Field(description="What it is for; never weaker than what the action does.")
    action: Annotated[str, Field(min_length=1, max_length=MAX_ACTION, pattern=_TEXT)] = Field(
        description="`backend.action`, or `action` where one backend has it; list_gateway_actions shows them."
    )
    effect: Effect | None = Field(None, description="What it may change; default: the intent's.")
    artifact: Artifact | None = Field(None, description="The form the result must have; default: the action's.")
    params: dict[str, Any] = Field(default_factory=dict, description="The action's own parameters.")
    constraints: Constraints = Constraints()
    context: Context = Context()

    @property
    def declared_effect(self) -> Effect:
        return self.effect or DEFAULT_EFFECT[self.intent]

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_defaults=True)


_FIELDS = frozenset(GatewayRequest.model_fields)
_WRAPPERS = frozenset({"request", "arguments", "args", "input", "params", "payload"})
_OTHER_NAMES = {
    "action": ("tool_name", "tool", "name", "action_name"),
    "params": ("arguments", "args", "input", "parameters"),
}
_OBJECTS = ("params", "constraints", "context")
EXAMPLE = {"intent": "QUERY", "action": "backend.action", "params": {}}


def parse(body: Any) -> GatewayRequest:
    """The request in what a caller sent. Raises `invalid_input` with a corrected call as suggestion."""
    if not isinstance(body, Mapping):
        raise _refused({"body": "must be an object"}, EXAMPLE)
    given = _unwrapped(dict(body))
    try:
        return GatewayRequest.model_validate(given)
    except ValidationError as exc:
        reasons: dict[str, str] = {}
        for error in exc.errors(include_url=False, include_input=False):
            where = ".".join(str(part) for part in error["loc"]) or "request"
            reasons.setdefault(where, _WORDS.get(error["type"], error["msg"]))
        raise _refused(reasons, _corrected(given, reasons)) from None


_WORDS = {"extra_forbidden": "unknown field", "missing": "is required"}


def _unwrapped(given: dict[str, Any]) -> dict[str, Any]:
    for _ in range(3):  # an envelope inside an envelope, as long as there is nothing beside it
        if len(given) == 1 and (name := next(iter(given))) in _WRAPPERS:
            inner = _object_in(given[name])
            if inner is not None and (_names_an_action(inner) or (len(inner) == 1 and inner.keys() <= _WRAPPERS)):
                given = inner
                continue
        break
    for right, others in _OTHER_NAMES.items():
        used = [other for other in others if other in given]
        if right not in given and len(used) == 1:
            given[right] = given.pop(used[0])
    for name in _OBJECTS:
        if isinstance(given.get(name), str) and (inner := _object_in(given[name])) is not None:
            given[name] = inner
        elif given.get(name, ...) is None:
            del given[name]
    for name in ("intent", "effect", "artifact"):
        if isinstance(given.get(name), str):
            given[name] = given[name].strip().upper()
        elif given.get(name, ...) is None and name != "intent":
            del given[name]
    return given


def _names_an_action(given: Mapping[str, Any]) -> bool:
    return any(name in given for name in ("action", *_OTHER_NAMES["action"]))


def _object_in(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return dict(value) if isinstance(value, Mapping) else None


def unnested(params: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters a model wrapped once more (`{"params": {...}}`), where the action has no parameter of that name."""
    properties = schema.get("properties") or {}
    if len(params) == 1 and (name := next(iter(params))) in ("params", "arguments", "args") and name not in properties:
        inner = _object_in(params[name])
        if inner is not None:
            return inner
    return params


def _corrected(given: Mapping[str, Any], reasons: Mapping[str, str]) -> dict[str, Any]:
    """The call without what was refused, and with what is missing."""
    kept = {name: given[name] for name in given if name in _FIELDS}
    for where in reasons:
        name, _, inner = where.partition(".")
        if inner and isinstance(kept.get(name), Mapping):
            kept[name] = {key: value for key, value in kept[name].items() if key != inner.split(".")[0]}
        else:
            kept.pop(name, None)
    fitting = {name: value for name, value in kept.items() if value != {}}
    return {"intent": "QUERY", "action": "backend.action", **fitting}


def _refused(reasons: dict[str, str], corrected: Mapping[str, Any]) -> DevFlowError:
    first, reason = next(iter(reasons.items()))
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return DevFlowError(
        ErrorCode.INVALID_INPUT, f"{first}: {reason}{more}", details=reasons, suggestion=corrected_call(corrected)
    )


def corrected_call(request: Mapping[str, Any]) -> str:
    text = json.dumps(request, ensure_ascii=False)
    return f"Send for instance: {text if len(text) <= 2000 else text[:2000] + '…'}"
