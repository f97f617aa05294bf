"""The gateway as tools: one envelope for every action of every backend, and the list of actions."""

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from mcpbridge.gateway import calling, protocol
from mcpbridge.gateway.catalog import catalog
from mcpbridge.gateway.policy import MAX_TIMEOUT_MS
from mcpbridge.gateway.protocol import Artifact, Constraints, Context, GatewayRequest
from mcpbridge.registry import GATEWAY_EXECUTE
from mcpbridge.tooling import (
    Caller,
    Effect,
    Intent,
    JsonObject,
    Limit,
    Offset,
    OptionalText,
    Result,
    ShortText,
    declared,
    tool,
)

SECONDS_OVER = 5.0
"""What an answer may take beyond its own deadline: ending a process, looking at files."""


class Envelope(Result):
    """`{ok: true, request, result, meta}`; a failure is `{ok: false, error}`."""

    model_config = {"extra": "allow"}

    ok: bool


class ActionItem(Result):
    action: str = Field(description="The name to give to gateway_execute.")
    intent: str
    effect: str
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema of params.")
    artifact: str


class ActionList(Result):
    actions: list[ActionItem]
    total: int = Field(description="How many there are, also beyond the limit.")
    unavailable: dict[str, str] = Field(description="Backends that cannot be called now, with the reason.")


@tool(
    intent=Intent.EXECUTE,
    effect=Effect.EXTERNAL_EXEC,
    admits=Effect.READ_ONLY,
    toolset="gateway",
    name=GATEWAY_EXECUTE,
    needs_project=False,
    destructive=True,
    dialect="gateway",
    deadline=MAX_TIMEOUT_MS / 1000 + SECONDS_OVER,
)
async def gateway_execute(
    caller: Caller,
    *,
    intent: Intent,
    action: ShortText,
    effect: Effect | None = None,
    artifact: Artifact | None = None,
    params: JsonObject | None = None,
    constraints: Constraints | None = None,
    context: Context | None = None,
) -> Envelope:
    """Run one action of another MCP server (or of DevFlow) behind the gateway. Always answers one JSON envelope.

    Find actions with list_gateway_actions (here: action "devflow.list_gateway_actions", intent QUERY). Example:
    {"intent": "QUERY", "action": "serena.find_symbol", "params": {"name_path": "Cart"}}. Intents QUERY, ANALYZE and
    GENERATE read; MODIFY changes files or state; EXECUTE reaches outside systems. Declaring less than an action does
    is refused with the right value.

    Args:
        intent: What it is for.
        action: `backend.action`, or `action` where only one backend has it.
        effect: What it may change; default: the intent's.
        artifact: The form the result must have; default: the action's.
        params: The action's own parameters.
        constraints: timeout_ms (to 600000), retry_count (to 5), isolation.
        context: project_root, a directory on the server the action works in; caller, a label.
    """
    # The arguments are parsed as the gateway's protocol below, more leniently than this signature says.
    raise RuntimeError("gateway_execute reached its own body")


async def _execute(caller: Caller, *, request: GatewayRequest) -> dict[str, Any]:
    return await calling.execute(caller, request)


declared[-1] = replace(declared[-1], check=lambda given: {"request": protocol.parse(given)}, run=_execute)


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="gateway", needs_project=False)
async def list_gateway_actions(
    caller: Caller,
    *,
    backend: Annotated[OptionalText, Field(max_length=64)] = "",
    query: Annotated[OptionalText, Field(max_length=1000)] = "",
    limit: Limit = 50,
    offset: Offset = 0,
) -> ActionList:
    """See what backends can do: actions with intent, effect and parameters, for gateway_execute.

    Args:
        backend: Only this backend's.
        query: Only those whose name or description has all of these words.
        limit: How many at most.
        offset: How many to skip, to read on.
    """
    snapshot = await catalog.current()
    if backend:
        snapshot.backend(backend)
    words = query.lower().split()
    found = [
        action
        for action in calling.callable_by(caller, snapshot)
        if backend in ("", action.backend)
        and all(word in f"{action.full_name} {action.description}".lower() for word in words)
    ]
    found.sort(key=lambda action: action.full_name)
    return ActionList(
        actions=[
            ActionItem(
                action=action.full_name,
                intent=action.intent.value,
                effect=action.effect.value,
                description=action.description,
                parameters=dict(action.input_schema),
                artifact=action.artifact,
            )
            for action in found[offset : offset + limit]
        ],
        total=len(found),
        unavailable={
            item.id: item.problem or item.status_detail
            for item in snapshot.backends.values()
            if item.problem or item.status == "down"
        },
    )
