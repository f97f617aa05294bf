"""One backend passed through: `/mcp/backends/<id>/mcp` is its own server to a client, behind DevFlow's door.

Its tools, prompts, resources, templates, completion and log level go through under their own names, requests and
results as they came, in both protocol eras. What the gateway promises holds here too: a call of a tool goes through
the dispatcher (rate limit, scope against effect, held back tools, log, metrics, breaker), reading costs one of the
key's budget and needs the scope `read`. What the backend asks its client (elicitation, sampling) goes through too.
Not passed: the notice that an elicitation by address is complete, roots (`docs/decisions/031`), tasks, and methods
MCP does not define.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import mcp.types as types
from django.db import DatabaseError, InterfaceError
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.methods import INPUT_REQUIRED_METHODS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode, forbidden, invalid, not_found
from mcpbridge import asking, audit, dispatcher, ratelimit
from mcpbridge.doors import DOOR, AsgiScope, Door, door_of, refuse
from mcpbridge.envelopes import as_mcp
from mcpbridge.gateway import large, policy
from mcpbridge.gateway.calling import caller_key
from mcpbridge.gateway.catalog import catalog, usable
from mcpbridge.gateway.deadlines import Deadline
from mcpbridge.gateway.faults import BackendFaultError, out_of_time, unavailable
from mcpbridge.gateway.federation import federation
from mcpbridge.gateway.hearing import changes_of, logs
from mcpbridge.gateway.notices import notices
from mcpbridge.gateway.questions import Asking
from mcpbridge.gateway.sessions import Session, pool
from mcpbridge.gateway.specs import BackendSpec, fingerprint_of
from mcpbridge.gateway.standing import NoticeStreams
from mcpbridge.models import Backend
from mcpbridge.server import Context, as_protocol_error, caller_of, is_welcome, reporting
from mcpbridge.subscriptions import MAX_SUBSCRIPTIONS, live
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Caller, Effect, Intent
from mcpbridge.transports.relay import Relay
from mcpbridge.transports.streamable import StreamableHttp, accepted

logger = logging.getLogger(__name__)

PATH = re.compile(r"/mcp/backends/([A-Za-z0-9_-]{1,64})/mcp/?")
BACKEND = "devflow.backend"
_PASSED = ("prompts/list", "prompts/get", "resources/list", "resources/templates/list", "resources/read")
_COMPLETE = {"resultType": "complete"}
"""What 2026-07-28 wants in every result; earlier revisions do not have it, and it is left out there."""
_at_work_for: ContextVar[str] = ContextVar("backend")


# --- requests -------------------------------------------------------------------------------------------------------


def _spec_of(ctx: Context) -> BackendSpec:
    request: Any = ctx.request
    spec: BackendSpec = request.scope[BACKEND]
    return spec


def _caller(ctx: Context, spec: BackendSpec) -> Caller:
    caller = caller_of(ctx)
    caller.facts["backend"] = spec.id
    return caller


async def _opened(spec: BackendSpec, caller: Caller) -> Session:
    """The caller's open session. One that cannot be opened is replaced once. Raises `unavailable`."""
    if spec.problem:
        raise unavailable(spec.id, spec.problem)
    if spec.transport == "agent_cli":
        raise unavailable(spec.id, "it is an agent's command line, which has no server to pass through.")
    root = spec.root(caller.project_root)
    return await pool.ready(spec, root, caller_key(caller), features=caller.features)


def _open_of(spec: BackendSpec, caller: Caller) -> Session | None:
    """What `_opened` opened before, if it is still there."""
    try:
        return pool.opened(spec, spec.root(caller.project_root), caller_key(caller), features=caller.features)
    except DevFlowError:  # a directory it may not work in: the request hears of it
        return None


async def _pay(caller: Caller) -> None:
    """Raises `rate_limited`, and `forbidden` for a key that may not read."""
    await ratelimit.spend(caller)
    if not caller.allows(Effect.READ_ONLY):
        raise forbidden("This key may not read: it needs the scope `read`.")


@asynccontextmanager
async def _admitted(spec: BackendSpec, caller: Caller) -> AsyncIterator[tuple[Session, Deadline]]:
    """A session for something that reads: paid for, allowed, and its failures told to the breaker."""
    await _pay(caller)
    breaker, has_place = pool.breaker(spec), False
    await breaker.admit(spec.id, caller.scope.key_id)
    try:
        async with Deadline(_seconds(spec)) as deadline, pool.place(spec):
            has_place = True
            session = await _opened(spec, caller)
            with session.in_use():
                yield session, deadline
    except TimeoutError:
        if has_place:
            breaker.note(ok=False)
        raise out_of_time(f"A request to {spec.id}", _seconds(spec)) from None
    except DevFlowError as exc:
        if exc.code in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT):
            breaker.note(ok=False)
        raise
    breaker.note(ok=True)


def _seconds(spec: BackendSpec) -> float:
    return policy.timeout_ms(Intent.QUERY, "agent", wished=None, of_backend=spec.timeouts) / 1000


def _as_mcp_error(error: DevFlowError) -> MCPError:
    """The backend's own error as it came, ours as ours."""
    if isinstance(error, BackendFaultError):
        return MCPError.from_error_data(error.error)
    return as_protocol_error(error)


@asynccontextmanager
async def _noted(ctx: Context, about: Mapping[str, Any]) -> AsyncIterator[tuple[BackendSpec, Caller]]:
    """Whose request it is; afterwards it is in the log, and what went wrong has the shape of JSON-RPC."""
    spec, started = _spec_of(ctx), time.perf_counter()
    error: DevFlowError | None = None
    try:
        caller = _caller(ctx, spec)
    except DevFlowError as exc:
        raise as_protocol_error(exc) from exc
    try:
        yield spec, caller
    except DevFlowError as exc:
        error = exc
        raise _as_mcp_error(exc) from exc
    except asyncio.CancelledError:
        error = DevFlowError(ErrorCode.TIMEOUT, "The client gave this request up.")
        raise
    finally:
        audit.note(ctx.method, caller, started=started, arguments=about, error=error)


def _without_meta(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """What goes to the backend: the rest belongs to the connection with the client."""
    return {name: value for name, value in (params or {}).items() if name not in asking.OF_A_REPEAT}


async def _pass(ctx: Context, params: Any) -> dict[str, Any]:
    """Any request that reads, to the caller's own session with the backend and back."""
    given = _without_meta(ctx.params)
    about: dict[str, Any] = {name: given[name] for name in ("name", "uri", "cursor", "ref", "level") if name in given}
    async with _noted(ctx, about) as (spec, caller):
        if ctx.method == "resources/read" and (uri := str(given.get("uri"))).startswith(large.PREFIX):
            return await _kept(ctx, caller, uri)

        async def run(caller: Caller) -> dict[str, Any]:
            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                caller.report(progress, total, message)

            async with _admitted(spec, caller) as (session, deadline), logs(ctx, session):
                result = await session.request(
                    ctx.method,
                    given,
                    timeout=_seconds(spec),
                    progress=on_progress,
                    asking=Asking(caller.asker, deadline) if caller.asker and spec.may_ask else None,
                )
            return _COMPLETE | result

        async with reporting(ctx, caller) as telling:
            if ctx.method not in INPUT_REQUIRED_METHODS:
                return await run(telling)
            return await asking.answered(ctx, telling, run, is_passed=True)


async def _kept(ctx: Context, caller: Caller, uri: str) -> dict[str, Any]:
    await _pay(caller)
    row = await run_blocking(large.kept, caller, uri.removeprefix(large.PREFIX))
    return {**_COMPLETE, "contents": [{"uri": uri, "mimeType": row.media_type, "text": row.text}]}


async def _list_tools(ctx: Context, params: Any) -> dict[str, Any]:
    """The backend's own listing without what is held back, switched off, or beyond the key."""
    async with _noted(ctx, {}) as (spec, caller):
        async with _admitted(spec, caller) as (session, _):
            answer = await session.request("tools/list", _without_meta(ctx.params), timeout=_seconds(spec))
        snapshot = await catalog.current()
        known = {action.name: action for action in snapshot.of(spec.id)}
        allowed = {action.name for action in usable(known.values()) if caller.allows(action.effect)}
        listed = []
        for tool in answer.get("tools", ()):
            action = known.get(str(tool.get("name")))
            if action is None or (not action.is_held and action.fingerprint != fingerprint_of(tool)):
                notices.ask_again(session)
            elif action.name in allowed:
                listed.append(tool)
        return {**_COMPLETE, **answer, "tools": listed}


async def _call_tool(ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    spec = _spec_of(ctx)
    try:
        caller = _caller(ctx, spec)
    except DevFlowError as exc:
        raise as_protocol_error(exc) from exc
    await federation.refresh()
    tool = federation.of(spec.id, params.name)
    if tool is None:
        raise as_protocol_error(not_found("Tool", params.name[:128], suggestion="tools/list shows what there is."))
    key = (ctx.meta or {}).get("devflow/idempotencyKey") or door_of(ctx).headers.get("idempotency-key")
    name = tool.name

    async def run(caller: Caller) -> dict[str, Any]:
        async with logs(ctx, _open_of(spec, caller)):
            outcome = await dispatcher.call(name, params.arguments, caller, idempotency_key=key)
        if isinstance(outcome.error, BackendFaultError):
            raise MCPError.from_error_data(outcome.error.error)
        return as_mcp(outcome)

    async with reporting(ctx, caller) as telling:
        try:
            return await asking.answered(ctx, telling, run, is_passed=True)
        except DevFlowError as exc:
            raise as_protocol_error(exc) from exc


# --- notifications --------------------------------------------------------------------------------------------------


async def _listen(ctx: Context, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
    """2026-07-28: one stream of change notices; it ends with the session it listens to, and the client asks again."""
    wanted = [str(uri) for uri in params.notifications.resource_subscriptions or ()]
    async with _noted(ctx, {"uris": wanted}) as (spec, caller):
        if len(wanted) > MAX_SUBSCRIPTIONS:
            raise invalid(f"A stream may listen to {MAX_SUBSCRIPTIONS} resources at most.")
        async with _admitted(spec, caller) as (session, _):
            door = door_of(ctx)

        async def is_on() -> bool:
            return not session.is_over and await is_welcome(door)

        with session.in_use():  # it is not idle while somebody listens
            async with changes_of(session, params.notifications, _seconds(spec)) as heard:
                return await live.listen(ctx, params, is_welcome=is_on, source=heard)


# --- the server -----------------------------------------------------------------------------------------------------


def _capabilities(session_has: types.ServerCapabilities, *, is_modern: bool) -> dict[str, Any]:
    """What of the backend's capabilities this endpoint can keep: updates of a resource are told on 2026-07-28's
    streams only, for a subscription is known to the one process that took it."""
    has = session_has.model_dump(by_alias=True, mode="json", exclude_none=True)
    kept: dict[str, Any] = {
        name: has[name] for name in ("tools", "prompts", "resources", "completions", "logging") if name in has
    }
    if "resources" in kept and not is_modern:
        kept["resources"] = {name: value for name, value in kept["resources"].items() if name != "subscribe"}
    return kept


async def _introduced(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Answer as the backend: its name, capabilities and instructions instead of ours."""
    result = await call_next(ctx)
    if ctx.request_id is None or not isinstance(result, dict):
        return result
    spec, is_modern = _spec_of(ctx), ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    if ctx.method in ("initialize", "server/discover"):
        async with _noted(ctx, {}) as (_, caller), _admitted(spec, caller) as (session, _):
            client = await session.client()
            result["capabilities"] = _capabilities(client.server_capabilities, is_modern=is_modern)
            result.pop("instructions", None)
            if client.instructions:
                result["instructions"] = client.instructions
            if "serverInfo" in result and client.server_info is not None:
                result["serverInfo"] = _dumped(client.server_info)
    if is_modern and (info := _open_of(spec, caller_of(ctx))) is not None and info.is_open:
        client = await info.client()
        if client.server_info is not None:
            result["_meta"] = {**(result.get("_meta") or {}), types.SERVER_INFO_META_KEY: _dumped(client.server_info)}
    return result


def _dumped(info: types.Implementation) -> dict[str, Any]:
    return info.model_dump(by_alias=True, mode="json", exclude_none=True)


def _mirrored_schema(name: str) -> Mapping[str, Any] | None:
    tool = federation.of(_at_work_for.get(), name)
    return tool.input_schema if tool is not None and tool.mirrors_headers else None


def build() -> Server[Any]:
    """One server for all backends: the request says which is meant."""
    passed = CacheHint(scope="private")
    server: Server[Any] = Server(
        "devflow",
        cache_hints={
            "tools/list": passed,
            "prompts/list": passed,
            "resources/list": passed,
            "resources/templates/list": passed,
            "resources/read": passed,
        },
        get_tool_input_schema=_mirrored_schema,
        on_subscriptions_listen=_listen,
    )
    server.add_request_handler("tools/list", types.PaginatedRequestParams, _list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, _call_tool)
    for method in _PASSED:
        server.add_request_handler(method, types.RequestParams, _pass)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, _pass)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _pass)
    server.middleware[:] = [_introduced]
    return server


class Passing(StreamableHttp):
    """The ASGI application behind the door."""

    methods = ("POST", "GET", "DELETE")

    def __init__(self, relay: Relay | None = None) -> None:
        super().__init__(build, relay)
        self._streams = NoticeStreams()

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        match = PATH.fullmatch(scope["path"])
        try:
            spec = await _backend(match[1] if match else "", scope[DOOR])
        except DevFlowError as exc:
            await refuse(send, 404 if exc.code is ErrorCode.NOT_FOUND else 403, exc)
            return
        token = _at_work_for.set(spec.id)
        try:
            await super().__call__({**scope, BACKEND: spec}, receive, send)
        finally:
            _at_work_for.reset(token)

    async def beside(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        """GET: a stream of what changes. DELETE: close what the client's session had open here."""
        door, spec = scope[DOOR], scope[BACKEND]
        try:
            caller = door.caller()
            if scope["method"] == "GET":
                return await self._notices(spec, caller, door, receive, send)
        except DevFlowError as exc:
            return await refuse(send, ERROR_TABLE[exc.code].http, exc)
        self._streams.close(spec.id, door.session)
        pool.forget_caller(caller_key(caller))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return None

    async def _notices(self, spec: BackendSpec, caller: Caller, door: Door, receive: Any, send: Any) -> None:
        """Raises what stands against a stream before it begins."""
        started, error = time.perf_counter(), None
        caller.facts["backend"] = spec.id

        async def is_on() -> bool:
            try:
                await _backend(spec.id, door)
            except DevFlowError as exc:
                return exc.code not in (ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN)
            except (DatabaseError, InterfaceError) as exc:
                logger.warning("whether the stream of %s may go on is not known: %s", spec.id, exc)
                return True
            return await is_welcome(door)

        try:
            if not accepted(door.headers)[1]:
                raise invalid("A stream is opened with `Accept: text/event-stream`.")
            await _pay(caller)
            with self._streams.one(spec.id, door.session) as stream:
                async with live.standing(stream, is_on):
                    await stream.serve(receive, send)
        except DevFlowError as exc:
            error = exc
            raise
        finally:
            audit.note("subscriptions/listen", caller, started=started, arguments={}, error=error)


async def _backend(identifier: str, door: Door) -> BackendSpec:
    """Raises `not_found`, or `forbidden` for one that is switched off or beyond the key."""
    if door.identity.toolsets and "gateway" not in door.identity.toolsets:
        raise forbidden("This key may not use backends: its toolsets do not name `gateway`.")
    snapshot = await catalog.current()
    if identifier not in snapshot.backends and await run_blocking(_is_switched_off, identifier):
        raise forbidden(f"The backend {identifier} is switched off.", suggestion="An administrator can switch it on.")
    return snapshot.backend(identifier)


def _is_switched_off(identifier: str) -> bool:
    return Backend.objects.filter(backend_id=identifier, is_enabled=False).exists()
