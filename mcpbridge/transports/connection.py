"""One MCP connection that stays open (SSE, local stdio): the official server over a bounded way in and way out.

In: at most `MAX_UNANSWERED` requests at work. Out: one message at a time, and whoever makes the next one waits, so
a client that does not read holds up its own calls and nothing grows. The transport above knows how to deliver.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import IntEnum
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from mcpbridge.doors import Door
from mcpbridge.server import build_server

MAX_UNANSWERED = 64

Deliver = Callable[[JSONRPCMessage], Awaitable[None]]


class Taken(IntEnum):
    """What became of a message, as an HTTP status."""

    ACCEPTED = 202
    GONE = 404
    BUSY = 503


@lru_cache(maxsize=1)
def _server() -> tuple[Server[Any], InitializationOptions]:
    server = build_server(stateful=True)
    return server, server.create_initialization_options(NotificationOptions(tools_changed=True))


class Connection:
    """Serves one client until its inbox is closed. To the SDK it is also the stream answers are written to."""

    def __init__(self, door: Door, deliver: Deliver) -> None:
        self.door = door
        self._deliver = deliver
        self._inbox, self._read = anyio.create_memory_object_stream[SessionMessage | Exception](MAX_UNANSWERED)
        self._turn = asyncio.Lock()
        self._unanswered = 0
        self._draining = False
        # The door of the connection is the request of each of its messages: its agent and project count for all.
        self._metadata = ServerMessageMetadata(request_context=door, on_request_unanswered=self._unanswerable)

    def take(self, message: JSONRPCMessage) -> Taken:
        """Hand a client's message to the server, now or never."""
        is_request = isinstance(message, JSONRPCRequest)
        if is_request and (self._draining or self._unanswered >= MAX_UNANSWERED):
            return Taken.BUSY
        try:
            self._inbox.send_nowait(SessionMessage(message, self._metadata))
        except anyio.WouldBlock:
            return Taken.BUSY
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return Taken.GONE
        self._unanswered += is_request
        return Taken.ACCEPTED

    async def serve(self) -> None:
        """Serve until `end()`; cancelling cancels the client's calls."""
        server, options = _server()
        try:
            await server.run(self._read, self, options)
        finally:
            self.close()

    def end(self) -> None:
        """Take nothing more; calls at work are cancelled and answered with an error. May be called again."""
        self._inbox.close()

    def close(self) -> None:
        """Release what `serve()` would have; for a connection that never served."""
        self._inbox.close()
        self._read.close()

    def drain(self) -> None:
        """End once every request that was taken is answered."""
        self._draining = True
        self._end_if_drained()

    @property
    def is_writing(self) -> bool:
        return self._turn.locked()

    def _settled(self) -> None:
        self._unanswered -= 1
        self._end_if_drained()

    async def _unanswerable(self) -> None:
        self._settled()

    def _end_if_drained(self) -> None:
        if self._draining and self._unanswered == 0:
            self.end()

    # What the SDK asks of a stream to write to.

    async def send(self, item: SessionMessage, /) -> None:
        try:
            async with self._turn:
                await self._deliver(item.message)
        finally:
            if isinstance(item.message, JSONRPCResponse | JSONRPCError):
                self._settled()

    async def aclose(self) -> None:
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
