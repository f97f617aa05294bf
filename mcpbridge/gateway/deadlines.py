"""The deadline of a call. It rests while the client is asked something: that time is not the backend's."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from devflow.errors import DevFlowError, ErrorCode


class Deadline:
    """`asyncio.timeout` with a rest; like that one it raises `TimeoutError` on the way out. Used from one loop."""

    def __init__(self, seconds: float | None) -> None:
        self.rested = 0.0
        """Seconds that questions have taken so far."""
        self._seconds = seconds
        self._open = 0
        self._is_over = False
        self._left: float | None = None
        self._since = 0.0

    async def __aenter__(self) -> Self:
        self._timeout = asyncio.timeout(self._seconds)
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        await self._timeout.__aexit__(kind, error, trace)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Round a question, from any task; several may be open. Raises `timeout` once the call is over."""
        if self._is_over or self._timeout.expired():
            raise DevFlowError(ErrorCode.TIMEOUT, "The call is over.")
        now = asyncio.get_running_loop().time
        if self._open == 0:
            until, self._since = self._timeout.when(), now()
            self._left = None if until is None else until - self._since
            self._timeout.reschedule(None)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if self._open == 0:
                self.rested += now() - self._since
                if self._left is not None and not self._is_over:
                    self._timeout.reschedule(now() + self._left)
