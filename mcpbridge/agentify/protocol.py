"""The document's JSON-RPC methods: what they take, what they answer, which code each failure has. No transport.

A `Session` is one client from its `initialize` to its `shutdown`. Calls go through the dispatcher like any other, as
the tool `orchestrate_task`, so that limits, scopes and the log hold.
"""

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode
from mcpbridge import audit, dispatcher, keys
from mcpbridge.agentify import realms
from mcpbridge.agentify.llm import ModelFaultError, without_keys
from mcpbridge.agentify.realms import Realm
from mcpbridge.agentify.tasks import NoActionError
from mcpbridge.envelopes import Outcome
from mcpbridge.gateway import large
from mcpbridge.gateway.calling import caller_key
from mcpbridge.gateway.catalog import catalog
from mcpbridge.gateway.sessions import pool
from mcpbridge.gateway.specs import BackendSpec
from mcpbridge.models.gateway import BACKEND_ID
from mcpbridge.payload import bounded
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Caller, Effect

INITIALIZE, SHUTDOWN, EXIT = "initialize", "shutdown", "exit"
ORCHESTRATE, CONFIRM = "agentify/orchestrateTask", "agentify/confirmPlan"

INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32600, -32601, -32602, -32603
NO_ACTION, NOT_INITIALIZED, NO_OPTIONS, MODEL_FAILED, PLAN_FAILED = -32000, -32001, -32002, -32003, -32004

MAX_BACKENDS = 50


class RpcError(Exception):
    """A failure as JSON-RPC says it."""

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = dict(data or {})

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, **({"data": self.data} if self.data else {})}


_Text = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
_Any = Annotated[str, Field(max_length=32_768, pattern=r"^[^\x00]*$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class BackendOptions(_Part):
    id: Annotated[str, Field(pattern=BACKEND_ID)]
    displayName: Annotated[str, Field(max_length=100)] | None = None  # noqa: N815  # the document's name
    type: Literal["stdio"]
    command: _Text
    args: Annotated[list[_Any], Field(max_length=200)] = Field(default_factory=list)
    env: Annotated[dict[_Text, _Any], Field(max_length=200)] = Field(default_factory=dict)

    def spec(self, allowed_roots: tuple[str, ...]) -> BackendSpec:
        return BackendSpec(
            id=self.id,
            transport="stdio",
            display_name=self.displayName or "",
            command=self.command,
            args=tuple(self.args),
            env=dict(self.env),
            allowed_roots=allowed_roots,
            status="up",
        )


class Options(_Part):
    """`initializationOptions`. The names are the document's."""

    OPENAI_API_KEY: Annotated[str, Field(max_length=1000, pattern=r"^[!-~]+$")] | None = Field(None, repr=False)
    backends: Annotated[list[BackendOptions], Field(max_length=MAX_BACKENDS)] = Field(default_factory=list)
    logLevel: Literal["trace", "debug", "info", "warn", "error", "fatal", "silent"] | None = None  # noqa: N815  # its name
    DEBUG_PORT: Annotated[int, Field(ge=0, le=65_535)] | None = None


class _Initialize(BaseModel):
    """Of LSP's `InitializeParams` we read this alone."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    initializationOptions: Options | None = None  # noqa: N815  # LSP's name


class _Context(_Part):
    activeDocumentURI: Annotated[str, Field(max_length=4096)] | None = None  # noqa: N815  # the document's name
    currentWorkingDirectory: Annotated[str, Field(max_length=4096)] | None = None  # noqa: N815  # the document's name
    selectionText: Annotated[str, Field(max_length=100_000)] | None = None  # noqa: N815  # the document's name


class _Task(_Part):
    query: Annotated[str, Field(min_length=1, max_length=100_000, pattern=r"\S")]
    context: _Context | None = None
    allow_effects: Annotated[list[Annotated[Effect, Field(strict=False)]], Field(max_length=3)] | None = None


class _Confirmation(_Part):
    plan_id: Annotated[str, Field(min_length=1, max_length=64)]
    signature: Annotated[str, Field(max_length=64)] = ""


_OF_LSP = ("_meta", "workDoneToken", "partialResultToken")
"""What clients add to any request's parameters."""

_TASK, _CONFIRMATION, _INITIALIZE = TypeAdapter(_Task), TypeAdapter(_Confirmation), TypeAdapter(_Initialize)


def _read(reader: "TypeAdapter[Any]", params: object) -> Any:
    """Raises `RpcError` -32602 naming each parameter that is refused; values are never repeated."""
    try:
        given = bounded({} if params is None else params)
        return reader.validate_python({name: item for name, item in given.items() if name not in _OF_LSP})
    except DevFlowError as exc:
        raise RpcError(INVALID_PARAMS, exc.message, {"details": dict(exc.details)}) from None
    except ValidationError as exc:
        reasons: dict[str, str] = {}
        for error in exc.errors(include_url=False, include_input=False, include_context=False):
            where = ".".join(str(part) for part in error["loc"])[:200] or "params"
            words = {"extra_forbidden": "unknown", "missing": "is required"}
            reasons.setdefault(where, words.get(error["type"], error["msg"]))
        first, reason = next(iter(reasons.items()))
        raise RpcError(INVALID_PARAMS, f"{first}: {reason}", {"details": reasons}) from None


def options_in(params: object) -> Options:
    """The options of an `initialize`, empty ones where it has none. Raises `RpcError` -32602."""
    options: Options = _read(_INITIALIZE, params).initializationOptions or Options()
    if len({item.id for item in options.backends}) < len(options.backends):
        raise RpcError(
            INVALID_PARAMS,
            "initializationOptions.backends: two backends have the same id.",
            {"details": {"initializationOptions.backends": "ids are unique"}},
        )
    return options


Heard = Callable[[Outcome], None]


class Session:
    """One client. `is_of_this_machine`: its user administers the machine anyway. `heard` is told how calls end."""

    def __init__(self, *, is_of_this_machine: bool = False, heard: Heard | None = None) -> None:
        self._is_of_this_machine = is_of_this_machine
        self._heard = heard
        self._caller: Caller | None = None
        self.realm = Realm()
        self.is_open = False

    async def initialize(self, params: object, caller: Caller, *, fallback_key: str = "") -> Options:
        """Open the session and begin to start its backends. Raises `RpcError`."""
        if self.is_open:
            raise RpcError(INVALID_REQUEST, "initialize was sent before; it opens a session once.")
        options, started = options_in(params), time.perf_counter()
        brought, error = options.backends, None
        may_bring = self._is_of_this_machine or not brought
        if not (may_bring or await run_blocking(keys.administers, caller.scope, caller.scopes)):
            error = DevFlowError(ErrorCode.FORBIDDEN, "Backends, which are commands, come from administrators only.")
        if brought:
            told = {"backends": [{"id": item.id, "command": item.command} for item in brought]}
            audit.note("agentify/initialize", caller, started=started, arguments=told, error=error)
        if error is not None:
            reasons = {"initializationOptions.backends": "needs a key with the scope admin, bound to no project"}
            raise RpcError(INVALID_PARAMS, f"initializationOptions.backends: {error.message}", {"details": reasons})
        roots = ("/",) if self._is_of_this_machine else ()
        specs = {item.id: item.spec(roots) for item in brought}
        self.realm = Realm(specs, openai_key=options.OPENAI_API_KEY or fallback_key)
        self.realm.discover()
        self._caller, self.is_open = caller, True
        return options

    async def orchestrate(self, params: object, caller: Caller) -> dict[str, Any]:
        """`agentify/orchestrateTask`: the backend's own result. Raises `RpcError`."""
        task: _Task = await self._ready_for(_TASK, params)
        arguments = task.model_dump(mode="json", exclude_none=True)
        self._caller = caller
        return await answered("orchestrate_task", arguments, caller, self.realm, self._heard)

    async def confirm(self, params: object, caller: Caller) -> dict[str, Any]:
        """`agentify/confirmPlan`, a method of ours: the same for a plan. Raises `RpcError`."""
        confirmation: _Confirmation = await self._ready_for(_CONFIRMATION, params)
        self._caller = caller
        return await answered("confirm_plan", confirmation.model_dump(), caller, self.realm, self._heard)

    async def _ready_for(self, reader: "TypeAdapter[Any]", params: object) -> Any:
        if not self.is_open:
            raise RpcError(NOT_INITIALIZED, "The gateway is not initialized: send initialize first.")
        given = _read(reader, params)
        if not self.realm.specs and not (await catalog.current()).backends:
            raise _no_options()
        return given

    async def close(self) -> None:
        """End the session and its backends. May be called again."""
        self.is_open = False
        await self.realm.close()
        if self._caller is not None:
            pool.forget_caller(caller_key(self._caller))


async def orchestrate_stateless(params: object, caller: Caller) -> dict[str, Any]:
    """`agentify/orchestrateTask` where nothing is kept between requests: with the server's configuration."""
    task: _Task = _read(_TASK, params)
    if not (await catalog.current()).backends:
        raise _no_options()
    return await answered("orchestrate_task", task.model_dump(mode="json", exclude_none=True), caller, Realm())


def _no_options() -> RpcError:
    return RpcError(
        NO_OPTIONS,
        "There is no backend to give the task to: initializationOptions.backends brought none, and none is registered.",
        {"suggestion": "Send initializationOptions with backends, or register one with `devflow backend add`."},
    )


async def answered(
    tool: str, arguments: dict[str, Any], caller: Caller, realm: Realm, heard: Heard | None = None
) -> dict[str, Any]:
    """Call a tool of the orchestrator and give the backend's result, or raise the document's error."""
    token = realms.here.set(realm)
    try:
        outcome = await dispatcher.call(tool, arguments, caller)
    finally:
        realms.here.reset(token)
    if heard is not None:
        heard(outcome)
    if outcome.error is not None:
        raise _failure(outcome.error, outcome, realm)
    if (plan := outcome.facts.get("plan")) is not None:
        raise RpcError(
            PLAN_FAILED,
            f"This would have the effect {plan['effect']}; confirm the plan, or name it in allow_effects.",
            {"plan": plan, "traceId": outcome.trace_id, "orchestration": _meta_of(outcome).get("orchestration")},
        )
    wire = outcome.facts.get("wire") or _as_wire((outcome.value or {}).get("result", {}).get("data", {}))
    wire = await large.fitting(caller, dict(wire), has_schema=False)
    ours = {"devflow/traceId": outcome.trace_id, "devflow/gateway": _meta_of(outcome)}
    return {**wire, "_meta": {**(wire.get("_meta") or {}), **ours}}


def _as_wire(data: Mapping[str, Any]) -> dict[str, Any]:
    """The result of one of our own tools as an MCP result."""
    return {"content": [{"type": "text", "text": to_json(data).decode()}], "structuredContent": dict(data)}


def _meta_of(outcome: Outcome) -> dict[str, Any]:
    return dict((outcome.value or {}).get("meta", {}))


def _failure(error: DevFlowError, outcome: Outcome, realm: Realm) -> RpcError:
    data: dict[str, Any] = {"code": error.code.value, "suggestion": error.suggestion, "traceId": outcome.trace_id}
    if error.retry_after_ms is not None:
        data["retryAfterMs"] = error.retry_after_ms
    if isinstance(error, NoActionError):
        data |= error.data | ({"unavailable": dict(realm.problems)} if realm.problems else {})
        return RpcError(NO_ACTION, error.message, data)
    if isinstance(error, ModelFaultError):
        return RpcError(MODEL_FAILED, error.message, data | dict(error.details))
    if error.details:
        data["details"] = dict(error.details)
    if error.code is ErrorCode.INTERNAL:
        return RpcError(INTERNAL_ERROR, error.message, data)
    if chosen := outcome.facts.get("chosen"):
        return RpcError(PLAN_FAILED, without_keys(error.message, realm.openai_key), data | {"action": chosen})
    if outcome.name == "confirm_plan" and error.code is not ErrorCode.NOT_FOUND:
        return RpcError(PLAN_FAILED, error.message, data)
    if ERROR_TABLE[error.code].jsonrpc == INVALID_PARAMS:
        return RpcError(INVALID_PARAMS, error.message, data)
    return RpcError(MODEL_FAILED, error.message, data)
