"""One request of the handshake revisions on a stateless endpoint, and its answer.

The SDK's transport opens a session, four streams and six tasks for each POST of these revisions. Its kernel
(`serve_one`) needs none of them: it answers here as it does for 2026-07-28. The answer is plain JSON, or a stream once
something has to be said before it.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_one
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import (
    cancelled_request_id_from_params,
    handler_exception_to_error_data,
    progress_token_from_params,
)
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, RequestId
from starlette.requests import Request

from devflow.errors import DevFlowError, ErrorCode
from devflow.events import NO_PROJECT, LiveEvent, bus
from mcpbridge.transports.events import HEADERS, PING, encoded, event_of
from mcpbridge.transports.relay import Relay

logger = logging.getLogger(__name__)

PING_SECONDS = 15.0
MAX_ID = 1000
CANCELLED = "mcp.cancelled"
_TRANSPORT = TransportContext(kind="streamable-http", can_send_request=False)


class Exchange:
    """A request and the way back to its client: the SDK's `DispatchContext`, and a `doors.Way`. `headers` stand in the
    answer."""

    transport = _TRANSPORT
    can_send_request = False

    def __init__(
        self,
        message: JSONRPCRequest,
        scope: Any,
        receive: Any,
        send: Any,
        *,
        session: str = "",
        relay: Relay | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self._relay = relay
        self._key = session, message.id
        self.request_id = message.id
        self.message_metadata = ServerMessageMetadata(request_context=Request(scope, receive))
        self.cancel_requested = anyio.Event()
        self._message = message
        self._progress_token = progress_token_from_params(message.params)
        self._receive, self._send, self._headers = receive, send, headers
        self._task: asyncio.Task[Any] | None = None
        self._turn = asyncio.Lock()
        self._is_stream = self._is_over = self._is_left = self._is_given_up = False

    @property
    def channel(self) -> str:
        return self._relay.channel if self._relay is not None else ""

    # --- to the client ----------------------------------------------------------------------------------------------

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = dict(params)
        await self._say(event_of(message))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self._progress_token is None:
            return
        said = {"progressToken": self._progress_token, "progress": progress, "total": total, "message": message}
        await self.notify("notifications/progress", {name: value for name, value in said.items() if value is not None})

    async def send(self, message: Mapping[str, Any]) -> None:
        """Raises `precondition_failed` where the answer was sent."""
        if not await self._say(event_of(message)):
            raise DevFlowError(ErrorCode.PRECONDITION_FAILED, "The client's request is no longer open.")

    async def _say(self, event: bytes) -> bool:
        """Send a part of the stream, which begins with the first of them. Whether there was still one to send it in."""
        async with self._turn:
            if self._is_over:
                return False
            if not self._is_stream:
                await self._start([*HEADERS, *self._headers])
                self._is_stream = True
            await self._send({"type": "http.response.body", "body": event, "more_body": True})
            return True

    async def _start(self, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _finish(self, answer: dict[str, Any]) -> None:
        async with self._turn:
            self._is_over = True
            if self._is_stream:
                await self._send({"type": "http.response.body", "body": event_of(answer), "more_body": False})
                return
            body = encoded(answer)
            length = str(len(body)).encode()
            await self._start([(b"content-type", b"application/json"), (b"content-length", length), *self._headers])
            await self._send({"type": "http.response.body", "body": body, "more_body": False})

    # --- the answer -------------------------------------------------------------------------------------------------

    async def answer(self, server: Server[Any], version: str) -> None:
        """Serve the request. A client that leaves has given it up, one that cancels hears so."""
        self._task = asyncio.current_task()
        if self._key[0]:
            _at_work[self._key] = self
        watch = asyncio.create_task(self._watch())
        try:
            outcome = await self._outcome(server, version)
        except asyncio.CancelledError:
            if not self._is_given_up:
                raise
            outcome = {"error": {"code": REQUEST_CANCELLED, "message": "Request cancelled"}}
        finally:
            watch.cancel()
            if _at_work.get(self._key) is self:
                del _at_work[self._key]
        if self._is_given_up and self._task is not None:
            self._task.uncancel()
        if not self._is_left:
            await self._finish({"jsonrpc": "2.0", "id": self.request_id, **outcome})
        self._is_over = True

    def give_up(self) -> None:
        """The client does not wait for the answer any more."""
        if not self._is_given_up and self._task is not None:
            self._is_given_up = True
            self.cancel_requested.set()
            self._task.cancel()

    async def _outcome(self, server: Server[Any], version: str) -> dict[str, Any]:
        connection = Connection.from_envelope(version, None, None)
        message = self._message
        try:
            result = await serve_one(
                server, self, message.method, message.params, connection=connection, lifespan_state={}
            )
        except Exception as exc:
            error = handler_exception_to_error_data(exc)
            if error is None:
                logger.exception("the handler of %s failed", message.method)
                error = ErrorData(code=INTERNAL_ERROR, message="Internal server error")
            return {"error": error.model_dump(mode="json", by_alias=True, exclude_none=True)}
        return {"result": result}

    async def _watch(self) -> None:
        """Keep the connection alive past proxies that close quiet ones; notice when the client leaves it."""
        while True:
            try:
                async with asyncio.timeout(PING_SECONDS):
                    message = await self._receive()
            except TimeoutError:
                await self._say(PING)
                continue
            if message["type"] == "http.disconnect":
                self._is_left = True
                return self.give_up()


_at_work: dict[tuple[str, RequestId], Exchange] = {}
"""The requests of this process under the session and the id their client knows them by."""


def cancelled(message: JSONRPCMessage | None) -> RequestId | None:
    """The request a client gives up with this message, if it is a well-formed `notifications/cancelled`."""
    if not isinstance(message, JSONRPCNotification) or message.method != "notifications/cancelled":
        return None
    identifier = cancelled_request_id_from_params(message.params)
    return identifier if len(str(identifier)) <= MAX_ID else None


def cancel(session: str, identifier: RequestId) -> None:
    """Give up a client's request, which may be at work in any process."""
    if not _given_up(session, identifier):
        bus.deliver(LiveEvent(CANCELLED, NO_PROJECT, json.dumps([session, identifier])))


def hear(event: LiveEvent) -> None:
    """Give up a request of this process that was cancelled in another."""
    if event.type == CANCELLED:
        _given_up(*json.loads(event.id))


def _given_up(session: str, identifier: RequestId) -> bool:
    found = _at_work.get((session, identifier))
    if found is not None:
        found.give_up()
    return found is not None
