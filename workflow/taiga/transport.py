"""The connections to Taigas: one pool for each address, to checked addresses only, and every exchange ends in time."""

import threading
from collections.abc import Iterator
from typing import Any

import httpcore
import httpx

from devflow import network

MOST_POOLS = 64


class _Stream(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


class _Transport(httpx.BaseTransport):
    """httpx over connections that go to checked addresses only, and end in time whatever drips."""

    def __init__(self, *, is_trusted: bool) -> None:
        self._deadline = network.Deadline()
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpcore.default_ssl_context(),
            max_connections=16,
            max_keepalive_connections=8,
            keepalive_expiry=20,
            network_backend=network.GuardedNetwork(
                lambda _host, _port: is_trusted, network.resolve, httpcore.SyncBackend(), self._deadline
            ),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._deadline.at = request.extensions["until"]
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        given: Any = request.stream
        response = self._pool.handle_request(
            httpcore.Request(
                request.method,
                url,
                headers=request.headers.raw,
                content=given,
                extensions={"timeout": request.extensions["timeout"]},
            )
        )
        return httpx.Response(response.status, headers=response.headers, stream=_Stream(response))

    def close(self) -> None:
        self._pool.close()


_pools: dict[tuple[str, bool], httpx.Client] = {}
_opening = threading.Lock()


def pooled(url: str, is_trusted: bool) -> httpx.Client:
    """The one client of an address: its connections are kept from call to call, and shared by threads."""
    with _opening:
        if (url, is_trusted) not in _pools:
            if len(_pools) >= MOST_POOLS:
                _pools.pop(next(iter(_pools)))  # its connections end when nobody uses them any more
            _pools[url, is_trusted] = httpx.Client(transport=_Transport(is_trusted=is_trusted), follow_redirects=False)
        return _pools[url, is_trusted]


def close() -> None:
    """Close every connection; a later call opens them again."""
    with _opening:
        while _pools:
            _pools.popitem()[1].close()
