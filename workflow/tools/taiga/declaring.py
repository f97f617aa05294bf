"""How an agile tool is declared: a function of the caller and its checked arguments; its answer has an envelope."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError

from devflow import actors
from devflow.errors import DevFlowError, invalid
from devflow.ports import ProjectRef
from mcpbridge.tooling import Caller, Effect, Intent, Tool, declared
from workflow.models import Project
from workflow.taiga import choosing
from workflow.taiga.provider import Provider
from workflow.tools.taiga.schemas import Asked

AskedT = TypeVar("AskedT", bound=Asked)
Object = dict[str, Any]
PREFIX = "taiga."
MAX_PATH = 100
CHOSEN = "chosen_project"
"""The fact of a call which project it is about: looked up once, though asked before the call and in it."""

ERROR: Object = {
    "type": "object",
    "required": ["category", "message", "httpStatus"],
    "properties": {
        "category": {"enum": ["auth", "not_found", "validation", "rate_limit", "network", "server", "unknown"]},
        "message": {"type": "string"},
        "httpStatus": {"type": "integer"},
        "retryAfterMs": {"type": "integer", "description": "Milliseconds after which trying again can help."},
        "details": {"type": "object", "description": "Field to reason; of a conflict also `conflict` and `current`."},
        "_traceId": {"type": "string"},
    },
    "additionalProperties": False,
}


def taiga_tool(
    name: str,
    *,
    takes: type[AskedT],
    gives: Any,
    effect: Effect = Effect.READ_ONLY,
    destructive: bool = False,
    idempotent: bool = False,
    needs_project: bool = True,
    deadline: float = 30.0,
    outside: Callable[[Caller, Mapping[str, Any]], bool] | None = None,
) -> Callable[[Callable[[Caller, AskedT], Any]], Callable[[Caller, AskedT], Any]]:
    """Publish a function `(caller, asked)` as `taiga.<name>`.

    `takes` is its arguments' model, `gives` the type of `data`. A call is `outside` where its project is a remote one.
    """

    def declare(function: Callable[[Caller, AskedT], Any]) -> Callable[[Caller, AskedT], Any]:
        def run(caller: Caller, *, asked: AskedT) -> Any:
            asked.settle()
            return function(caller, asked)

        run.__name__, run.__doc__ = f"taiga_{name}", function.__doc__
        run.__annotations__ = {"caller": Caller, "asked": takes, "return": gives}
        made = Tool.from_function(
            run,
            name=PREFIX + name,
            toolset="taiga",
            dialect="taiga",
            intent=Intent.QUERY if effect is Effect.READ_ONLY else Intent.MODIFY,
            effect=effect,
            destructive=destructive,
            idempotent=idempotent,
            needs_project=needs_project,
            deadline=deadline,
            outside=outside or (goes_outside if needs_project else None),
        )
        declared.append(
            replace(
                made,
                input_schema=_bare(made.input_schema, takes.__name__),
                output_schema=envelope(made.output_schema or {}),
                check=partial(_checked, takes),
            )
        )
        return function

    return declare


def _bare(schema: Mapping[str, Any], model: str) -> Object:
    """The schema of the arguments themselves, out of one whose only property they are."""
    others = dict(schema["$defs"])
    own = others.pop(model)
    for part in (own, *others.values()):
        for item in part.get("properties", {}).values():
            if item.get("default", ...) is None:
                del item["default"]
    return {**own, "$defs": others} if others else own


def envelope(data: Mapping[str, Any]) -> Object:
    """`{ok, data}` or `{ok, error}` as one object: clients refuse a `oneOf` at the top."""
    bare = dict(data)
    definitions = bare.pop("$defs", None)
    made: Object = {
        "type": "object",
        "required": ["ok"],
        "properties": {
            "ok": {"type": "boolean", "description": "Whether there is `data`, else there is `error`."},
            "data": bare,
            "error": ERROR,
            "_rateLimit": {
                "type": "object",
                "description": "The key's calls are nearly used up.",
                "required": ["retryAfterMs"],
                "properties": {"retryAfterMs": {"type": "integer"}},
                "additionalProperties": False,
            },
        },
        "additionalProperties": False,
    }
    return {**made, "$defs": definitions} if definitions else made


def _checked(model: type[Asked], arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"asked": model.model_validate(arguments)}
    except ValidationError as exc:
        raise _refusal(exc) from None


def _refusal(exc: ValidationError) -> DevFlowError:
    """`subject: Required`, and every other refused field in the details."""
    reasons: dict[str, str] = {}
    for error in exc.errors(include_url=False, include_input=False):
        where = ".".join(str(part)[:MAX_PATH] for part in error["loc"]) or "arguments"
        said = {"missing": "Required", "extra_forbidden": "Unknown property"}.get(error["type"], error["msg"])
        reasons.setdefault(where, said)
    first, reason = next(iter(reasons.items()))
    return invalid(f"{first}: {reason}", **reasons)


def goes_outside(caller: Caller, values: Mapping[str, Any]) -> bool:
    """Whether the call's project is kept by another server."""
    asked: Any = values["asked"]
    return choosing.is_remote(_project(caller, getattr(asked, "project_id", None)))


def _project(caller: Caller, project_id: int | None) -> Project:
    known: Project | None = caller.facts.get(CHOSEN)
    if known is not None:
        return known
    project = caller.facts[CHOSEN] = choosing.project_of(caller, project_id)
    caller.work_in(ProjectRef(id=project.pk, slug=project.slug, name=project.name))
    return project


def reader(caller: Caller, project_id: int | None) -> Provider:
    """The items of the call's project. Raises as `choosing.project_of` does."""
    project = _project(caller, project_id)
    agent = caller.agent
    return choosing.provider_of(project, actors.agent(agent_id=agent.id, name=agent.name, session=caller.kept_session))


def writer(caller: Caller, project_id: int | None, tool: str) -> Provider:
    """The same for a call that changes them. Raises `forbidden` where the key's owner may only read."""
    project = _project(caller, project_id)
    return choosing.provider_of(project, caller.writer(PREFIX + tool))
