"""What a backend says beside its answers, on its way to the client it is passed through to."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from weakref import WeakKeyDictionary

import mcp.types as types
from mcp.client.subscriptions import Subscription, SubscriptionLost
from mcp.server.subscriptions import ServerEvent
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from devflow.events import REJOINED, LiveEvent, bus
from mcpbridge.gateway.catalog import catalog
from mcpbridge.gateway.notices import LISTS, Listener, listens, notices
from mcpbridge.gateway.sessions import Session
from mcpbridge.server import MOST_WAITING, Context
from mcpbridge.subscriptions import TOOLS_CHANGED

LOG_LEVEL_META = "io.modelcontextprotocol/logLevel"
_at_work: WeakKeyDictionary[Session, list[Listener]] = WeakKeyDictionary()
"""The requests under way that take logs, in the order they came."""


@asynccontextmanager
async def logs(ctx: Context, session: Session | None) -> AsyncIterator[None]:
    """Pass on what the backend logs meanwhile: to the first request that is under way, for a log names none.

    On 2026-07-28 only where the request asked for it.
    """
    is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    if session is None or (is_modern and not (ctx.params or {}).get("_meta", {}).get(LOG_LEVEL_META)):
        yield
        return
    waiting: deque[types.LoggingMessageNotification] = deque()
    sending: asyncio.Task[None] | None = None  # most requests are never told anything

    def hear(message: types.ServerNotification) -> None:
        nonlocal sending
        if not isinstance(message, types.LoggingMessageNotification):
            return
        if at_work[0] is hear and len(waiting) < MOST_WAITING:
            waiting.append(message)
            if sending is None or sending.done():
                sending = asyncio.create_task(send())

    async def send() -> None:
        while waiting:
            await ctx.session.send_notification(waiting.popleft(), related_request_id=ctx.request_id)

    at_work = _at_work.setdefault(session, [])
    at_work.append(hear)
    way_out = notices.listen(session, hear)
    try:
        try:
            yield
        finally:
            way_out()
            at_work.remove(hear)
        if sending is not None:
            await sending
    finally:
        if sending is not None:
            sending.cancel()


def lists_of(backend: str, tell: Callable[[str], None]) -> Callable[[], None]:
    """Hear which lists of a backend change, as kinds of `LISTS`, noticed in whichever process. Returns the way out."""

    def hear(event: LiveEvent) -> None:
        if event.type == REJOINED:  # what happened meanwhile is not known
            changed = tuple(LISTS)
        elif event.id == backend and event.type in LISTS:
            changed = (event.type,)
        else:
            return
        if TOOLS_CHANGED in changed:
            catalog.forget()  # another process may have kept the change
        for kind in changed:
            tell(kind)

    return bus.subscribe(hear)


class Heard:
    """What a listen stream of 2026-07-28 hears: lists that change, and resources of the caller's session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._listeners: list[Callable[[ServerEvent], None]] = []

    async def follow(self, changes: Subscription) -> None:
        """Pass on what a backend of 2026-07-28 streams."""
        with suppress(SubscriptionLost):
            async for event in changes:
                for listener in list(self._listeners):
                    listener(event)

    async def publish(self, event: ServerEvent) -> None:
        raise NotImplementedError("backends publish, nobody else")

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        def updates(message: types.ServerNotification) -> None:
            if isinstance(message, types.ResourceUpdatedNotification):
                listener(ResourceUpdated(str(message.params.uri)))

        def lists(kind: str) -> None:
            listener(LISTS[kind]())

        ways_out = lists_of(self._session.spec.id, lists), notices.listen(self._session, updates)
        self._listeners.append(listener)

        def leave() -> None:
            for way_out in ways_out:
                way_out()
            self._listeners.remove(listener)

        return leave


@asynccontextmanager
async def changes_of(session: Session, wished: types.SubscriptionFilter, seconds: float) -> AsyncIterator[Heard]:
    """What the backend tells of itself; resources are asked for in the way its revision has."""
    client, heard = await session.client(), Heard(session)
    wanted = [str(uri) for uri in wished.resource_subscriptions or ()]
    if not listens(client):
        for uri in wanted:
            await session.request("resources/subscribe", {"uri": uri}, timeout=seconds)
        yield heard
        return
    if not wanted:
        yield heard
        return
    async with client.listen(resource_subscriptions=wanted) as changes:
        following = asyncio.create_task(heard.follow(changes))
        try:
            yield heard
        finally:
            following.cancel()
