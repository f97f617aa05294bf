"""MCP over HTTP+SSE: `GET /mcp/sse` holds the stream, `POST /mcp/messages/` brings the client's messages.

A stream lives in the worker that took its GET. Its POSTs may land on any: the signed session id names the worker's
channel, the message travels there over the channel layer, and an acknowledgement comes back, so that 202, 404 and 503
mean what they say. Agent, project and exposure of a stream are those of its GET.
"""

import asyncio
import logging
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import anyio
from channels.consumer import get_handler_name
from channels.exceptions import ChannelFull, StopConsumer
from channels.generic.http import AsyncHttpConsumer
from channels.layers import InMemoryChannelLayer, get_channel_layer
from django.core import signing
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError
from redis import RedisError

from devflow import config
from devflow.drain import draining
from devflow.errors import DevFlowError, ErrorCode
from mcpbridge import access, asking
from mcpbridge.doors import DOOR, AsgiScope, Door, read_body, refuse, refuse_too_large
from mcpbridge.transports.connection import Connection, Taken
from mcpbridge.transports.events import HEADERS, PING

logger = logging.getLogger(__name__)

CHANNEL_PREFIX = "devflow.mcp"
MESSAGES_PATH = "/mcp/messages/"
MAX_SESSION_ID = 1024


@dataclass
class Timing:
    """Seconds: between two pings; a reader may block a write; a POST stays deliverable; its acknowledgement may be
    late; between two looks at the keys of open streams."""

    ping: float = 15.0
    write: float = 10.0
    deliver: float = 5.0
    acknowledge: float = 1.0
    look: float = 1.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where the stream behind a session id lives, and whose it is."""

    channel: str
    key_id: int
    session: str


@lru_cache(maxsize=1)
def _signer() -> signing.Signer:
    return signing.Signer(salt="devflow.mcp.sse")


def signed(address: Address) -> str:
    return _signer().sign_object([address.channel, address.key_id, address.session])


def address_behind(session_id: str) -> Address | None:
    """The address in a signed session id, or None when the signature is not ours."""
    return _unsigned(session_id) if len(session_id) <= MAX_SESSION_ID else None


@lru_cache(maxsize=4096)
def _unsigned(session_id: str) -> Address | None:
    try:
        return Address(*_signer().unsign_object(session_id))
    except (signing.BadSignature, ValueError, TypeError):
        return None


class Sse:
    """Both ends of the transport in one worker; `run()` must be running on the same event loop."""

    def __init__(self) -> None:
        self.timing = Timing()
        self.streams: dict[str, Stream] = {}
        self.channel = ""
        self._acknowledged: dict[str, asyncio.Future[int]] = {}
        self._consumer: Any = Stream.as_asgi(sse=self)

    # GET

    async def stream(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        """The ASGI application of `/mcp/sse`, behind the door."""
        if not config.current().mcp_gateway.sse_enabled:
            return await _no_sse(send)
        if scope["method"] != "GET":
            error = DevFlowError(ErrorCode.INVALID_INPUT, f"Open the stream with GET, POST to {MESSAGES_PATH}.")
            return await refuse(send, 405, error, (b"allow", b"GET"))
        if draining.is_set() or not self.channel:
            away = DevFlowError(ErrorCode.UNAVAILABLE, "The server is starting or stopping.", retry_after_ms=1000)
            return await refuse(send, 503, away, (b"retry-after", b"1"))
        door: Door = scope[DOOR]
        door.session = self._session_to_resume(door) or secrets.token_hex(8)
        await self._consumer(scope, receive, send)
        return None

    @staticmethod
    def _session_to_resume(door: Door) -> str | None:
        """A client whose stream broke presents its session id in `Mcp-Session-Id`, to keep what it has claimed."""
        earlier = address_behind(door.headers.get("mcp-session-id", ""))
        return earlier.session if earlier is not None and earlier.key_id == door.identity.scope.key_id else None

    # POST

    async def messages(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        """The ASGI application of `/mcp/messages/`, behind the door."""
        if not config.current().mcp_gateway.sse_enabled:
            return await _no_sse(send)
        if scope["method"] != "POST":
            error = DevFlowError(ErrorCode.INVALID_INPUT, "POST one JSON-RPC message; GET /mcp/sse opens the stream.")
            return await refuse(send, 405, error, (b"allow", b"POST"))
        door: Door = scope[DOOR]
        address = address_behind(door.query.get("session_id", ""))
        if address is None or address.key_id != door.identity.scope.key_id:
            return await _answer(send, Taken.GONE)
        body, _ = await read_body(receive)
        if body is None:
            return await refuse_too_large(send)
        try:
            message = jsonrpc_message_adapter.validate_json(body, by_name=False)
        except ValidationError:
            malformed = DevFlowError(ErrorCode.INVALID_INPUT, "The body is not a JSON-RPC message.")
            return await refuse(send, 400, malformed)
        if address.channel == self.channel:
            return await _answer(send, self._take(address.session, message))
        return await _answer(send, await self._forward(address, body))

    def _take(self, session: str, message: JSONRPCMessage) -> int:
        if (stream := self.streams.get(session)) is not None:
            return stream.connection.take(message)
        if isinstance(message, JSONRPCResponse | JSONRPCError) and asking.take(session, message):
            return Taken.ACCEPTED  # from a client of Streamable HTTP
        return Taken.GONE

    async def bring(self, channel: str, session: str, body: bytes) -> int:
        """Bring a message to the process behind `channel` (`relay.Relay`)."""
        return await self._forward(Address(channel, 0, session), body)

    async def _forward(self, address: Address, body: bytes) -> int:
        """Bring a message to the worker that holds the stream; what is not acknowledged in time never runs there."""
        layer: Any = get_channel_layer()
        if isinstance(layer, InMemoryChannelLayer):
            return Taken.GONE  # an earlier process's: nobody else can hold a stream
        ticket = secrets.token_hex(8)
        acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._acknowledged[ticket] = acknowledged
        letter = {
            "session": address.session,
            "body": body.decode(),
            "deadline": time.time() + self.timing.deliver,
            "reply": self.channel,
            "ticket": ticket,
        }
        try:
            async with asyncio.timeout(self.timing.deliver + self.timing.acknowledge):
                await layer.send(address.channel, letter)
                return await acknowledged
        except TimeoutError:
            return Taken.GONE
        except (OSError, RedisError, ChannelFull) as exc:
            logger.warning("a message could not be brought to its stream: %s", exc)
            return Taken.BUSY
        finally:
            del self._acknowledged[ticket]

    # The worker's own channel

    async def run(self) -> None:
        """Receive what other workers bring, and watch over the open streams, until cancelled."""
        watch = asyncio.create_task(self._watch())
        layer: Any = get_channel_layer()
        try:
            while not self.channel:
                try:
                    self.channel = await layer.new_channel(CHANNEL_PREFIX)
                except (OSError, RedisError) as exc:
                    logger.warning("the channel layer is away, trying again: %s", exc)
                    await asyncio.sleep(1)
            while True:
                await self._open_letter(layer, await layer.receive(self.channel))
        finally:
            self.channel = ""
            watch.cancel()

    async def _open_letter(self, layer: Any, letter: dict[str, Any]) -> None:
        if "status" in letter:
            waiting = self._acknowledged.get(letter["ticket"])
            if waiting is not None and not waiting.done():
                waiting.set_result(letter["status"])
            return
        if letter["deadline"] < time.time():
            return
        message = jsonrpc_message_adapter.validate_json(letter["body"], by_name=False)
        status = self._take(letter["session"], message)
        try:
            await layer.send(letter["reply"], {"ticket": letter["ticket"], "status": int(status)})
        except (OSError, RedisError, ChannelFull) as exc:
            logger.warning("an acknowledgement was lost: %s", exc)

    # All streams of this worker

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.timing.look)
            try:
                await self._end_refused()
            except DevFlowError as exc:
                logger.warning("the keys of open streams could not be checked: %s", exc)

    async def _end_refused(self) -> None:
        """End the streams whose key was revoked or has expired; the others go by what their key may do now."""
        by_key: dict[str, list[Stream]] = {}
        for stream in self.streams.values():
            by_key.setdefault(access.key_in(stream.connection.door.headers), []).append(stream)
        for key, streams in by_key.items():
            try:
                identity = await access.identify(key)
            except DevFlowError as exc:
                if exc.code is not ErrorCode.UNAUTHENTICATED:
                    raise
                for stream in streams:
                    stream.connection.end()
            else:
                for stream in streams:
                    stream.connection.door.identity = identity

    def drain(self) -> None:
        """Let every stream end after its last answer."""
        for stream in list(self.streams.values()):
            stream.connection.drain()


async def _no_sse(send: Any) -> None:
    error = DevFlowError(ErrorCode.NOT_FOUND, "SSE is switched off here; use /mcp.", suggestion="Connect to /mcp.")
    await refuse(send, 404, error)


async def _answer(send: Any, status: int) -> None:
    if status == Taken.GONE:
        lost = DevFlowError(ErrorCode.NOT_FOUND, "Unknown session.", suggestion="Open a new stream at /mcp/sse.")
        return await refuse(send, 404, lost)
    if status == Taken.BUSY:
        busy = DevFlowError(ErrorCode.UNAVAILABLE, "Too many calls of this session are at work.", retry_after_ms=1000)
        return await refuse(send, 503, busy, (b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"8")]})
    await send({"type": "http.response.body", "body": b"Accepted"})
    return None


class Stream(AsyncHttpConsumer):
    """One `GET /mcp/sse`.

    `http_request` only starts the session: the base class would have it run inside the dispatch loop, which then
    would not see the client go.
    """

    channel_layer_alias = ""  # messages come through the worker's channel; one per stream would cost each a task

    def __init__(self, sse: Sse) -> None:
        super().__init__()
        self._sse = sse
        self._session: asyncio.Task[None] | None = None
        self._pings: set[asyncio.Task[None]] = set()
        self._next_ping: asyncio.TimerHandle | None = None
        self._is_over = False

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._stop()

    async def dispatch(self, message: dict[str, Any]) -> None:
        # Not the base class's: it would visit a thread first, to close database connections a stream never opens.
        await getattr(self, get_handler_name(message))(message)

    async def http_request(self, message: dict[str, Any]) -> None:
        if self._session is None:
            self.connection = Connection(self.scope[DOOR], self._deliver)
            self._session = asyncio.create_task(self._run())

    async def http_disconnect(self, message: dict[str, Any]) -> None:
        self._is_over = True
        raise StopConsumer

    async def _stop(self) -> None:
        if self._session is not None:
            self._session.cancel()
            await asyncio.gather(self._session, return_exceptions=True)
            await self._finish()

    async def _run(self) -> None:
        door = self.connection.door
        streams = self._sse.streams
        if (earlier := streams.get(door.session)) is not None:
            earlier.connection.end()
        streams[door.session] = self
        try:
            await self._open(door)
            if draining.is_set():
                self.connection.drain()
            self._next_ping = asyncio.get_running_loop().call_later(self._sse.timing.ping, self._ping)
            await self.connection.serve()
        except anyio.BrokenResourceError:
            pass  # the reader was given up
        except Exception:
            logger.exception("an SSE session ended with a fault")
        finally:
            if streams.get(door.session) is self:
                del streams[door.session]
            self.connection.close()
            if self._next_ping is not None:
                self._next_ping.cancel()
            for ping in self._pings:
                ping.cancel()
        await self._finish()

    async def _finish(self) -> None:
        """End the response with an empty body, so that the client knows it did not break."""
        if not self._is_over:
            self._is_over = True
            with suppress(anyio.BrokenResourceError):
                await self._write(b"", last=True)

    async def _open(self, door: Door) -> None:
        await self.send_headers(headers=HEADERS)
        session_id = signed(Address(self._sse.channel, door.identity.scope.key_id, door.session))
        await self._event("endpoint", f"{self.scope.get('root_path', '')}{MESSAGES_PATH}?session_id={session_id}")

    async def _deliver(self, message: JSONRPCMessage) -> None:
        await self._event("message", message.model_dump_json(by_alias=True, exclude_unset=True))

    async def _event(self, name: str, data: str) -> None:
        await self._write(f"event: {name}\r\ndata: {data}\r\n\r\n".encode())

    async def _write(self, data: bytes, *, last: bool = False) -> None:
        """Write, or give up a client that takes nothing. Raises `BrokenResourceError` then."""
        try:
            async with asyncio.timeout(self._sse.timing.write):
                await self.send_body(data, more_body=not last)
        except TimeoutError:
            logger.warning("an SSE client stopped reading; its connection is closed")
            self._abort()
            raise anyio.BrokenResourceError from None

    def _abort(self) -> None:
        """Drop the connection with what is still buffered: ASGI has no word for it, uvicorn's transport has."""
        self._is_over = True
        self.connection.end()
        transport = getattr(getattr(self.base_send, "__self__", None), "transport", None)
        if transport is not None:
            transport.abort()

    def _ping(self) -> None:
        loop = asyncio.get_running_loop()
        self._next_ping = loop.call_later(self._sse.timing.ping, self._ping)
        if not self.connection.is_writing and not self._pings:
            ping = loop.create_task(self._send_ping())
            self._pings.add(ping)
            ping.add_done_callback(self._pings.discard)

    async def _send_ping(self) -> None:
        try:
            await self._write(PING)
        except anyio.BrokenResourceError:
            return
