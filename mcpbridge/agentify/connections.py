"""The document's methods on the connections of the MCP server: the whole lifecycle where one stays open (SSE, stdio),
`agentify/orchestrateTask` alone on stateless `/mcp`.

The SDK reserves `initialize`, so its options are taken from it in a middleware; MCP's own handshake goes on as it is.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

import mcp.types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ConfigDict

from mcpbridge.agentify import protocol
from mcpbridge.agentify.protocol import RpcError, Session
from mcpbridge.subscriptions import Subscriptions
from mcpbridge.tooling import Caller

Context = ServerRequestContext[Any, Any]
CallerOf = Callable[[Context], Caller]


class _Params(types.RequestParams):
    """Whatever was sent: `protocol` reads it, from the context, as it came."""

    model_config = ConfigDict(extra="allow")


_sessions: "WeakKeyDictionary[Subscriptions, Session]" = WeakKeyDictionary()
"""Of connections that stay open, by what the server keeps for each of them."""


@asynccontextmanager
async def lifespan(server: Server[Any]) -> AsyncIterator[Subscriptions]:
    """A connection's life, at the end of which its session's backends end too."""
    async with Subscriptions.lifespan(server) as found:
        try:
            yield found
        finally:
            if (session := _sessions.pop(found, None)) is not None:
                await session.close()


def _of(ctx: Context) -> Session:
    """The session of a connection; one that has had no options yet is made with none."""
    session = _sessions.get(ctx.lifespan_context)
    if session is None:
        session = _sessions[ctx.lifespan_context] = Session()
    return session


def add_methods(server: Server[Any], caller_of: CallerOf, *, stateful: bool) -> None:
    if not stateful:
        server.add_request_handler(protocol.ORCHESTRATE, _Params, _stateless(caller_of))
        return

    async def orchestrate(ctx: Context, params: _Params) -> dict[str, Any]:
        if ctx.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:  # 2026-07-28 has no initialize
            return await _said(protocol.orchestrate_stateless(_given(ctx), caller_of(ctx)))
        return await _said(_of(ctx).orchestrate(_given(ctx), caller_of(ctx)))

    async def confirm(ctx: Context, params: _Params) -> dict[str, Any]:
        return await _said(_of(ctx).confirm(_given(ctx), caller_of(ctx)))

    async def end(ctx: Context, params: _Params) -> dict[str, Any]:
        await _of(ctx).close()
        return {}

    async def end_unasked(ctx: Context, params: _Params) -> None:
        await _of(ctx).close()

    async def initialize(ctx: Context, call_next: CallNext) -> HandlerResult:
        session = _of(ctx)
        if _given(ctx).get("initializationOptions") is None:
            answer = await call_next(ctx)
            session.is_open = True
            return answer
        try:
            await session.initialize(ctx.params, caller_of(ctx))
        except RpcError as exc:
            raise _as_mcp(exc) from None
        try:
            return await call_next(ctx)
        except BaseException:
            await session.close()
            raise

    async def before(ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == protocol.INITIALIZE and ctx.request_id is not None:
            return await initialize(ctx, call_next)
        is_ours = ctx.method in (protocol.ORCHESTRATE, protocol.CONFIRM)
        if is_ours and ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS and not _of(ctx).is_open:
            raise _as_mcp(RpcError(protocol.NOT_INITIALIZED, "The gateway is not initialized: send initialize first."))
        return await call_next(ctx)

    server.add_request_handler(protocol.ORCHESTRATE, _Params, orchestrate)
    server.add_request_handler(protocol.CONFIRM, _Params, confirm)
    for method in (protocol.SHUTDOWN, protocol.EXIT):
        server.add_request_handler(method, _Params, end)
        server.add_notification_handler(method, _Params, end_unasked)
    server.middleware.append(before)


def _stateless(caller_of: CallerOf) -> Callable[[Context, _Params], Awaitable[dict[str, Any]]]:
    async def orchestrate(ctx: Context, params: _Params) -> dict[str, Any]:
        return await _said(protocol.orchestrate_stateless(_given(ctx), caller_of(ctx)))

    return orchestrate


def _given(ctx: Context) -> dict[str, Any]:
    return dict(ctx.params or {})


async def _said(answer: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    try:
        return await answer
    except RpcError as exc:
        raise _as_mcp(exc) from None


def _as_mcp(error: RpcError) -> MCPError:
    return MCPError(error.code, error.message, error.data or None)
