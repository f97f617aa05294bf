"""One MCP session with a backend.

One task opens, uses and closes it, because the SDK's cancel scopes demand it; calls of other tasks go through its
streams.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Protocol

import mcp.types as types
from mcp import Client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.methods import is_input_required
from pydantic import TypeAdapter, ValidationError

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.asking import AnyRequest, declared
from mcpbridge.gateway.connecting import Connection, connected, why
from mcpbridge.gateway.faults import BackendFaultError, LostError, out_of_time, unavailable
from mcpbridge.gateway.policy import MAX_TIMEOUT_MS
from mcpbridge.gateway.questions import Asking, Questions
from mcpbridge.gateway.specs import BackendSpec

logger = logging.getLogger(__name__)

OPEN_SECONDS = 60.0
CLOSE_SECONDS = 5.0
SIGN_OF_LIFE_SECONDS = 3.0
LEAVE_SECONDS = 1.0
WORDS_SECONDS = 0.3
ASKING_SECONDS = MAX_TIMEOUT_MS / 1000 + 60
MAX_ROUNDS = 10
LASTING_SECONDS = 10.0
PAUSES = (0.125, 0.25, 0.5)

Heard = Callable[[types.ServerNotification], None]

_ANSWER: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


def told(spec: BackendSpec, features: frozenset[str]) -> frozenset[str]:
    """What the backend is told of what its client can answer."""
    return declared(features) if spec.may_ask else frozenset()


class Conversation(Protocol):
    """What a call needs of the place it runs in."""

    is_activated: bool
    activating: asyncio.Lock

    @property
    def is_over(self) -> bool: ...

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        *,
        timeout: float,
        progress: ProgressFnT | None = None,
        asking: Asking | None = None,
    ) -> dict[str, Any]: ...


class Session:
    """One open MCP session. It opens by itself, past the deadline of whoever asked for it, and is given up after a
    minute. `heard` is told its notifications; the backend is told that `features` of the client can be asked.

    `after` is the session it replaces, which ended by itself: the first of those that end soon is replaced at once,
    the next ones after a pause that grows to half a second.
    """

    def __init__(
        self,
        spec: BackendSpec,
        root: str | None,
        *,
        kind: str = "session",
        features: frozenset[str] = frozenset(),
        heard: Heard | None = None,
        after: "Session | None" = None,
    ) -> None:
        self.spec = spec
        self.root = root
        self.begun_at = self.used_at = time.monotonic()
        is_too_soon = after is not None and self.begun_at - after.begun_at < LASTING_SECONDS
        self.restarts: int = after.restarts + 1 if after is not None and is_too_soon else 0
        self.at_work = 0
        self.is_activated = False
        self.activating = asyncio.Lock()
        self.features = told(spec, features)
        self._questions = Questions(spec.id)
        self._kind = kind
        self._heard = heard
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._connection: Connection | None = None
        self._looking: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._own())

    async def _own(self) -> None:
        try:
            if self.restarts > 1:
                await asyncio.sleep(PAUSES[min(self.restarts - 2, len(PAUSES) - 1)])
            async with connected(
                self.spec,
                self.root,
                kind=self._kind,
                on_end=self._closing.set,
                features=self.features,
                asked=self._questions.asked,
            ) as connection:
                self._connection = connection
                connection.client.message_handler = self._on_message
                async with AsyncExitStack() as stack:
                    async with asyncio.timeout(OPEN_SECONDS):
                        await stack.enter_async_context(connection.client)
                    self._ready.set_result(connection.client)
                    await self._closing.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # whatever broke the connection: those who wait are told, nobody else
            self._fail(exc)
        finally:
            self._closing.set()
            if not self._ready.done():
                self._ready.set_exception(unavailable(self.spec.id, "it was closed while it started."))
                self._ready.exception()

    def _fail(self, exc: BaseException) -> None:
        if self._ready.done():
            logger.info("a session with %s ended: %s", self.spec.id, type(exc).__name__)
            return
        if not isinstance(exc, DevFlowError):
            exc = unavailable(self.spec.id, why(exc, self.spec, self._trouble, seconds=OPEN_SECONDS))
        self._ready.set_exception(exc)
        self._ready.exception()  # seen here, also where nobody waits

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, Exception):
            logger.debug("%s sent what is no message: %s", self.spec.id, message)
        elif self._heard is not None:
            self._heard(message)

    @property
    def _trouble(self) -> str:
        return self._connection.trouble() if self._connection is not None else ""

    @property
    def is_over(self) -> bool:
        return self._task.done() or self._closing.is_set()

    @property
    def is_open(self) -> bool:
        """Whether the handshake is done."""
        return self._ready.done() and not self.is_over

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Round whatever needs the session: it is neither closed for being idle nor to make room."""
        self.at_work += 1
        try:
            yield
        finally:
            self.at_work -= 1
            self.used_at = time.monotonic()

    async def client(self) -> Client:
        """The client, once the handshake is done. Raises `unavailable`."""
        with self.in_use():
            return await asyncio.shield(self._ready)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        *,
        timeout: float,
        progress: ProgressFnT | None = None,
        asking: Asking | None = None,
    ) -> dict[str, Any]:
        """Send a request and give its result as it came; `asking` answers what the backend asks first.

        `timeout` holds for each message where nobody is asked; else the caller's own deadline does.
        Raises `timeout`, `LostError`, `BackendFaultError` for the backend's own error. Cancelling tells the backend.
        """
        given = dict(params or {})
        if asking is None:
            return self._questions.none_in(method, await self._sent(method, given, timeout, progress))
        with self._questions.answered_by(asking):
            result = await self._sent(method, given, ASKING_SECONDS, progress)
            for round_ in range(MAX_ROUNDS):
                if not is_input_required(result):
                    break
                answers = await self._questions.answers_to(result, asking, round_)
                result = await self._sent(method, {**given, **answers}, ASKING_SECONDS, progress)
        return self._questions.none_in(method, result)

    async def _sent(
        self, method: str, params: dict[str, Any], timeout: float, progress: ProgressFnT | None
    ) -> dict[str, Any]:
        client = await self.client()
        if self.is_over:
            raise LostError(self.spec.id, self._trouble)
        with self.in_use():
            # A task of its own, so that whoever gives up need not wait until the backend was told.
            sending: asyncio.Task[dict[str, Any]] = asyncio.create_task(
                client.session.send_request(
                    AnyRequest(method=method, params=params),
                    _ANSWER,
                    request_read_timeout_seconds=timeout,
                    progress_callback=progress,
                )
            )
            try:
                return await asyncio.shield(sending)
            except asyncio.CancelledError:
                self._give_up(sending)
                raise
            except MCPError as exc:
                raise await self._fault_of(method, timeout, exc) from None
            except ValidationError as exc:
                raise DevFlowError(
                    ErrorCode.BACKEND_ERROR, f"{self.spec.id} answered {method} with something MCP does not allow."
                ) from exc

    async def _fault_of(self, method: str, timeout: float, exc: MCPError) -> DevFlowError:
        if exc.code == types.REQUEST_TIMEOUT and exc.error.message.endswith("timed out"):
            self._look_for_life()
            return out_of_time(f"{method} of {self.spec.id}", timeout)
        is_lost = exc.code == types.CONNECTION_CLOSED or exc.error.message == "Session terminated"
        if is_lost:
            self.close_soon()
            await asyncio.wait({self._task}, timeout=WORDS_SECONDS)  # its last words come after its end
        if self._connection is not None and (fault := self._connection.fault()):
            self.close_soon()
            return DevFlowError(
                ErrorCode.BACKEND_ERROR,
                f"{self.spec.id} was ended before it answered. {fault}",
                suggestion="Ask for less at once, or look at what the backend writes on its standard output.",
            )
        return LostError(self.spec.id, self._trouble) if is_lost else BackendFaultError(self.spec.id, exc.error)

    def _give_up(self, sending: "asyncio.Task[Any]") -> None:
        """Let go of a request whose caller is gone: the backend is told, if it still listens at all."""
        sending.cancel()

        def look() -> None:
            if not sending.done():
                self.close_soon()  # not even the cancellation could leave

        asyncio.get_running_loop().call_later(LEAVE_SECONDS, look)
        self._look_for_life()

    def _look_for_life(self) -> None:
        """After a call that ran out of time: close the session unless the backend still says something."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._ask_for_life())

    async def _ask_for_life(self) -> None:
        client = await self.client()
        while not self.is_over:
            try:
                await client.session.send_request(
                    AnyRequest(method="ping", params={}), _ANSWER, request_read_timeout_seconds=SIGN_OF_LIFE_SECONDS
                )
            except MCPError as exc:
                if exc.code == types.REQUEST_TIMEOUT:
                    if self.at_work == 0:
                        self.close_soon()
                    continue  # it may be busy with the call of somebody else
                if exc.code == types.CONNECTION_CLOSED:
                    self.close_soon()
            except ValidationError:
                pass
            return  # whatever it answered, it answered

    def hurry(self) -> None:
        """Its process need not be given time to leave by itself."""
        if self._connection is not None:
            self._connection.hurry()

    def close_soon(self) -> None:
        self._closing.set()

    async def close(self) -> None:
        """End the session and, with it, its process."""
        self._closing.set()
        if self._looking is not None:
            self._looking.cancel()
        if not self._ready.done():
            self._task.cancel()
        done, _ = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
