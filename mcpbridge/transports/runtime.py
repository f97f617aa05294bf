"""What runs beside the requests of one server process: the event bus, the MCP session manager, the drain.

uvicorn announces start and stop over the ASGI lifespan; daphne does not, so the first request starts it there.
"""

import asyncio
import gc
import logging
from collections.abc import Coroutine
from typing import Any

from devflow.drain import draining
from devflow.events import bus
from mcpbridge import asking, export
from mcpbridge.audit import recorder
from mcpbridge.doors import AsgiApp
from mcpbridge.gateway import ledger, watching
from mcpbridge.gateway.sessions import pool
from mcpbridge.subscriptions import live
from mcpbridge.transports.sse import Sse
from mcpbridge.transports.streamable import StreamableHttp

logger = logging.getLogger(__name__)


def settle() -> None:
    """Take what was loaded at start out of the garbage collector's sight.

    It never becomes garbage, and walking it made every full collection stop the loop for a tenth of a second.
    """
    gc.collect()
    gc.freeze()


class Runtime:
    """Background tasks of one event loop, started once."""

    def __init__(self, streamable: StreamableHttp, sse: Sse, passing: StreamableHttp) -> None:
        self._streamable = streamable
        self._passing = passing
        self._sse = sse
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Future[list[None]] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def ensure(self) -> None:
        """Start, or wait for whoever is starting. Costs a comparison once started."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._ready is None:
            served, passed = loop.create_future(), loop.create_future()
            self._loop, self._ready = loop, asyncio.gather(served, passed)
            self._tasks = [
                self._task(self._streamable.run(served)),
                self._task(self._passing.run(passed)),
                self._task(self._sse.run()),
                self._task(bus.run()),
                self._task(export.run()),
                self._task(pool.run()),
                self._task(ledger.run()),
                self._task(watching.run()),
                self._task(self._drain()),
            ]
        if not self._ready.done():
            await asyncio.shield(self._ready)
            settle()

    def _task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        return task

    @staticmethod
    def _ended(task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            logger.error("a background task of the server ended", exc_info=fault)

    async def _drain(self) -> None:
        await draining.wait_async()
        live.close()
        self._sse.drain()

    async def stop(self) -> None:
        await asking.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self._loop, self._ready = [], None, None
        await asyncio.to_thread(recorder.stop)

    def serving(self, app: AsgiApp) -> AsgiApp:
        """`app`, with everything it needs running on its loop."""

        async def started(scope: Any, receive: Any, send: Any) -> None:
            await self.ensure()
            await app(scope, receive, send)

        return started

    async def lifespan(self, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI lifespan protocol."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.ensure()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return
