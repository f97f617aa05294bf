"""MCP Streamable HTTP at `/mcp`: stateless, any worker takes any request, both protocol eras.

The SDK speaks the protocol: its session manager 2026-07-28 and whatever is no request, its kernel the requests of the
handshake revisions (`exchange`). Ours is the session id of those: a signed value that names the client and its run,
which every worker can verify and none has to store.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.core import signing
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import (
    DEFAULT_NEGOTIATED_VERSION,
    ClientCapabilities,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.requests import Request

from devflow.errors import DevFlowError, ErrorCode
from devflow.events import bus
from mcpbridge.asking import features_in
from mcpbridge.doors import DOOR, AsgiScope, Door, read_body, refuse, refuse_too_large
from mcpbridge.server import build_server
from mcpbridge.transports import exchange
from mcpbridge.transports.exchange import Exchange
from mcpbridge.transports.relay import Relay, handed_over

SESSION_HEADER = b"mcp-session-id"
MAX_SESSION_ID = 2048
MAX_ACCEPT = 1000


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


def _initializing_client(message: JSONRPCRequest) -> tuple[str, frozenset[str]] | None:
    """The client's name, and what it can be asked, if this is an `initialize` request."""
    if message.method != "initialize" or message.params is None:
        return None
    try:
        name = message.params["clientInfo"]["name"]
        features = features_in(ClientCapabilities.model_validate(message.params["capabilities"], by_name=False))
    except (ValidationError, KeyError, TypeError):
        return None
    return (name, features) if isinstance(name, str) else None


def accepted(headers: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether a client takes JSON, and whether it takes a stream of events."""
    return _accepted(headers.get("accept", "")[:MAX_ACCEPT])


@lru_cache(maxsize=256)
def _accepted(accept: str) -> tuple[bool, bool]:
    return check_accept_headers(Request({"type": "http", "headers": [(b"accept", accept.encode("latin-1"))]}))


def _may_be_answered(headers: Mapping[str, str]) -> bool:
    """Whether these headers ask for what MCP speaks; the SDK refuses those that do not."""
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return content_type == "application/json" and all(accepted(headers))


def _message_in(body: bytes) -> JSONRPCMessage | None:
    """What was posted; None is no message, and the SDK's to refuse."""
    try:
        return jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError:
        return None


async def refuse_method(send: Any) -> None:
    error = DevFlowError(
        ErrorCode.INVALID_INPUT,
        "This endpoint keeps no stream open; POST one JSON-RPC message.",
        suggestion="Notifications arrive through subscriptions/listen (2026-07-28) or /mcp/sse.",
    )
    await refuse(send, 405, error, (b"allow", b"POST"))


async def _acknowledged(send: Any, status: int) -> None:
    """What a client hears of the answer it posted."""
    if status == 202:
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
    elif status == 503:
        busy = DevFlowError(ErrorCode.UNAVAILABLE, "The answer cannot be brought on just now.", retry_after_ms=1000)
        await refuse(send, 503, busy, (b"retry-after", b"1"))
    else:  # not 404, which tells a client that its session is gone
        await refuse(send, 400, DevFlowError(ErrorCode.NOT_FOUND, "No call waits for this answer."))


class StreamableHttp:
    """The ASGI application behind the door; `run()` must be running on the same event loop."""

    methods: tuple[str, ...] = ("POST",)

    def __init__(
        self, build: Callable[[], Server[Any]] = lambda: build_server(stateful=False), relay: Relay | None = None
    ) -> None:
        self._build = build
        self._relay = relay
        self._manager: StreamableHTTPSessionManager | None = None

    async def run(self, ready: "asyncio.Future[None]") -> None:
        """Serve until cancelled; `ready` is done once requests can come."""
        manager = StreamableHTTPSessionManager(self._build(), stateless=True)
        leave = bus.subscribe(exchange.hear)
        try:
            async with manager.run():
                self._manager = manager
                ready.set_result(None)
                await asyncio.Event().wait()
        finally:
            self._manager = None
            leave()

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        door: Door = scope[DOOR]
        if scope["method"] not in self.methods:
            return await refuse_method(send)
        manager = self._manager
        if manager is None:
            away = DevFlowError(ErrorCode.UNAVAILABLE, "The server is starting or stopping.", retry_after_ms=1000)
            return await refuse(send, 503, away, (b"retry-after", b"1"))
        presented = door.headers.get("mcp-session-id")
        session = session_behind(presented) if presented is not None else None
        if presented is not None and (session is None or session.key_id != door.identity.scope.key_id):
            lost = DevFlowError(
                ErrorCode.NOT_FOUND, "Unknown session.", suggestion="Send initialize to open a new session."
            )
            return await refuse(send, 404, lost)
        if session is not None:
            self._recognize(session, door)
        if scope["method"] != "POST":
            return await (self.beside(scope, receive, send) if session is not None else refuse_method(send))
        version = door.headers.get("mcp-protocol-version", DEFAULT_NEGOTIATED_VERSION)
        if version in HANDSHAKE_PROTOCOL_VERSIONS:
            return await self._of_handshake(manager, version, session, scope, receive, send)
        return await manager.handle_request(scope, receive, send)

    async def beside(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        """Serve what `methods` has besides POST, to a client with a session."""
        raise NotImplementedError

    def _recognize(self, session: Session, door: Door) -> None:
        door.session, door.client = session.id, session.client
        if self._relay is not None:
            door.features = session.features

    async def _of_handshake(
        self,
        manager: StreamableHTTPSessionManager,
        version: str,
        session: Session | None,
        scope: AsgiScope,
        receive: Any,
        send: Any,
    ) -> None:
        door, relay = scope[DOOR], self._relay
        body, replay = await read_body(receive)
        if body is None:
            return await refuse_too_large(send)
        message = _message_in(body)
        if relay is not None and session is not None and isinstance(message, JSONRPCResponse | JSONRPCError):
            return await _acknowledged(send, await handed_over(message, body, session.id, relay))
        if session is not None and (identifier := exchange.cancelled(message)) is not None:
            exchange.cancel(session.id, identifier)
        if not isinstance(message, JSONRPCRequest) or not _may_be_answered(door.headers):
            return await manager.handle_request(scope, replay, send)
        headers: tuple[tuple[bytes, bytes], ...] = ()
        if session is None and (client := _initializing_client(message)) is not None:
            opened = new_session_id(door.identity.scope.key_id, *client)
            headers = ((SESSION_HEADER, opened.encode()),)
            if (session := session_behind(opened)) is not None:
                self._recognize(session, door)
        at_work = Exchange(message, scope, receive, send, session=door.session, relay=relay, headers=headers)
        if door.features:
            door.way = at_work
        return await at_work.answer(manager.app, version)
