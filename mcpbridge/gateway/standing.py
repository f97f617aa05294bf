"""The stream of a client of the handshake revisions, opened with GET: which lists of the backend change, told as it
happens, in whichever process it was noticed."""

import asyncio
from typing import Any

from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged

from mcpbridge.gateway.hearing import lists_of
from mcpbridge.gateway.notices import ListChanged
from mcpbridge.transports.exchange import PING, PING_SECONDS, STREAM_HEADERS, event_of

_NOTICES = {
    ToolsListChanged: "notifications/tools/list_changed",
    PromptsListChanged: "notifications/prompts/list_changed",
    ResourcesListChanged: "notifications/resources/list_changed",
}


class NoticeStreams:
    """Those of this process: one for each client and backend, for a notice goes out on one stream only."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], NoticeStream] = {}

    def open(self, backend: str, session: str) -> "NoticeStream":
        """A new stream, in the place of the one its client has lost or left."""
        self.close(backend, session)
        stream = self._open[backend, session] = NoticeStream(backend)
        return stream

    def close(self, backend: str, session: str) -> None:
        if (stream := self._open.pop((backend, session), None)) is not None:
            stream.close()

    def forget(self, session: str, stream: "NoticeStream") -> None:
        if self._open.get((stream.backend, session)) is stream:
            del self._open[stream.backend, session]


class NoticeStream:
    """One such stream."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._waiting: dict[str, None] = {}  # a list that changed twice is told of once
        self._moved = asyncio.Event()
        self._is_over = False

    def close(self) -> None:
        self._is_over = True
        self._moved.set()

    def tell(self, event: ListChanged) -> None:
        self._waiting[_NOTICES[type(event)]] = None
        self._moved.set()

    async def serve(self, receive: Any, send: Any) -> None:
        """Until the client leaves or the stream is closed."""
        leave = lists_of(self.backend, self.tell)
        watch = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            said = PING
            while not self._is_over:
                await send({"type": "http.response.body", "body": said, "more_body": True})
                said = await self._next()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watch.cancel()
            leave()

    async def _next(self) -> bytes:
        """What has changed since, once something has; else a sign of life."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self._moved.wait()
        except TimeoutError:
            return PING
        self._moved.clear()
        methods, self._waiting = self._waiting, {}
        return b"".join(event_of({"jsonrpc": "2.0", "method": method}) for method in methods)

    async def _watch(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.close()
