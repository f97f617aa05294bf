"""A circuit breaker per backend: one that fails is left alone for a moment, so it slows nobody down."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable

from mcpbridge.gateway.faults import unavailable


class Breaker:
    """Stops calling a backend that fails: open after 5 failures in 30 s, one probe after 10 s. Who goes on calling
    meanwhile, more than a few times, is held for a moment: a loop without pause would take the server's time."""

    FAILURES, WINDOW, REST = 5, 30.0, 10.0
    AT_ONCE, HELD = 5, 0.1

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failed: deque[float] = deque(maxlen=self.FAILURES)
        self._open_until = 0.0
        self._is_open = False
        self._refused: Counter[int] = Counter()

    @property
    def state(self) -> str:
        if not self._is_open:
            return "closed"
        return "open" if self._now() < self._open_until else "half-open"

    async def admit(self, backend: str, key: int = 0, *, seconds: float = HELD) -> None:
        """Raises `unavailable` while it is open; when it is half open, lets this one call of a key through. `seconds`:
        what the call may take, half of which it is held at most."""
        if not self._is_open:
            return
        wait = self._open_until - self._now()
        if wait > 0:
            error = unavailable(backend, "it failed several times and is left alone for a moment.")
            error.retry_after_ms = max(1, int(wait * 1000))
            self._refused[key] += 1
            if self._refused[key] > self.AT_ONCE:
                await asyncio.sleep(min(self.HELD, seconds / 2))
            raise error
        self._open_until = self._now() + self.REST  # others wait for what the probe finds

    def note(self, *, ok: bool) -> None:
        if ok:
            self._failed.clear()
            self._refused.clear()
            self._is_open = False
            return
        now = self._now()
        self._failed.append(now)
        if self._is_open or (len(self._failed) == self.FAILURES and now - self._failed[0] <= self.WINDOW):
            self._is_open, self._open_until = True, now + self.REST
            self._refused.clear()
