"""MCP sessions with backends, kept open and shared by the calls of one caller.

One task opens, uses and closes a session, because the SDK's cancel scopes demand it; calls of other tasks go through
its streams. Pool key: (backend, its configuration, project root, caller): state never leaks across callers.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx2
import mcp.types as types
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.gateway import processes
from mcpbridge.gateway.faults import BackendFaultError, LostError, out_of_time, unavailable
from mcpbridge.gateway.specs import BackendSpec

logger = logging.getLogger(__name__)

OPEN_SECONDS = 60.0
IDLE_SECONDS = 600.0
MAX_SESSIONS = 64
LOOK_SECONDS = 15.0

Heard = Callable[[types.ServerNotification], None]

_ANSWER: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


class _Request(types.Request[dict[str, Any], str]):
    """Any request, its parameters passed on as they are."""


@asynccontextmanager
async def connected(
    spec: BackendSpec, root: str | None, *, kind: str
) -> AsyncIterator[tuple[Client, Callable[[], str]]]:
    """A client of the SDK over whatever transport the backend has, and what the backend last said of its trouble."""
    async with AsyncExitStack() as stack:
        last_words: Callable[[], str] = str
        if spec.transport == "stdio":
            child = await stack.enter_async_context(processes.started(spec, root, kind=kind))
            transport: Any = processes.streams(child)

            def last_words() -> str:
                return child.last_words.decode(errors="replace").strip()[-1000:]

        elif spec.transport == "http":
            http = await stack.enter_async_context(
                create_mcp_http_client(spec.filled_headers(), httpx2.Timeout(30, read=None))
            )
            transport = streamable_http_client(spec.url, http_client=http)
        else:
            transport = sse_client(spec.url, spec.filled_headers())
        client = Client(
            transport,
            cache=None,
            client_info=types.Implementation(name="devflow", version="1"),
        )
        yield client, last_words


class Session:
    """One open MCP session. `heard` is told its notifications."""

    def __init__(
        self, spec: BackendSpec, root: str | None, *, kind: str = "session", heard: Heard | None = None
    ) -> None:
        self.spec = spec
        self.root = root
        self.used_at = time.monotonic()
        self.at_work = 0
        self.is_activated = False
        self.activating = asyncio.Lock()
        self._kind = kind
        self._heard = heard
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._own())
        self._last_words: Callable[[], str] = str

    async def _own(self) -> None:
        try:
            async with connected(self.spec, self.root, kind=self._kind) as (client, self._last_words):
                client.message_handler = self._on_message
                async with AsyncExitStack() as stack:
                    async with asyncio.timeout(OPEN_SECONDS):
                        await stack.enter_async_context(client)
                    self._ready.set_result(client)
                    await self._closing.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # whatever broke the connection: those who wait are told, nobody else
            self._fail(exc)
        finally:
            if not self._ready.done():
                self._ready.set_exception(unavailable(self.spec.id, "it was closed while it started."))
                self._ready.exception()

    def _fail(self, exc: BaseException) -> None:
        if self._ready.done():
            logger.info("a session with %s ended: %s", self.spec.id, exc)
            return
        while isinstance(exc, BaseExceptionGroup):
            exc = exc.exceptions[0]
        if not isinstance(exc, DevFlowError):
            words = self._last_words()
            why = f"it did not answer within {OPEN_SECONDS:g} s." if isinstance(exc, TimeoutError) else str(exc)
            exc = unavailable(self.spec.id, f"{why or type(exc).__name__}{f' It said: {words}' if words else ''}")
        self._ready.set_exception(exc)
        self._ready.exception()  # seen here, also where nobody waits

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, Exception):
            logger.debug("%s sent what is no message: %s", self.spec.id, message)
        elif self._heard is not None:
            self._heard(message)

    @property
    def is_over(self) -> bool:
        return self._task.done() or self._closing.is_set()

    async def client(self) -> Client:
        """The client, once the handshake is done. Raises `unavailable`."""
        return await asyncio.shield(self._ready)

    async def request(
        self, method: str, params: Mapping[str, Any] | None, *, timeout: float, progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """Send a request and give its result as it came.

        Raises `timeout`, `LostError`, `BackendFaultError` for the backend's own error. Cancelling tells the backend.
        """
        client = await self.client()
        self.at_work += 1
        try:
            answer: dict[str, Any] = await client.session.send_request(
                _Request(method=method, params=dict(params or {})),
                _ANSWER,
                request_read_timeout_seconds=timeout,
                progress_callback=progress,
            )
            return answer
        except MCPError as exc:
            if exc.code == types.REQUEST_TIMEOUT and exc.error.message.endswith("timed out"):
                raise out_of_time(f"{method} of {self.spec.id}", timeout) from None
            if exc.code == types.CONNECTION_CLOSED:
                self.close_soon()
                raise LostError(self.spec.id, self._last_words()) from None
            raise BackendFaultError(self.spec.id, exc.error) from None
        except ValidationError as exc:
            raise DevFlowError(
                ErrorCode.BACKEND_ERROR, f"{self.spec.id} answered {method} with something MCP does not allow."
            ) from exc
        finally:
            self.at_work -= 1
            self.used_at = time.monotonic()

    def close_soon(self) -> None:
        self._closing.set()

    async def close(self) -> None:
        """End the session and, with it, its process."""
        self._closing.set()
        if not self._ready.done():
            self._task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.shield(self._task)


class Breaker:
    """Stops calling a backend that fails: open after 5 failures in 30 s, one probe after 10 s."""

    FAILURES, WINDOW, REST = 5, 30.0, 10.0

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failed: deque[float] = deque(maxlen=self.FAILURES)
        self._open_until = 0.0
        self._is_open = False

    @property
    def state(self) -> str:
        if not self._is_open:
            return "closed"
        return "open" if self._now() < self._open_until else "half-open"

    def admit(self, backend: str) -> None:
        """Raises `unavailable` while it is open; when it is half open, lets this one call through."""
        if not self._is_open:
            return
        wait = self._open_until - self._now()
        if wait > 0:
            error = unavailable(backend, "it failed several times and is left alone for a moment.")
            error.retry_after_ms = max(1, int(wait * 1000))
            raise error
        self._open_until = self._now() + self.REST  # others wait for what the probe finds

    def note(self, *, ok: bool) -> None:
        if ok:
            self._failed.clear()
            self._is_open = False
            return
        now = self._now()
        self._failed.append(now)
        if self._is_open or (len(self._failed) == self.FAILURES and now - self._failed[0] <= self.WINDOW):
            self._is_open, self._open_until = True, now + self.REST


Key = tuple[str, str, str, str]


class Pool:
    """The open sessions of one server process."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[Key, Session] = OrderedDict()
        self._breakers: dict[str, Breaker] = {}
        self._places: dict[str, asyncio.Semaphore] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def breaker(self, backend: str) -> Breaker:
        return self._breakers.setdefault(backend, Breaker())

    def place(self, spec: BackendSpec) -> asyncio.Semaphore:
        """One of the places a backend has for calls at work."""
        return self._places.setdefault(f"{spec.id}/{spec.concurrency}", asyncio.Semaphore(spec.concurrency))

    def session(self, spec: BackendSpec, root: str | None, caller: str, *, heard: Heard | None = None) -> Session:
        """The caller's open session, or a new one that opens now."""
        key: Key = (spec.id, spec.config_hash, root or "", caller)
        found = self._sessions.get(key)
        if found is not None and not found.is_over:
            self._sessions.move_to_end(key)
            return found
        self._make_room()
        made = self._sessions[key] = Session(spec, root, heard=heard)
        return made

    def _make_room(self) -> None:
        for key, session in list(self._sessions.items()):
            if len(self._sessions) < MAX_SESSIONS:
                break
            if session.at_work == 0:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            task = asyncio.create_task(session.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def open_sessions(self, backend: str) -> int:
        return sum(key[0] == backend and not session.is_over for key, session in self._sessions.items())

    def forget(self, backend: str) -> None:
        """Close what is open with a backend, such as after its configuration changed."""
        for key in [key for key in self._sessions if key[0] == backend]:
            self._drop(key)

    def forget_caller(self, caller: str) -> None:
        """Close the sessions of one caller."""
        for key in [key for key in self._sessions if key[3] == caller]:
            self._drop(key)

    async def run(self) -> None:
        """Close what was idle for ten minutes, until cancelled; then everything."""
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                oldest = time.monotonic() - IDLE_SECONDS
                for key, session in list(self._sessions.items()):
                    if session.is_over or (session.at_work == 0 and session.used_at < oldest):
                        self._drop(key)
        finally:
            await self.close()

    async def close(self) -> None:
        for key in list(self._sessions):
            self._drop(key)
        if self._closing:
            await asyncio.wait(set(self._closing), timeout=5)


pool = Pool()
