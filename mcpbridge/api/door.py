"""What stands before every REST path, before Django reads a byte of the body: key, Host and Origin, size.

ASGI middleware round Django's application. `/mcp/execute` and `/mcp/batch` end here: their DRF views are called on
the event loop without Django's middleware, whose thread hops cost more than the call itself and which has nothing
to do for a request with a key and no cookie.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import lru_cache
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponseBase, parse_cookie

from devflow import config, multipart
from devflow.digits import whole
from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode
from mcpbridge import access, audit, doors, ratelimit
from mcpbridge.api.authentication import too_many_refusals
from mcpbridge.api.problems import failure
from mcpbridge.doors import DOOR, MAX_BODY, AsgiApp, AsgiScope, Door
from mcpbridge.threads import run_blocking

HEALTH = "/mcp/health"
ROWS = "/api/v1/"
"""Each request here costs one of the key's budget, as a call does; the tools' own paths are charged per call."""
View = Callable[[ASGIRequest], Awaitable[HttpResponseBase]]


def _takes_keys_only(path: str) -> bool:
    return path.startswith("/mcp/") or path == "/metrics"


def _takes_keys(path: str) -> bool:
    return _takes_keys_only(path) or path.startswith("/api/")


@lru_cache(maxsize=1)
def _direct() -> Mapping[str, View]:
    from mcpbridge.api.gateway_views import GatewayView
    from mcpbridge.api.orchestrate_views import OrchestrateView
    from mcpbridge.api.views import BatchView, ExecuteView

    views: dict[str, Any] = {
        "/mcp/execute": ExecuteView.as_view(),
        "/mcp/batch": BatchView.as_view(),
        "/mcp/gateway": GatewayView.as_view(),
        "/mcp/orchestrate": OrchestrateView.as_view(),
    }
    return views


async def _most_bytes(scope: AsgiScope, headers: Mapping[str, str]) -> int:
    """Bytes the body may have: Django keeps it on disk before it asks who sent it, so only who is known sends files."""
    if not multipart.takes_files(scope["path"]):
        return MAX_BODY
    is_known = DOOR in scope or await run_blocking(_is_logged_in, headers.get("cookie", ""))
    return multipart.most_body() if is_known else MAX_BODY


def _is_logged_in(cookies: str) -> bool:
    return SESSION_KEY in SessionStore(parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME))


def _too_large(most: int) -> DevFlowError:
    return DevFlowError(ErrorCode.TOO_LARGE, f"A body may have {most} bytes at most.")


class RestDoor:
    """Let a request through to Django (machine paths with a `Door` in their scope), or answer 401, 421, 403 or 413."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path: str = scope["path"]
        headers = doors.headers_of(scope)
        if _takes_keys(path):
            presented = "x-api-key" in headers or "authorization" in headers
            if presented or (_takes_keys_only(path) and path != HEALTH):
                try:
                    identity = await access.identify(access.key_in(headers))
                except DevFlowError as exc:
                    return await self._refuse_key(scope, send, exc)
                query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
                scope = {**scope, DOOR: Door(identity=identity, transport="rest", headers=headers, query=query)}
            if fault := doors.fault_of_place(headers):
                status, message = fault
                return await _refuse(path, send, DevFlowError(ErrorCode.FORBIDDEN, message), status)
            if path.startswith(ROWS) and DOOR in scope:
                try:
                    await ratelimit.spend(scope[DOOR].identity)
                except DevFlowError as exc:
                    return await _refuse(path, send, exc)
        declared, most = whole(headers.get("content-length", "0"), digits=19), await _most_bytes(scope, headers)
        if declared is None or declared > most:
            return await _refuse(path, send, _too_large(most), closing=True)
        if DOOR in scope and (view := _direct().get(path)) is not None:
            return await _serve(view, scope, receive, send)
        if path.startswith(ROWS) and DOOR in scope:
            send = _recording(scope, send)
        return await self.app(scope, _bounded(receive, path, send, most), send)

    @staticmethod
    async def _refuse_key(scope: AsgiScope, send: Any, error: DevFlowError) -> None:
        if error.code is not ErrorCode.UNAUTHENTICATED:
            return await _refuse(scope["path"], send, error)
        address = (scope.get("client") or ("", 0))[0]
        count = run_blocking(doors.failed_too_often, address) if config.current().redis_url else None
        wait = await count if count is not None else doors.failed_too_often(address)
        return await _refuse(scope["path"], send, too_many_refusals(wait) if wait else error)


async def _refuse(path: str, send: Any, error: DevFlowError, status: int | None = None, closing: bool = False) -> None:
    status, media_type, body, headers = failure(path, error, status=status)
    if closing:  # the unread rest of the body would be taken for the next request
        headers["Connection"] = "close"
    await _send(send, status, {"Content-Type": media_type, **headers}, json.dumps(body).encode())


async def _send(send: Any, status: int, headers: Mapping[str, str], body: bytes) -> None:
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    raw += [(b"content-length", str(len(body)).encode()), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _recording(scope: AsgiScope, send: Any) -> Any:
    """A `send` that puts the request into the log of calls once its answer starts."""
    door: Door = scope[DOOR]
    started = time.perf_counter()

    async def recording(message: Any) -> None:
        if message["type"] == "http.response.start":
            status = message["status"]
            code = next((code for code, row in ERROR_TABLE.items() if row.http == status), ErrorCode.INVALID_INPUT)
            try:
                caller = access.caller_for(door.identity, transport="rest", headers=door.headers, query=door.query)
            except DevFlowError:  # a malformed agent id: that is why the answer is a refusal
                caller = access.caller_for(door.identity, transport="rest")
            error = DevFlowError(code, f"answered {status}") if status >= 400 else None
            audit.note(f"{scope['method']} {scope['path']}", caller, started=started, error=error)
        await send(message)

    return recording


def _bounded(receive: Any, path: str, send: Any, most: int) -> Any:
    """A `receive` that answers 413 itself once a body of undeclared length has grown too large."""
    size = 0

    async def counting() -> Any:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most:
            await _refuse(path, send, _too_large(most), closing=True)
            return {"type": "http.disconnect"}
        return message

    return counting


async def _stream(response: Any, receive: Any, send: Any) -> None:
    """Send an answer in the pieces it comes in. Once the client is gone, nobody makes the next one."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def pieces() -> None:
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
        raw.append((b"x-content-type-options", b"nosniff"))
        await send({"type": "http.response.start", "status": response.status_code, "headers": raw})
        async with aclosing(response.streaming_content) as content:
            async for piece in content:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    sending, leaving = asyncio.ensure_future(pieces()), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending


async def _serve(view: View, scope: AsgiScope, receive: Any, send: Any) -> None:
    """Call a DRF view on the loop with the whole body at hand."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            await _refuse(scope["path"], send, _too_large(MAX_BODY), closing=True)
            return
        if not message.get("more_body", False):
            break
    request = ASGIRequest(scope, BytesIO(b"".join(parts)))
    request.META["CONTENT_LENGTH"] = str(size)  # a chunked body names none, and DRF would take it for an empty one
    response: Any = await view(request)
    if response.streaming:
        await _stream(response, receive, send)
        return
    response.render()
    await _send(send, response.status_code, dict(response.items()), response.content)
