"""The stream of a client of the handshake revisions, opened with GET: which lists of the backend change, told as it
happens, in whichever process it was noticed."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcpbridge.gateway.hearing import lists_of
from mcpbridge.gateway.notices import PROMPTS_CHANGED, RESOURCES_CHANGED
from mcpbridge.subscriptions import TOOLS_CHANGED
from mcpbridge.transports.events import HEADERS, PING, event_of
from mcpbridge.transports.exchange import PING_SECONDS

_NOTICES = {
    TOOLS_CHANGED: "notifications/tools/list_changed",
    PROMPTS_CHANGED: "notifications/prompts/list_changed",
    RESOURCES_CHANGED: "notifications/resources/list_changed",
}


class NoticeStreams:
    """Those of this process: one for each client and backend, for a notice goes out on one stream only."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], NoticeStream] = {}

    @contextmanager
    def one(self, backend: str, session: str) -> Iterator["NoticeStream"]:
        """A new stream, in the place of the one its client has lost or left."""
        self.close(backend, session)
        stream = self._open[backend, session] = NoticeStream(backend)
        try:
            yield stream
        finally:
            if self._open.get((backend, session)) is stream:
                del self._open[backend, session]

    def close(self, backend: str, session: str) -> None:
        if (stream := self._open.pop((backend, session), None)) is not None:
            stream.close()


class NoticeStream:
    """One such stream."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._waiting: dict[str, None] = {}  # a list that changed twice is told of once
        self._moved = asyncio.Event()
        self._is_over = False

    def close(self) -> None:
        self._is_over = True
        self._moved.set()

    def tell(self, kind: str) -> None:
        self._waiting[_NOTICES[kind]] = None
        self._moved.set()

    async def serve(self, receive: Any, send: Any) -> None:
        """Until the client leaves or the stream is closed."""
        leave = lists_of(self._backend, self.tell)
        watch = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
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
