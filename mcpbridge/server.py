"""The official SDK's server over the registry: MCP methods in, the dispatcher's outcomes out."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import mcp.types as types
from django.conf import settings
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode, forbidden, invalid, not_found
from devflow.ports import AgentRef
from mcpbridge import access, asking, audit, dispatcher, ratelimit
from mcpbridge.agentify import connections
from mcpbridge.doors import Door, door_of
from mcpbridge.envelopes import as_mcp
from mcpbridge.registry import CALL_TOOL, registry, spelled
from mcpbridge.subscriptions import MAX_SUBSCRIPTIONS, Subscriptions, live
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Caller, Effect, Resource, Tool, prompts, resources

Context = ServerRequestContext[Any, Any]

STAYING_OPEN = ("sse", "stdio")
MOST_WAITING = 1000

INSTRUCTIONS = """\
DevFlow is the workbench you share with other agents and the people who steer you.
Start with claim_task(phase_id): it hands you one task nobody else has, with its lease_token and what done means.
While you work, note what others should know with add_task_note; create_task for work you discover.
Finish with update_task_status(task_id, "done", result=..., lease_token=...): it tells you what you unblocked.
get_kanban_board shows everything; get_messages holds what others told you."""


def caller_of(ctx: Context) -> Caller:
    """The caller of one message. Raises `invalid_input` for a malformed agent id or exposure."""
    door, introduced = door_of(ctx), ctx.session.client_params
    caller = door.caller(meta=dict(ctx.meta or {}), client=introduced.client_info.name if introduced else "")
    features = asking.features_of(ctx, door)
    return caller.with_changes(features=features) if features else caller


def as_protocol_error(error: DevFlowError) -> MCPError:
    """A failure of a method of ours (not of a tool) as a JSON-RPC error."""
    data: dict[str, Any] = {"code": error.code.value, "suggestion": error.suggestion}
    if error.retry_after_ms is not None:
        data["retryAfterMs"] = error.retry_after_ms
    return MCPError(ERROR_TABLE[error.code].jsonrpc, error.message, data)


@lru_cache(maxsize=256)
def _published(tools: tuple[tuple[str, str], ...], names: str) -> types.ListToolsResult:
    """The listing of tools given by name and version: a version is published the same way for ever."""
    return types.ListToolsResult(
        tools=[_as_mcp_tool(tool, names) for name, _ in tools if (tool := registry.find(name))]
    )


def _as_mcp_tool(tool: Tool, names: str) -> types.Tool:
    return types.Tool(
        name=spelled(tool.name, names),
        title=tool.title,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        output_schema=None if tool.output_schema is None else dict(tool.output_schema),
        annotations=types.ToolAnnotations.model_validate(tool.annotations()),
        _meta={
            "devflow/toolset": tool.toolset,
            "devflow/intent": tool.intent.value,
            "devflow/effect": tool.effect.value,
            "devflow/version": tool.version,
        },
    )


async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    caller = _caller(ctx)
    await registry.refresh()
    if _hears_bare_notices(ctx):
        _subscriptions(ctx).meet(ctx.session)
    return _published(tuple((tool.name, tool.version) for tool in registry.shown(caller)), caller.exposed.names)


def _caller(ctx: Context) -> Caller:
    try:
        return caller_of(ctx)
    except DevFlowError as exc:
        raise as_protocol_error(exc) from exc


@asynccontextmanager
async def reporting(ctx: Context, caller: Caller) -> AsyncIterator[Caller]:
    """Give the caller a `report` that may be used from any thread; what is reported is sent before the answer.

    A client that reads too slowly misses reports past `MOST_WAITING`, not the answer.
    """
    if not ctx.meta or ctx.meta.get("progress_token") is None:
        yield caller
        return
    loop = asyncio.get_running_loop()
    reports: asyncio.Queue[tuple[float, float | None, str | None] | None] = asyncio.Queue()

    def keep(item: tuple[float, float | None, str | None]) -> None:
        if reports.qsize() < MOST_WAITING:
            reports.put_nowait(item)

    def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        loop.call_soon_threadsafe(keep, (progress, total, message))

    async def send() -> None:
        while (item := await reports.get()) is not None:
            await ctx.session.report_progress(*item)

    sender = asyncio.create_task(send())
    try:
        yield caller.with_changes(report=report)
        loop.call_soon(reports.put_nowait, None)
        await sender
    finally:
        sender.cancel()


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    caller = _caller(ctx)
    key = (ctx.meta or {}).get("devflow/idempotencyKey")
    if key is None:
        key = door_of(ctx).headers.get("idempotency-key")

    async def run(caller: Caller) -> dict[str, Any]:
        outcome = await dispatcher.call(params.name, params.arguments, caller, idempotency_key=key)
        _introduce(ctx, outcome.agent)
        if outcome.error is not None and outcome.tool is None and outcome.error.code is ErrorCode.NOT_FOUND:
            raise as_protocol_error(outcome.error)
        return as_mcp(outcome)

    async with reporting(ctx, caller) as telling:
        if not _may_ask(params.name):
            return await run(telling)
        try:
            return await asking.answered(ctx, telling, run)
        except DevFlowError as exc:
            raise as_protocol_error(exc) from exc


def _may_ask(name: str) -> bool:
    """Whether a backend may be behind this tool; those of DevFlow itself ask nothing."""
    tool = registry.find(name)
    return tool is None or tool.toolset == "gateway" or name == CALL_TOOL


def _hears_bare_notices(ctx: Context) -> bool:
    return door_of(ctx).transport in STAYING_OPEN and ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS


def _introduce(ctx: Context, agent: AgentRef | None) -> None:
    """Once a call has made the agent known, its messages reach it through this connection, where it stays open.

    Not on 2026-07-28, where a client listens to its inbox's resource instead and bare notices are forbidden.
    """
    if agent is not None and _hears_bare_notices(ctx):
        _subscriptions(ctx).attach(ctx.session, project_id=agent.project_id, agent_name=agent.name)


# --- prompts --------------------------------------------------------------------------------------------------------


async def list_prompts(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    caller = _caller(ctx)
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=item.name,
                description=item.description,
                arguments=[
                    types.PromptArgument(name=arg.name, description=arg.description, required=arg.required)
                    for arg in item.arguments
                ],
            )
            for item in prompts.values()
            if caller.may_use(item.toolset)
        ]
    )


async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    caller, started, error = _caller(ctx), time.perf_counter(), None
    try:
        await ratelimit.spend(caller)
        item = prompts.get(params.name)
        if item is None or not caller.may_use(item.toolset):
            raise not_found("Prompt", params.name)
        _check_readable(caller)
        given = params.arguments or {}
        known = {argument.name for argument in item.arguments}
        missing = [argument.name for argument in item.arguments if argument.required and not given.get(argument.name)]
        if missing or given.keys() - known:
            words = [f"{name} is required" for name in missing] + [
                f"{name} is unknown" for name in sorted(given.keys() - known)
            ]
            raise DevFlowError(ErrorCode.INVALID_INPUT, f"{params.name}: {', '.join(words)}.")
        text = await run_blocking(item.render, caller, **given)
    except DevFlowError as exc:
        error = exc
        raise as_protocol_error(exc) from exc
    finally:
        audit.note("prompts/get", caller, started=started, arguments={"name": params.name}, error=error)
    return types.GetPromptResult(
        description=item.description,
        messages=[types.PromptMessage(role="user", content=types.TextContent(text=text))],
    )


# --- resources ------------------------------------------------------------------------------------------------------


def resource_behind(uri: str) -> tuple[Resource, str]:
    """The resource family and the value inside a URI. Raises `not_found`."""
    for item in resources.values():
        prefix, _, rest = item.uri_template.partition("{")
        suffix = rest.partition("}")[2]
        value = uri.removeprefix(prefix).removesuffix(suffix) if suffix else uri.removeprefix(prefix)
        if uri.startswith(prefix) and uri.endswith(suffix) and value and "/" not in value and value.isprintable():
            return item, value
    raise not_found("Resource", uri)


def _check_readable(caller: Caller) -> None:
    if not caller.allows(Effect.READ_ONLY):
        raise forbidden("This key may not read: it needs the scope `read`.")


async def read(caller: Caller, uri: str) -> tuple[Resource, str]:
    """Read a resource for a caller; needs the scope `read`. Raises `forbidden` or `not_found`."""
    _check_readable(caller)
    item, value = resource_behind(uri)
    if not caller.may_use(item.toolset):
        raise not_found("Resource", uri)
    return item, await run_blocking(item.read, caller, value)


async def list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    caller = _caller(ctx)
    found: list[types.Resource] = []
    for item in resources.values():
        if item.listing is None or not caller.allows(Effect.READ_ONLY) or not caller.may_use(item.toolset):
            continue
        try:
            entries = await run_blocking(item.listing, caller)
        except DevFlowError:
            continue  # no project chosen yet: nothing of this family can be listed
        prefix, _, rest = item.uri_template.partition("{")
        found += [
            types.Resource(uri=f"{prefix}{value}{rest.partition('}')[2]}", name=title, mime_type=item.mime_type)
            for value, title in entries
        ]
    return types.ListResourcesResult(resources=found)


async def list_resource_templates(
    ctx: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    caller = _caller(ctx)
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                uri_template=item.uri_template, name=item.name, description=item.description, mime_type=item.mime_type
            )
            for item in resources.values()
            if caller.may_use(item.toolset)
        ]
    )


RESOURCE_NOT_FOUND_BEFORE_2026 = -32002


async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    caller, started, error = _caller(ctx), time.perf_counter(), None
    try:
        await ratelimit.spend(caller)
        item, text = await read(caller, str(params.uri))
    except DevFlowError as exc:
        error = exc
        if exc.code is ErrorCode.NOT_FOUND:
            code = types.INVALID_PARAMS if ctx.protocol_version >= "2026" else RESOURCE_NOT_FOUND_BEFORE_2026
            raise MCPError(code, exc.message, {"uri": str(params.uri)}) from exc
        raise as_protocol_error(exc) from exc
    finally:
        audit.note("resources/read", caller, started=started, arguments={"uri": str(params.uri)}, error=error)
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=params.uri, mime_type=item.mime_type, text=text)]
    )


async def complete(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    """Offer values for a resource template's variable from what the caller may list."""
    values: list[str] = []
    if isinstance(params.ref, types.ResourceTemplateReference):
        caller = _caller(ctx)
        item = next((item for item in resources.values() if item.uri_template == params.ref.uri), None)
        may_read = caller.allows(Effect.READ_ONLY) and item is not None and caller.may_use(item.toolset)
        if may_read and item is not None and item.listing is not None:
            try:
                listed = await run_blocking(item.listing, caller)
            except DevFlowError as exc:
                raise as_protocol_error(exc) from exc
            values = [value for value, _ in listed if value.startswith(params.argument.value)]
    return types.CompleteResult(
        completion=types.Completion(values=values[:100], total=len(values), has_more=len(values) > 100)
    )


async def subscribe(ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
    """Tell this connection when a resource changes; only what the caller may read can be subscribed to."""
    uri = str(params.uri)
    try:
        caller = _caller(ctx)
        await ratelimit.spend(caller)
        await read(caller, uri)
        _subscriptions(ctx).add(uri, ctx.session, project_id=_project_of(caller))
    except DevFlowError as exc:
        raise as_protocol_error(exc) from exc
    return types.EmptyResult()


async def unsubscribe(ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    _subscriptions(ctx).remove(str(params.uri))
    return types.EmptyResult()


def _project_of(caller: Caller) -> int:
    """The project a read went to; 0 for what belongs to none."""
    return int(caller.facts.get("project_id", caller.known_project.id if caller.known_project else 0))


def _subscriptions(ctx: Context) -> Subscriptions:
    found: Subscriptions = ctx.lifespan_context
    return found


async def listen(ctx: Context, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
    """2026-07-28: one stream of change notices; asks for each named resource whether the caller may read it."""
    caller, door = _caller(ctx), door_of(ctx)
    wanted = [str(uri) for uri in params.notifications.resource_subscriptions or ()]
    projects: dict[str, int] = {}
    try:
        await ratelimit.spend(caller)
        if len(wanted) > MAX_SUBSCRIPTIONS:
            raise invalid(f"A stream may listen to {MAX_SUBSCRIPTIONS} resources at most.")
        for uri in wanted:
            reader = caller.for_one_call()
            await read(reader, uri)
            projects[uri] = _project_of(reader)
        return await live.listen(ctx, params, projects=projects, is_welcome=lambda: is_welcome(door))
    except DevFlowError as exc:
        raise as_protocol_error(exc) from exc


async def is_welcome(door: Door) -> bool:
    """Whether the key that opened a stream is still live; a local process's own connection has none."""
    key = access.key_in(door.headers)
    try:
        if key:
            await access.identify(key)
    except DevFlowError as exc:
        return exc.code is not ErrorCode.UNAUTHENTICATED
    return True


async def set_logging_level(ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
    """Accepted for clients of the handshake revisions; what we log to clients is only what they must see."""
    return types.EmptyResult()


def _mirrored_schema(name: str) -> Mapping[str, Any] | None:
    """The SDK compares `Mcp-Param-*` headers with schemas that ask for it; walking any other would be for nothing."""
    tool = registry.find(name)
    return tool.input_schema if tool is not None and tool.mirrors_headers else None


def build_server(*, stateful: bool) -> Server[Any]:
    """The MCP server. `stateful` ones keep their connection and so can serve handshake-era subscriptions."""
    registry.load()
    shown = CacheHint(ttl_ms=60_000, scope="private")
    server: Server[Any] = Server(
        "devflow",
        version=settings.VERSION,
        title="DevFlow",
        description="Tasks, knowledge, memory and messages shared by agents and people.",
        instructions=INSTRUCTIONS,
        lifespan=connections.lifespan,
        cache_hints={
            "tools/list": shown,
            "prompts/list": shown,
            "resources/templates/list": shown,
            "resources/list": CacheHint(),
            "resources/read": CacheHint(),
        },
        get_tool_input_schema=_mirrored_schema,
        on_list_tools=list_tools,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_resource_templates,
        on_read_resource=read_resource,
        on_completion=complete,
        on_subscribe_resource=subscribe if stateful else None,
        on_unsubscribe_resource=unsubscribe if stateful else None,
        on_subscriptions_listen=listen,
    )
    # Added here because the constructor takes no handler that answers in wire form.
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    if find_spec("opentelemetry.sdk") is None:
        server.middleware.clear()  # spans that nobody collects
    connections.add_methods(server, _caller, stateful=stateful)
    # Not a constructor argument, which would warn: the capability is deprecated since 2026-07-28, not gone before it.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_logging_level)
    return server
