"""Whether this process is going away: readiness answers 503, nothing new is taken on, open streams end.

The server's signal handler sets it; transports and `/readyz` look at it.
"""

import asyncio
import threading
from collections.abc import Callable


class Drain:
    """An event that threads can wait for and event loops can await."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._callbacks: dict[object, Callable[[], object]] = {}

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block the thread until draining starts; False when `timeout` seconds passed first."""
        return self._event.wait(timeout)

    def set(self) -> None:
        """Start draining. Safe in a signal handler; a second call does nothing."""
        if self._event.is_set():
            return
        self._event.set()
        for callback in list(self._callbacks.values()):
            callback()

    def clear(self) -> None:
        """Take new work again; only tests, which run many servers in one process, need it."""
        self._event.clear()

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` once draining starts, in whichever thread starts it. Returns the way out."""
        token = object()
        self._callbacks[token] = callback
        if self._event.is_set():
            callback()
        return lambda: self._callbacks.pop(token, None) and None

    async def wait_async(self) -> None:
        """Return once draining has started; cancellable."""
        loop = asyncio.get_running_loop()
        started = asyncio.Event()
        leave = self.subscribe(lambda: loop.call_soon_threadsafe(started.set))
        try:
            await started.wait()
        finally:
            leave()


draining = Drain()
