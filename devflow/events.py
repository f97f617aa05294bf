"""Live events: small typed notices published when a transaction commits, heard by every server process.

The durable record of a change is the Event row its service writes in the same transaction; what travels here
only says that something happened (`{type, id, ...}`), so a listener refetches through its own permission check.
Local listeners hear directly on the server's loop; other processes hear through the channel layer.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from channels.layers import InMemoryChannelLayer, get_channel_layer
from django.db import transaction
from redis import RedisError

logger = logging.getLogger(__name__)

GROUP = "devflow.events"
REJOINED = "bus.rejoined"
"""Told to this process's listeners after the channel layer was away: what happened meanwhile was not heard."""
EVERY_PROJECT = 0
NO_PROJECT = -1
"""For what concerns server processes and no page."""


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """`type` such as `task.updated`; `id` what it is about (`task-12`); `agent` the only agent it concerns, if one.

    `sequence` is the Event row it belongs to; `uris` are the MCP resources a client should read again.
    """

    type: str
    project_id: int
    id: str = ""
    sequence: int | None = None
    agent: str | None = None
    uris: tuple[str, ...] = ()


Listener = Callable[[LiveEvent], None]


class Bus:
    """Fan-out to this process's listeners, joined to the other processes' buses while `run()` is running."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._origin = uuid.uuid4().hex

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the server's loop for every event; it must not block or raise. Returns the way out."""
        token = object()
        self._listeners[token] = listener
        return lambda: self._listeners.pop(token, None) and None

    def publish(self, event: LiveEvent) -> None:
        """Deliver `event` when the current transaction commits (at once outside one)."""
        transaction.on_commit(lambda: self.deliver(event), robust=True)

    def deliver(self, event: LiveEvent) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._hear, event)
            if not self._is_local():
                asyncio.run_coroutine_threadsafe(self._send(event), loop)
        elif not self._is_local():
            asyncio.run(self._send_once(event))

    @staticmethod
    def _is_local() -> bool:
        return isinstance(get_channel_layer(), InMemoryChannelLayer)

    def _hear(self, event: LiveEvent) -> None:
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:  # one listener's fault must not silence the others
                logger.exception("a live event listener failed", extra={"event_type": event.type})

    async def _send(self, event: LiveEvent) -> None:
        try:
            await get_channel_layer().group_send(
                GROUP, {"type": "devflow.event", "origin": self._origin, "event": asdict(event)}
            )
        except (OSError, RedisError) as exc:
            logger.warning("a live event did not reach the other workers: %s", exc)

    async def _send_once(self, event: LiveEvent) -> None:
        await self._send(event)
        layer: Any = get_channel_layer()
        if hasattr(layer, "close_pools"):
            await layer.close_pools()

    async def run(self) -> None:
        """Join the buses of the other processes until cancelled. One task per server process."""
        self._loop = asyncio.get_running_loop()
        try:
            if self._is_local():
                await asyncio.Event().wait()
            await self._listen()
        finally:
            self._loop = None

    async def _listen(self) -> None:
        layer: Any = get_channel_layer()
        is_again = False
        while True:
            try:
                channel = await layer.new_channel("devflow")
                await layer.group_add(GROUP, channel)
                if is_again:
                    self._hear(LiveEvent(REJOINED, EVERY_PROJECT))
                while True:
                    message = await layer.receive(channel)
                    if message["origin"] != self._origin:
                        data = message["event"]
                        self._hear(LiveEvent(**{**data, "uris": tuple(data["uris"])}))
            except (OSError, RedisError) as exc:
                logger.warning("the channel layer is away, joining again: %s", exc)
                is_again = True
                await asyncio.sleep(1)


bus = Bus()
