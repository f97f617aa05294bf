"""What `devflow mcp` can be connected to: a server over SSE, or the data directory served by this very process.

Nothing here needs Django before this process becomes the owner of the data directory.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage

from devflow import owner

START_SECONDS = 60.0
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 60.0  # four pings missed
LOOK_SECONDS = 0.1

Prepare = Callable[[], str]
"""Sets Django up, brings the tables up to date and gives the local API key (blocks)."""


class RefusedError(Exception):
    """The server will not have this client; the message names the way out."""


class AwayError(Exception):
    """Nobody answers for now; another try may find somebody."""


@dataclass
class Link:
    """An open way to a server. `lost` is set when it broke without its read stream ending."""

    read: ReadStream[SessionMessage | Exception]
    write: WriteStream[SessionMessage]
    session_id: str
    lost: asyncio.Event = field(default_factory=asyncio.Event)


class Upstream(Protocol):
    def open(self, session_id: str) -> AbstractAsyncContextManager[Link]:
        """An async context manager of a `Link`; `session_id` continues an earlier one's session (empty: none).

        Entering raises `AwayError` or `RefusedError`.
        """


class _Watched(httpx2.AsyncHTTPTransport):
    """Notices a POST that failed, after which the SDK's client would stop sending without a word."""

    def __init__(self, lost: asyncio.Event) -> None:
        super().__init__()
        self._lost = lost

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await super().handle_async_request(request)
        except httpx2.TransportError:
            self._lost.set()
            raise
        if request.method == "POST" and response.is_error:
            self._lost.set()
        return response


@dataclass
class FarServer:
    """A DevFlow at `url`, reached over SSE, which carries notifications, progress and cancellation both ways."""

    url: str
    key: str
    agent: str = ""

    @asynccontextmanager
    async def open(self, session_id: str) -> AsyncIterator[Link]:
        headers = {"X-API-Key": self.key}
        if self.agent:
            headers["X-Agent-Id"] = self.agent
        if session_id:
            headers["Mcp-Session-Id"] = session_id
        lost = asyncio.Event()
        sessions: list[str] = []

        def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
            return httpx2.AsyncClient(headers=headers, timeout=timeout, transport=_Watched(lost))

        async with AsyncExitStack() as stack:
            try:
                read, write = await stack.enter_async_context(
                    sse_client(
                        f"{self.url.rstrip('/')}/mcp/sse",
                        headers=headers,
                        timeout=CONNECT_SECONDS,
                        sse_read_timeout=SILENCE_SECONDS,
                        httpx_client_factory=client,
                        on_session_created=sessions.append,
                    )
                )
            except Exception as exc:
                raise self._explained(exc) from exc
            yield Link(read, write, sessions[-1] if sessions else "", lost)

    def _explained(self, exc: BaseException) -> Exception:
        while isinstance(exc, BaseExceptionGroup):
            exc = exc.exceptions[0]
        if isinstance(exc, httpx2.HTTPStatusError):
            status = exc.response.status_code
            if status == 401:
                return RefusedError(f"{self.url} refuses the API key: set DEVFLOW_API_KEY to a live one.")
            if status == 404:
                return RefusedError(f"{self.url} serves no MCP over SSE: switch on mcp_gateway.sse_enabled there.")
            if status in (403, 421):
                return RefusedError(f"{self.url} does not answer to that name: set DEVFLOW_ALLOWED_HOSTS there.")
            return AwayError(f"{self.url} answers with status {status}.")
        if isinstance(exc, httpx2.InvalidURL | httpx2.UnsupportedProtocol | ValueError):
            return RefusedError(f"{self.url} is no address of a server: correct DEVFLOW_API_URL.")
        if isinstance(exc, httpx2.HTTPError | OSError):
            return AwayError(f"{self.url} cannot be reached; is DevFlow running there?")
        if isinstance(exc, Exception):
            return exc
        raise exc


class LocalHome:
    """The data directory of this machine: served by whoever owns it, and by this process when nobody does."""

    def __init__(self, prepare: Prepare, agent: str = "") -> None:
        self._prepare = prepare
        self._agent = agent

    @asynccontextmanager
    async def open(self, session_id: str) -> AsyncIterator[Link]:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(START_SECONDS):
                    link = await self._find(session_id, stack)
            except TimeoutError:
                raise AwayError("The process that holds the data directory does not serve it; stop it.") from None
            yield link

    async def _find(self, session_id: str, stack: AsyncExitStack) -> Link:
        while True:
            if (owned := owner.try_acquire()) is not None:
                stack.enter_context(owned)
                return await stack.enter_async_context(self._serve(owned, session_id))
            if (published := owner.read_published()) is not None:
                far = FarServer(published.url, published.key, self._agent)
                try:
                    return await stack.enter_async_context(far.open(session_id))
                except AwayError:
                    pass  # it has just died: either we inherit, or who does will say so
            await asyncio.sleep(LOOK_SECONDS)

    @asynccontextmanager
    async def _serve(self, owned: owner.Owner, session_id: str) -> AsyncIterator[Link]:
        """Serve the data directory: over HTTP to the other processes, in this process to our own client."""
        key = await asyncio.to_thread(self._prepare)

        # Only importable once Django is set up.
        from devflow import jobs, serving
        from devflow.drain import draining

        sock = serving.listen("127.0.0.1", 0)
        listening = asyncio.Event()
        server = serving.Server(serving.uvicorn_config(), listening.set)
        serve = asyncio.create_task(server.serve(sockets=[sock]))
        jobs_here = jobs.is_embedded()
        try:
            await _first(serve, listening)
            owned.publish(serving.url_of(sock), key)
            if jobs_here:
                jobs.start_embedded()
            async with self._in_process(key, session_id) as link:
                yield link
        finally:
            draining.set()
            server.should_exit = True
            await asyncio.gather(serve, return_exceptions=True)
            if jobs_here:
                await asyncio.to_thread(jobs.stop_embedded)

    @asynccontextmanager
    async def _in_process(self, key: str, session_id: str) -> AsyncIterator[Link]:
        from mcpbridge import access
        from mcpbridge.doors import Door
        from mcpbridge.transports.connection import Connection
        from mcpbridge.transports.sse import address_behind

        earlier = address_behind(session_id)
        door = Door(
            identity=await access.identify(key),
            transport="stdio",
            headers={"x-agent-id": self._agent} if self._agent else {},
            session=earlier.session if earlier else secrets.token_hex(8),
        )
        answers, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def deliver(message: JSONRPCMessage) -> None:
            await answers.send(SessionMessage(message))

        connection = Connection(door, deliver)
        serve = asyncio.create_task(connection.serve())
        try:
            yield Link(read, _Inbox(connection), session_id)
        finally:
            serve.cancel()
            await asyncio.gather(serve, return_exceptions=True)
            answers.close()
            read.close()


class _Inbox:
    """A connection's inbox as a stream to write to."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def send(self, item: SessionMessage, /) -> None:
        self._connection.take(item.message)

    async def aclose(self) -> None:
        self._connection.end()

    async def __aenter__(self) -> "_Inbox":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _first(serve: "asyncio.Task[None]", listening: asyncio.Event) -> None:
    """Wait until the server listens. Raises `RuntimeError` when it ended before."""
    waiting = asyncio.create_task(listening.wait())
    await asyncio.wait((serve, waiting), return_when=asyncio.FIRST_COMPLETED)
    if not listening.is_set():
        waiting.cancel()
        raise RuntimeError("the HTTP server did not start")
