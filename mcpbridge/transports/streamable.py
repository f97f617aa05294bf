"""MCP Streamable HTTP at `/mcp`: stateless, any worker takes any request, both protocol eras.

The SDK's session manager speaks the protocol. Ours is the session id of the handshake revisions: a signed value that
names the client and its run, which every worker can verify and none has to store.
"""

import asyncio
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.core import signing
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import ClientCapabilities
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.asking import features_in
from mcpbridge.doors import DOOR, AsgiScope, Door, read_body, refuse, refuse_too_large
from mcpbridge.server import build_server
from mcpbridge.transports.ways import Relay, StreamedWay, handed_over, is_answer

SESSION_HEADER = b"mcp-session-id"
MAX_SESSION_ID = 2048
_MODERN = frozenset(version.encode() for version in MODERN_PROTOCOL_VERSIONS)


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one client, from its `initialize` on."""

    id: str
    key_id: int
    client: str
    features: frozenset[str] = frozenset()
    """What the client can be asked (`asking.EVERYTHING`)."""


@lru_cache(maxsize=1)
def _signer() -> signing.Signer:
    return signing.Signer(salt="devflow.mcp.session")


def new_session_id(key_id: int, client: str, features: frozenset[str] = frozenset()) -> str:
    """A fresh signed session id: visible ASCII, bound to the key that opened it."""
    return _signer().sign_object([secrets.token_hex(8), key_id, client[:100], sorted(features)])


def session_behind(value: str) -> Session | None:
    """The session a header names, or None when its signature is not ours."""
    return _unsigned(value) if len(value) <= MAX_SESSION_ID else None


@lru_cache(maxsize=4096)
def _unsigned(value: str) -> Session | None:
    try:
        identifier, key_id, client, features = _signer().unsign_object(value)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return Session(identifier, key_id, client, frozenset(features))


def _initializing_client(body: bytes) -> tuple[str, frozenset[str]] | None:
    """The client's name, and what it can be asked, if this is an `initialize` request."""
    if b'"initialize"' not in body:
        return None
    try:
        message = json.loads(body)
        if message.get("method") != "initialize":
            return None
        name = message["params"]["clientInfo"]["name"]
        features = features_in(ClientCapabilities.model_validate(message["params"]["capabilities"], by_name=False))
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return None
    return (name, features) if isinstance(name, str) else None


async def _acknowledged(send: Any, status: int) -> None:
    """What a client hears of the answer it posted."""
    if status == 202:
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
    elif status == 503:
        busy = DevFlowError(ErrorCode.UNAVAILABLE, "The answer cannot be brought on just now.", retry_after_ms=1000)
        await refuse(send, 503, busy, (b"retry-after", b"1"))
    else:
        unknown = DevFlowError(ErrorCode.NOT_FOUND, "No call waits for this answer.")
        await refuse(send, status, unknown)


class StreamableHttp:
    """The ASGI application behind the door; `run()` must be running on the same event loop."""

    def __init__(
        self, build: Callable[[], Server[Any]] = lambda: build_server(stateful=False), relay: Relay | None = None
    ) -> None:
        self._build = build
        self._relay = relay
        self._manager: StreamableHTTPSessionManager | None = None

    async def run(self, ready: "asyncio.Future[None]") -> None:
        """Serve until cancelled; `ready` is done once requests can come."""
        manager = StreamableHTTPSessionManager(self._build(), stateless=True)
        async with manager.run():
            self._manager = manager
            ready.set_result(None)
            try:
                await asyncio.Event().wait()
            finally:
                self._manager = None

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        manager = self._manager
        door: Door = scope[DOOR]
        if scope["method"] != "POST":
            error = DevFlowError(
                ErrorCode.INVALID_INPUT,
                "This endpoint keeps no stream open; POST one JSON-RPC message.",
                suggestion="Notifications arrive through subscriptions/listen (2026-07-28) or /mcp/sse.",
            )
            return await refuse(send, 405, error, (b"allow", b"POST"))
        if manager is None:
            away = DevFlowError(ErrorCode.UNAVAILABLE, "The server is starting or stopping.", retry_after_ms=1000)
            return await refuse(send, 503, away, (b"retry-after", b"1"))
        presented = door.headers.get("mcp-session-id")
        if presented is not None:
            session = session_behind(presented)
            if session is None or session.key_id != door.identity.scope.key_id:
                lost = DevFlowError(
                    ErrorCode.NOT_FOUND, "Unknown session.", suggestion="Send initialize to open a new session."
                )
                return await refuse(send, 404, lost)
            door.session, door.client = session.id, session.client
            if session.features and self._relay is not None:
                door.features = session.features
                body, receive = await read_body(receive)
                if body is None:
                    return await refuse_too_large(send)
                if is_answer(body):
                    return await _acknowledged(send, await handed_over(body, session.id, self._relay))
                door.way = way = StreamedWay(send, self._relay)
                send = way.passing
        elif door.headers.get("mcp-protocol-version", "").encode() not in _MODERN:
            body, receive = await read_body(receive)
            if body is None:
                return await refuse_too_large(send)
            if (client := _initializing_client(body)) is not None:
                opened = new_session_id(door.identity.scope.key_id, *client)
                if (session := session_behind(opened)) is not None:
                    door.session, door.client = session.id, session.client
                    door.features = session.features if self._relay is not None else frozenset()
                send = self._with_session(send, opened)
        await manager.handle_request(scope, receive, send)
        return None

    @staticmethod
    def _with_session(send: Any, session_id: str) -> Any:
        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                message = {**message, "headers": [*message["headers"], (SESSION_HEADER, session_id.encode())]}
            await send(message)

        return sending
