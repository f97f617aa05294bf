"""The public face of the protocol for the apps: `@tool`, `Tool`, `Caller` and the argument types.

Below: nothing but the kernel. Above: registry, dispatcher and every transport, which derive MCP listings, REST
discovery, OpenAPI, pages and metrics from the `Tool` made here. A tool is written once, as a typed function.
"""

import inspect
import json
import re
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from threading import Event
from typing import Annotated, Any, Literal, TypeVar

from django.utils.functional import cached_property
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
)

from devflow import actors, ports
from devflow.actors import MAX_SESSION, Actor
from devflow.errors import DevFlowError, ErrorCode, forbidden, invalid
from devflow.ports import AgentRef, KeyScope, ProjectRef


class Intent(StrEnum):
    """What an action is for (gateway-protocol-schema)."""

    QUERY = "QUERY"
    ANALYZE = "ANALYZE"
    GENERATE = "GENERATE"
    MODIFY = "MODIFY"
    EXECUTE = "EXECUTE"


class Effect(StrEnum):
    """What an action may change; the scope of a key is compared with it."""

    READ_ONLY = "READ_ONLY"
    MUTATING = "MUTATING"
    EXTERNAL_EXEC = "EXTERNAL_EXEC"


class Scope(StrEnum):
    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    ADMIN = "admin"


STRENGTH: Mapping[Effect, int] = {Effect.READ_ONLY: 0, Effect.MUTATING: 1, Effect.EXTERNAL_EXEC: 2}
"""Effects in order: what may do the later may do the earlier."""

SCOPE_FOR: Mapping[Effect, Scope] = {
    Effect.READ_ONLY: Scope.READ,
    Effect.MUTATING: Scope.WRITE,
    Effect.EXTERNAL_EXEC: Scope.EXECUTE,
}

Toolset = Literal["knowledge", "workflow", "memory", "agents", "taiga", "gateway"]

TOOLSETS: frozenset[str] = frozenset(typing.get_args(Toolset))

MAX_TEXT = 100_000
MAX_LIST = 200
MAX_NAME = 64
MAX_INT = 2**53 - 1

_NO_NUL = r"^[^\x00]*$"

LongText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=_NO_NUL)]
"""Free text an agent or a person wrote: 1 to 100,000 characters."""

OptionalText = Annotated[str, Field(max_length=MAX_TEXT, pattern=_NO_NUL)]
"""Free text that may be empty."""

ShortText = Annotated[str, Field(min_length=1, max_length=255, pattern=_NO_NUL)]
"""A name, an id, a title: 1 to 255 characters."""

Tag = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00,]+$")]
"""One tag: no comma, at most 64 characters."""

Tags = Annotated[list[Tag], Field(max_length=50)]

JsonObject = Annotated[dict[str, Any], Field(max_length=200)]
"""A JSON object; depth and size are bounded for all arguments together."""

Limit = Annotated[int, Field(ge=1, le=MAX_LIST)]
Offset = Annotated[int, Field(ge=0, le=1_000_000)]
PhaseNumber = Annotated[int, Field(ge=1, le=10_000)]
"""A phase's number inside its project (1, 2, 3 ...)."""

_TASK_ID = re.compile(r"^(?:task-)?([1-9][0-9]{0,15})$", re.ASCII)
_TASK_ID_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "pattern": r"^(task-)?[1-9][0-9]{0,15}$"},
        {"type": "integer", "minimum": 1, "maximum": MAX_INT},
    ],
    "examples": ["task-123"],
}


def _task_id(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_INT:
        return f"task-{value}"
    if isinstance(value, str) and (match := _TASK_ID.fullmatch(value)):
        return f"task-{match[1]}"
    raise ValueError("a task id looks like task-123")


TaskId = Annotated[str, BeforeValidator(_task_id), WithJsonSchema(_TASK_ID_SCHEMA)]
"""A task: `task-123`, `"123"` or `123`; the tool always sees `task-123`."""

Priority = Literal["high", "medium", "low"]


class Progress(typing.Protocol):
    def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None: ...


Question = Mapping[str, Any]
"""A request to the client, as MCP has it: `method` and `params`."""


class Asker(typing.Protocol):
    """A client that can be asked while its call runs, `by` a backend. Answers are MCP results, under the keys of their
    questions.

    Raises `MCPError` for the client's own error, `DevFlowError` where it cannot be asked or does not answer.
    """

    async def ask(self, questions: Mapping[str, Question], *, by: str) -> dict[str, dict[str, Any]]: ...


def _no_progress(progress: float, total: float | None = None, message: str | None = None) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Exposed:
    """What part of the tools a key or a URL shows. `toolsets` empty means all of them."""

    toolsets: frozenset[str] = frozenset()
    expose: str = "direct"
    names: str = "dotted"


@dataclass(frozen=True)
class Caller:
    """Who calls, through what: an API key plus an agent, and the context of this one call.

    `agent_name` is what the client calls itself (X-Agent-Id, or its name and session, or the key's default agent);
    `is_named` when it said so itself, `identified` is False when that was only the key's default. `session` separates
    two runs of one agent.
    """

    scope: KeyScope
    key_name: str
    scopes: frozenset[Scope]
    agent_name: str
    identified: bool = True
    is_named: bool = False
    session: str = ""
    client: str = ""
    transport: str = "rest"
    project_slug: str | None = None
    project_root: str | None = None
    """The directory of the server that backends work in, where the call itself names none."""
    rate_per_minute: int | None = None
    toolsets: frozenset[str] = frozenset()
    exposed: Exposed = Exposed()
    trace_id: str = ""
    report: Progress = _no_progress
    features: frozenset[str] = frozenset()
    """What its client says it can be asked (`asking.EVERYTHING`)."""
    asker: Asker | None = field(default=None, repr=False)
    cancelled: Event = field(default_factory=Event, repr=False)
    facts: dict[str, Any] = field(default_factory=dict, repr=False)
    """What a tool or resource notes of this call: `in_scope` (False: a write outside the agent's own task and phase),
    `project_id` (the project it went to, where that is not the caller's). The gateway notes `backend`, `action` (the
    name the call is recorded under), `effect`, `spans` (names and milliseconds of steps), `is_change`, `is_sent`; the
    dispatcher `is_kept` (an idempotency key keeps its answer)."""

    @cached_property
    def project(self) -> ProjectRef:
        """The project of this call (blocks on the database). Raises `invalid_input` when it is ambiguous."""
        return ports.directory().project_of(self.scope, slug=self.project_slug, agent_name=self.agent_name)

    @cached_property
    def agent(self) -> AgentRef:
        """The calling agent in this call's project, registered on first contact (blocks on the database)."""
        return ports.directory().contact(
            self.project.id,
            self.agent_name,
            session=self.session,
            client=self.client,
            transport=self.transport,
        )

    @property
    def known_project(self) -> ProjectRef | None:
        """The project, if this call has asked for it."""
        return self.__dict__.get("project")

    @property
    def known_agent(self) -> AgentRef | None:
        """The agent, if this call has asked for it."""
        return self.__dict__.get("agent")

    @property
    def kept_session(self) -> str:
        return self.session[:MAX_SESSION]

    def writer(self, tool: str) -> Actor:
        """The calling agent as an actor that may write. Raises `forbidden` where the key's owner may only read."""
        if not ports.directory().role_allows(self.scope, self.project.id, write=True):
            raise forbidden(
                f"The owner of this key may only read in the project {self.project.slug}.",
                suggestion="Ask an admin of the project for the role `member`.",
            )
        agent = self.agent
        return actors.agent(agent_id=agent.id, name=agent.name, session=self.kept_session, tool=tool)

    def work_in(self, project: ProjectRef) -> None:
        """Make `project`, which the key sees, the project of this call: its arguments named it."""
        self.__dict__["project"] = project
        self.__dict__.pop("agent", None)

    def allows(self, effect: Effect) -> bool:
        return SCOPE_FOR[effect] in self.scopes or Scope.ADMIN in self.scopes

    def may_use(self, toolset: str) -> bool:
        """Whether the key reaches what belongs to a toolset; a key restricted to none reaches everything."""
        return not self.toolsets or toolset in self.toolsets

    def notes(self) -> dict[str, Any]:
        """What every answer tells this caller about itself."""
        if self.identified or self.transport == "stdio":
            return {}
        return {"devflow/identify": "Send X-Agent-Id (or _meta devflow/agent) so that others can tell you apart."}

    def check_cancelled(self) -> None:
        """Stop long work whose client has gone: raises `timeout` once the call was cancelled or ran out of time."""
        if self.cancelled.is_set():
            raise DevFlowError(ErrorCode.TIMEOUT, "The call was cancelled before it finished.")

    def for_one_call(self) -> "Caller":
        """The same caller, with nothing left over from an earlier call."""
        return replace(self, cancelled=Event(), facts={})

    def with_changes(self, **changes: Any) -> "Caller":
        return replace(self, **changes)


class Result(BaseModel):
    """Base of every tool's result: the published output schema is exact, extra keys are a fault of ours."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class WireResult:
    """An answer that is an MCP result already: a backend's, passed on as it came. `value` is what REST shows of it."""

    wire: dict[str, Any]
    value: dict[str, Any]


class Nothing(Result):
    """Answer of a tool that found nothing to give: REST shows `result: null` with the reason in `detail`."""

    task: None = None
    reason: str = Field(description="A word to branch on, such as none_ready.")
    advice: str = Field("", description="What to do next.")


@dataclass(frozen=True)
class Tool:
    """One action: the function, its schemas, and what policy needs to know of it."""

    name: str
    description: str
    toolset: str
    intent: Intent
    effect: Effect
    artifact: str
    version: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    check: Callable[[Mapping[str, Any]], dict[str, Any]]
    output: TypeAdapter[Any]
    run: Callable[..., Any]
    is_async: bool
    needs_project: bool
    destructive: bool
    idempotent: bool
    deadline: float
    title: str = ""
    hidden: bool = False
    fingerprint: Callable[["Caller"], Hashable] | None = None
    finish: Callable[["Caller", Any], Any] | None = None
    admits: Effect | None = None
    """The weakest effect one call of it can have, where that depends on the arguments: the tool checks the rest."""
    dialect: str = "mcp"
    """`gateway`: its answers and failures are the gateway's envelope on every door."""
    backend: str = ""
    """The backend that runs it, empty for DevFlow's own."""
    outside: Callable[["Caller", Mapping[str, Any]], bool] | None = None
    """Whether a call with these checked arguments waits for another server (it may block): then no transaction is
    held open round it."""
    hints: Mapping[str, Any] | None = None
    """A backend's own annotations, passed on as they are."""

    @property
    def needs(self) -> Effect:
        """The effect a key must allow to call it at all."""
        return self.admits or self.effect

    @cached_property
    def mirrors_headers(self) -> bool:
        """Whether a parameter asks to be repeated in an `Mcp-Param-*` header (2026-07-28)."""
        return "x-mcp-header" in json.dumps(self.input_schema)

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        *,
        intent: Intent,
        effect: Effect,
        toolset: str,
        artifact: str = "JSON",
        name: str | None = None,
        version: str = "1",
        needs_project: bool = True,
        destructive: bool = False,
        idempotent: bool = False,
        deadline: float = 30.0,
        hidden: bool = False,
        fingerprint: Callable[["Caller"], Hashable] | None = None,
        finish: Callable[["Caller", Any], Any] | None = None,
        admits: Effect | None = None,
        dialect: str = "mcp",
        outside: Callable[["Caller", Mapping[str, Any]], bool] | None = None,
    ) -> "Tool":
        """Read a typed function. Raises `TypeError` at import for one that cannot be published exactly."""
        name = name or function.__name__
        if len(name) > MAX_NAME or not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise TypeError(f"{name}: a tool's name has at most {MAX_NAME} of A-Z a-z 0-9 _ . -")
        description, arguments = _read_docstring(function, name)
        hints = typing.get_type_hints(function, include_extras=True)
        returns = hints.pop("return", None)
        if returns is None:
            raise TypeError(f"{name}: the return type is missing; the output schema is made from it")
        fields: dict[str, Any] = {}
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters or parameters[0].name != "caller":
            raise TypeError(f"{name}: the first parameter must be `caller: Caller`")
        for parameter in parameters[1:]:
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                raise TypeError(f"{name}: {parameter.name} must be keyword-only")
            default: Any = ... if parameter.default is inspect.Parameter.empty else parameter.default
            if isinstance(default, tuple):
                default = list(default)
            fields[parameter.name] = (
                hints[parameter.name],
                Field(default, description=arguments.pop(parameter.name, None)),
            )
        if arguments:
            raise TypeError(f"{name}: Args: names {', '.join(sorted(arguments))}, which the function does not take")
        # pydantic's own create_model typing cannot express a mapping of fields
        model: type[BaseModel] = create_model(
            f"{function.__name__}_arguments", __config__=ConfigDict(extra="forbid", strict=True), **fields
        )
        output: TypeAdapter[Any] = TypeAdapter(returns)
        return cls(
            name=name,
            description=description,
            toolset=toolset,
            intent=intent,
            effect=effect,
            artifact=artifact,
            version=version,
            input_schema=_as_object(model.model_json_schema()),
            output_schema=_as_object(output.json_schema(mode="serialization")),
            check=partial(_validated, model),
            output=output,
            run=function,
            is_async=inspect.iscoroutinefunction(function),
            needs_project=needs_project,
            destructive=destructive,
            idempotent=idempotent or effect is Effect.READ_ONLY,
            deadline=deadline,
            title=name.replace("_", " ").replace(".", ": ").capitalize(),
            hidden=hidden,
            fingerprint=fingerprint,
            finish=finish,
            admits=admits,
            dialect=dialect,
            outside=outside,
        )

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check arguments against the published schema; the result maps each parameter to its value.

        Raises `invalid_input` whose details map each refused field to the reason.
        """
        return self.check(arguments)

    def published(self, value: Any) -> dict[str, Any]:
        """The JSON of a result, exactly as the output schema says; a result that is not is a fault of ours."""
        try:
            result: dict[str, Any] = self.output.dump_python(self.output.validate_python(value), mode="json")
        except ValidationError as exc:
            raise RuntimeError(f"{self.name} answered something its output schema does not allow") from exc
        return result

    def annotations(self) -> dict[str, Any]:
        if self.hints is not None:
            return dict(self.hints)
        return {
            "title": self.title,
            "readOnlyHint": self.effect is Effect.READ_ONLY,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.effect is Effect.EXTERNAL_EXEC,
        }


def _validated(model: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        parsed = model.model_validate(arguments)
    except ValidationError as exc:
        raise _refusal(exc) from None
    return {name: getattr(parsed, name) for name in type(parsed).model_fields}


def _refusal(exc: ValidationError) -> DevFlowError:
    reasons: dict[str, str] = {}
    for error in exc.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in error["loc"]) or "arguments"
        reasons.setdefault(
            where,
            {"extra_forbidden": "unknown argument", "missing": "is required"}.get(
                error["type"], error["msg"].removeprefix("Value error, ")
            ),
        )
    first, reason = next(iter(reasons.items()))
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return invalid(f"{first}: {reason}{more}", **reasons)


def _as_object(schema: dict[str, Any]) -> dict[str, Any]:
    """MCP wants `type: object` at the root, also where the result is one of several objects."""
    bare = _without_titles(schema)
    bare.pop("description", None)
    return {"type": "object", **bare}


def _without_titles(schema: Any) -> Any:
    """Generated titles repeat the names; every client would pay their tokens."""
    if isinstance(schema, dict):
        return {
            name: {key: _without_titles(value) for key, value in item.items()}
            if name in ("properties", "$defs") and isinstance(item, dict)
            else _without_titles(item)
            for name, item in schema.items()
            if not (name == "title" and isinstance(item, str))
        }
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    return schema


_ARGUMENT = re.compile(r"^(\w+):\s*(.*)$")


def _read_docstring(function: Callable[..., Any], name: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description an agent reads and the `Args:` entries."""
    text = inspect.getdoc(function)
    if not text:
        raise TypeError(f"{name}: the docstring is missing; agents decide by it")
    description, _, rest = text.partition("\nArgs:\n")
    arguments: dict[str, str] = {}
    current = ""
    for line in rest.splitlines():
        if line and not line.startswith(" "):
            raise TypeError(f"{name}: text after the Args: section; put it above")
        match = _ARGUMENT.match(line.strip()) if line.startswith("    ") and not line.startswith("     ") else None
        if match:
            current = match[1]
            arguments[current] = match[2]
        elif current and line.strip():
            arguments[current] += " " + line.strip()
    return description.strip(), arguments


ToolFunction = TypeVar("ToolFunction", bound=Callable[..., Any])

declared: list[Tool] = []
"""Tools in the order their modules were imported; the registry indexes them."""


def tool(
    *,
    intent: Intent,
    effect: Effect,
    toolset: Toolset,
    artifact: str = "JSON",
    name: str | None = None,
    version: str = "1",
    needs_project: bool = True,
    destructive: bool = False,
    idempotent: bool = False,
    deadline: float = 30.0,
    hidden: bool = False,
    fingerprint: Callable[[Caller], Hashable] | None = None,
    finish: Callable[[Caller, Any], Any] | None = None,
    admits: Effect | None = None,
    dialect: str = "mcp",
    outside: Callable[[Caller, Mapping[str, Any]], bool] | None = None,
) -> Callable[[ToolFunction], ToolFunction]:
    """Publish a function `(caller, *, ...) -> Result` as a tool on every door.

    A sync function runs on a worker thread (MUTATING ones inside one transaction); an async one on the event loop,
    where it must not touch the database. `deadline` is in seconds. `hidden` tools can be called but are not listed.
    `fingerprint` says cheaply what a read depends on: as long as it stays the same, so does the answer to the same
    arguments, and the last one is given again (it may block, and must include the project).
    `finish(caller, result) -> result` completes the answer of a write after its commit, with what is too slow to hold
    a transaction open for; if it fails, the answer goes out without. `admits`, `dialect` and `outside`: see `Tool`.
    """

    def declare(function: ToolFunction) -> ToolFunction:
        declared.append(
            Tool.from_function(
                function,
                intent=intent,
                effect=effect,
                toolset=toolset,
                artifact=artifact,
                name=name,
                version=version,
                needs_project=needs_project,
                destructive=destructive,
                idempotent=idempotent,
                deadline=deadline,
                hidden=hidden,
                fingerprint=fingerprint,
                finish=finish,
                admits=admits,
                dialect=dialect,
                outside=outside,
            )
        )
        return function

    return declare


# --- prompts and resources ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PromptArgument:
    name: str
    description: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt clients can offer. `render(caller, **arguments: str)` gives the text (it may block)."""

    name: str
    description: str
    arguments: tuple[PromptArgument, ...]
    render: Callable[..., str]
    toolset: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """A family of readable things: `uri_template` has one `{name}`; `read(caller, value)` gives text (it may block).

    `listing(caller)` names the ones worth listing: pairs of (value, title).
    """

    name: str
    uri_template: str
    description: str
    mime_type: str
    read: Callable[[Caller, str], str]
    listing: Callable[[Caller], list[tuple[str, str]]] | None = None
    toolset: str = ""


prompts: dict[str, Prompt] = {}
resources: dict[str, Resource] = {}


def prompt(
    *, name: str, arguments: tuple[PromptArgument, ...], toolset: str = ""
) -> Callable[[ToolFunction], ToolFunction]:
    """Publish a function `(caller, *, ...) -> str` as an MCP prompt; its docstring is the description.

    A key restricted to toolsets is shown the prompts of these toolsets only.
    """

    def declare(function: ToolFunction) -> ToolFunction:
        prompts[name] = Prompt(name, inspect.getdoc(function) or name, arguments, function, toolset)
        return function

    return declare


def resource(
    *,
    name: str,
    uri_template: str,
    mime_type: str = "application/json",
    listing: Callable[[Caller], list[tuple[str, str]]] | None = None,
    toolset: str = "",
) -> Callable[[ToolFunction], ToolFunction]:
    """Publish a function `(caller, value: str) -> str` as an MCP resource template.

    A key restricted to toolsets reads the resources of these toolsets only.
    """

    def declare(function: ToolFunction) -> ToolFunction:
        description = inspect.getdoc(function) or name
        resources[name] = Resource(name, uri_template, description, mime_type, function, listing, toolset)
        return function

    return declare
