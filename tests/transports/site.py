"""A DevFlow served by uvicorn on a thread of the test process, and clients of it."""

import asyncio
import http.client
import json
import select
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
import uvicorn
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from devflow import serving
from devflow.asgi import runtime, sse
from mcpbridge.transports.sse import Sse

WAIT = 20


@dataclass
class Site:
    """`key` and `other_key` are unlimited keys with every scope; `loop` is the server's."""

    url: str
    key: str
    other_key: str
    server: uvicorn.Server
    loop: asyncio.AbstractEventLoop

    @property
    def headers(self) -> dict[str, str]:
        return {"X-API-Key": self.key}

    @property
    def sse(self) -> Sse:
        return sse

    def request(self, method: str, path: str, key: str | None = None, **options: Any) -> httpx.Response:
        headers = {"X-API-Key": key or self.key, **options.pop("headers", {})}
        return httpx.request(method, self.url + path, headers=headers, timeout=WAIT, **options)

    def status_of_large_body(self, path: str, *, chunked: bool) -> int:
        """POST more than is allowed and give the status, which comes before the body is through.

        The server closes on the unread rest, so only the first line of the answer is sure to arrive.
        """
        place = urlsplit(self.url)
        names = {"Host": place.netloc, "Content-Type": "application/json", **self.headers}
        names |= {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(10 << 20)}
        head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in names.items())
        piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n" if chunked else b"x" * 0x10000
        with socket.create_connection((place.hostname or "", place.port or 0), WAIT) as connection:
            connection.sendall(head.encode() + b"\r\n")
            with suppress(ConnectionError):
                for _ in range(5 * 16):
                    if select.select([connection], [], [], 0)[0]:
                        break
                    connection.sendall(piece)
            answer = connection.makefile("rb").readline()
        return int(answer.split()[1])

    def watch_drain_again(self) -> None:
        """Have the server hear of the next drain too: a real one has only one."""
        runtime._tasks.append(runtime._task(runtime._drain()))

    def on_loop(self, function: Callable[[], Any]) -> Any:
        """Run `function` on the server's loop."""

        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(WAIT)


class _Server(uvicorn.Server):
    """Takes its signals from the test."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, conf: uvicorn.Config) -> None:
        super().__init__(conf)
        self.listening = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def serve() -> Iterator[Site]:
    sock = serving.listen("127.0.0.1", 0)
    conf = serving.uvicorn_config()
    conf.timeout_graceful_shutdown = 2
    server = _Server(conf)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])), name="site")
    thread.start()
    assert server.listening.wait(WAIT)
    url = serving.url_of(sock)
    try:
        yield Site(url, "", "", server, server.loop)
    finally:
        server.should_exit = True
        thread.join(WAIT)
        assert not thread.is_alive()


@asynccontextmanager
async def sse_session(site: Site, key: str | None = None, **options: Any) -> AsyncIterator[Client]:
    """The official client over SSE; `mode="legacy"` shakes hands, `mode="auto"` speaks 2026-07-28."""
    headers = {"X-API-Key": key or site.key, **options.pop("headers", {})}
    async with Client(sse_client(site.url + "/mcp/sse", headers=headers), **options) as client:
        yield client


@asynccontextmanager
async def http_session(site: Site, key: str | None = None, **options: Any) -> AsyncIterator[Client]:
    """The official client over Streamable HTTP."""
    headers = {"X-API-Key": key or site.key, **options.pop("headers", {})}
    async with (
        create_mcp_http_client(headers=headers) as http_client,
        Client(streamable_http_client(site.url + "/mcp", http_client=http_client), **options) as client,
    ):
        yield client


class Answering(Protocol):
    """A server as a raw stream needs it: where its GET goes, and how its POSTs travel."""

    url: str
    key: str

    def request(self, method: str, path: str, key: str | None = None, **options: Any) -> httpx.Response: ...


class RawStream:
    """One `GET /mcp/sse` read by hand, and the POSTs that belong to it."""

    def __init__(self, site: Answering, key: str | None = None, headers: dict[str, str] | None = None) -> None:
        self.site, self.key = site, key or site.key
        address = urlsplit(site.url)
        self._connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=WAIT)
        self._connection.request("GET", "/mcp/sse", headers={"X-API-Key": self.key, **(headers or {})})
        self.response = self._connection.getresponse()
        self.endpoint = ""
        if self.response.status == 200:
            name, self.endpoint = self.event()
            assert name == "endpoint"

    def lines(self) -> Iterator[str]:
        """Every line until the stream ends; raises when it breaks."""
        while line := self.response.readline():
            yield line.decode().rstrip("\r\n")

    def event(self) -> tuple[str, str]:
        """The next event: its name and its data."""
        name = ""
        for line in self.lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return name, line.removeprefix("data: ")
        raise EOFError

    def message(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.event()[1])
        return read

    def post(self, message: Any, *, key: str | None = None, endpoint: str | None = None) -> httpx.Response:
        content = message if isinstance(message, str | bytes) else json.dumps(message)
        return self.site.request("POST", endpoint or self.endpoint, key=key or self.key, content=content)

    def shake_hands(self, client: str = "raw") -> dict[str, Any]:
        self.post(initialize(client))
        answer = self.message()
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        self.response.close()
        self._connection.close()

    def __enter__(self) -> "RawStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def initialize(client: str = "raw", version: str = "2025-06-18") -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def call(identifier: int | str, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params}
