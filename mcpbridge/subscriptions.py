"""Change notices to MCP clients, from any worker's events: `resources/updated`, new messages, list changes.

Handshake-era connections that stay open (SSE, stdio) subscribe per resource; 2026-07-28 clients open one
`subscriptions/listen` stream. Both hear `devflow.events.bus`, which joins all workers.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ListenHandler, ServerEvent, SubscriptionBus, ToolsListChanged
from mcp.shared.subscriptions import ResourceUpdated

from devflow.drain import draining
from devflow.errors import DevFlowError, ErrorCode
from devflow.events import LiveEvent, bus

logger = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS = 500
MAX_WAITING = 100
MAX_STREAMS = 1024
LOOK_SECONDS = 1.0
TOOLS_CHANGED = "tools.changed"
MESSAGE_SENT = "message.sent"


class Subscriptions:
    """What one open connection wants to hear. The server's lifespan makes one per connection."""

    def __init__(self) -> None:
        self._projects: dict[str, int] = {}
        self._session: ServerSession | None = None
        self._waiting: set[asyncio.Task[None]] = set()
        self.inbox: tuple[int, str] | None = None

    @classmethod
    @asynccontextmanager
    async def lifespan(cls, server: Server[Any]) -> AsyncIterator["Subscriptions"]:
        found = cls()
        leave = bus.subscribe(found.hear)
        try:
            yield found
        finally:
            leave()

    def meet(self, session: ServerSession) -> None:
        """Tell this connection when the tools it was shown change."""
        self._session = session

    def attach(self, session: ServerSession, *, project_id: int, agent_name: str) -> None:
        """Remember whom this connection speaks for, so that its messages reach it at once."""
        self._session, self.inbox = session, (project_id, agent_name)

    def add(self, uri: str, session: ServerSession, *, project_id: int) -> None:
        """Hear of a resource's changes in that project. Raises `invalid_input` past 500 on one connection."""
        if len(self._projects) >= MAX_SUBSCRIPTIONS and uri not in self._projects:
            raise DevFlowError(
                ErrorCode.INVALID_INPUT, f"A connection may subscribe to {MAX_SUBSCRIPTIONS} resources at most."
            )
        self._projects[uri] = project_id
        self._session = session

    def remove(self, uri: str) -> None:
        self._projects.pop(uri, None)

    def hear(self, event: LiveEvent) -> None:
        session = self._session
        if session is None:
            return
        for uri in event.uris:
            if self._projects.get(uri) == event.project_id:
                self._send(session.send_resource_updated(uri))
        if event.type == MESSAGE_SENT and self.inbox == (event.project_id, event.agent):
            notice = types.LoggingMessageNotification(
                params=types.LoggingMessageNotificationParams(
                    level="notice", logger="devflow.inbox", data={"type": event.type, "id": event.id}
                )
            )
            self._send(session.send_notification(notice))
        if event.type == TOOLS_CHANGED:
            self._send(session.send_tool_list_changed())

    def _send(self, sending: Coroutine[Any, Any, None]) -> None:
        if len(self._waiting) >= MAX_WAITING:
            sending.close()
            logger.debug("a notice was dropped: its client reads too slowly")
            return
        task = asyncio.ensure_future(sending)
        self._waiting.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._waiting.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            logger.debug("a notice found its connection gone: %s", fault)


class _BusForListen:
    """`devflow.events.bus` in the shape the SDK's listen handler wants, for one stream: each resource's project's
    events only."""

    def __init__(self, projects: Mapping[str, int]) -> None:
        self._projects = projects

    async def publish(self, event: ServerEvent) -> None:
        raise NotImplementedError("events are published on devflow.events.bus")

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        def hear(event: LiveEvent) -> None:
            for uri in event.uris:
                if self._projects.get(uri) == event.project_id:
                    listener(ResourceUpdated(uri))
            if event.type == TOOLS_CHANGED:
                listener(ToolsListChanged())

        return bus.subscribe(hear)


class Standing(Protocol):
    """A stream of notices that stays open."""

    def close(self) -> None: ...


class Live:
    """The streams of notices of this process, ended together when it drains."""

    def __init__(self) -> None:
        self._streams: set[Standing] = set()

    async def listen(
        self,
        ctx: Any,
        params: types.SubscriptionsListenRequestParams,
        *,
        projects: Mapping[str, int] | None = None,
        is_welcome: Callable[[], Awaitable[bool]],
        source: SubscriptionBus | None = None,
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of 2026-07-28: `projects` maps each resource it may hear of to its project (`source` is
        heard instead, where it is given). Raises as `standing` does."""
        stream = ListenHandler(source or _BusForListen(projects or {}))
        async with self.standing(stream, is_welcome):
            return await stream(ctx, params)

    @asynccontextmanager
    async def standing(self, stream: Standing, is_welcome: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
        """Round a stream, which is closed once its client is not welcome any more. Raises `unavailable` when this
        process serves 1,024 already, or is about to stop."""
        if draining.is_set():
            raise DevFlowError(ErrorCode.UNAVAILABLE, "The server is stopping.", retry_after_ms=1000)
        if len(self._streams) >= MAX_STREAMS:
            raise DevFlowError(ErrorCode.UNAVAILABLE, "Too many listen streams are open on this server.")
        self._streams.add(stream)
        watch = asyncio.create_task(self._close_when_unwelcome(stream, is_welcome))
        try:
            yield
        finally:
            watch.cancel()
            self._streams.discard(stream)

    @staticmethod
    async def _close_when_unwelcome(stream: Standing, is_welcome: Callable[[], Awaitable[bool]]) -> None:
        try:
            while await is_welcome():
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            stream.close()

    def close(self) -> None:
        for stream in list(self._streams):
            stream.close()


live = Live()
