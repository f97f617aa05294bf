"""The stream of a client of the handshake revisions, opened with GET: what changes at the backend, told as it happens.

It outlives the session with the backend, which may be closed when idle and opened again by the next call.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import mcp.types as types
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ServerEvent, ToolsListChanged
from mcp.shared.exceptions import MCPError

from devflow.errors import DevFlowError
from mcpbridge.gateway.hearing import changes_of
from mcpbridge.gateway.sessions import Session
from mcpbridge.transports.exchange import PING, PING_SECONDS, STREAM_HEADERS, event_of

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_NOTICES = {
    ToolsListChanged: "notifications/tools/list_changed",
    PromptsListChanged: "notifications/prompts/list_changed",
    ResourcesListChanged: "notifications/resources/list_changed",
}


class NoticeStream:
    """One such stream. `find` gives the caller's session with the backend, where one is open."""

    def __init__(self, find: Callable[[], Session | None], seconds: float) -> None:
        self._find = find
        self._seconds = seconds
        self._waiting: dict[str, None] = {}  # a list that changed twice is told of once
        self._moved = asyncio.Event()
        self._is_over = False

    def close(self) -> None:
        self._is_over = True
        self._moved.set()

    def tell(self, event: ServerEvent) -> None:
        if (method := _NOTICES.get(type(event))) is not None:
            self._waiting[method] = None
            self._moved.set()

    async def serve(self, receive: Any, send: Any) -> None:
        """Until the client leaves or the stream is closed."""
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        await send({"type": "http.response.body", "body": PING, "more_body": True})
        beside = [asyncio.create_task(self._follow()), asyncio.create_task(self._watch(receive))]
        try:
            while not self._is_over:
                said = PING
                try:
                    async with asyncio.timeout(PING_SECONDS):
                        await self._moved.wait()
                except TimeoutError:
                    pass
                else:
                    self._moved.clear()
                    said = b"".join(event_of({"jsonrpc": "2.0", "method": method}) for method in self._waiting)
                    self._waiting.clear()
                await send({"type": "http.response.body", "body": said, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for task in beside:
                task.cancel()

    async def _follow(self) -> None:
        session = None
        while True:
            if (found := self._find()) is None or found is session:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            if session is not None:  # a process that was started anew may list others
                self._waiting.update(dict.fromkeys(_NOTICES.values()))
                self._moved.set()
            session = found
            try:
                await self._hear(session)
            except (DevFlowError, MCPError, RuntimeError, TimeoutError) as exc:
                logger.info("changes of %s are not told: %s", session.spec.id, exc)

    async def _hear(self, session: Session) -> None:
        has = (await session.client()).server_capabilities
        lists = types.SubscriptionFilter(
            prompts_list_changed=bool(has.prompts and has.prompts.list_changed),
            resources_list_changed=bool(has.resources and has.resources.list_changed),
        )
        async with changes_of(session, lists, self._seconds) as heard:
            leave = heard.subscribe(self.tell)
            try:
                while not session.is_over:
                    await asyncio.sleep(LOOK_SECONDS)
            finally:
                leave()

    async def _watch(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.close()
