"""The network under whatever talks to addresses that others chose: a name resolves once, every address it has is
checked, the connection goes to a checked one (so a name that changes its answer gains nothing), and every byte has a
deadline. Imported where it is used: httpcore takes 0.2 s, and most processes talk to nothing outside."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Self
from urllib.parse import urlsplit

import httpcore

from devflow.addresses import MayBePrivate, is_allowed, port_of

_MAX_ADDRESSES = 4  # of one name, tried one after the other
_CONNECT_SECONDS = 5  # each


class UnknownHostError(Exception):
    """The name has no address, or none for now."""


class RefusedAddressError(Exception):
    """The name leads to an address that must not be talked to."""


def target_of(url: str) -> tuple[httpcore.URL, tuple[bytes, bytes]]:
    """A normalised URL as httpcore takes it, and the Host header that belongs to it: httpcore's own has no brackets
    round an IPv6 address."""
    parts = urlsplit(url)
    path = parts.path + ("?" + parts.query if parts.query else "")
    target = httpcore.URL(scheme=parts.scheme, host=parts.hostname or "", port=port_of(parts), target=path)
    return target, (b"Host", parts.netloc.encode())


def resolve(host: str, port: int) -> list[str]:
    """Give the addresses of a name. Raises OSError."""
    return list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


class Deadline(threading.local):
    """When this thread's exchange must have ended. httpcore's own timeouts start anew with every byte."""

    at = float("inf")

    def left(self) -> float:
        """Give the seconds left. Raises `httpcore.ReadTimeout` when there are none."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout
        return left


class GuardedNetwork(httpcore.NetworkBackend):
    """Connects to checked addresses only. `network` is what connects, `resolve` what knows names."""

    def __init__(
        self,
        may_be_private: MayBePrivate,
        resolve: Callable[[str, int], list[str]],
        network: httpcore.NetworkBackend,
        deadline: Deadline,
    ) -> None:
        self._may_be_private = may_be_private
        self._resolve = resolve
        self._network = network
        self._deadline = deadline

    def connect_tcp(self, host: str, port: int, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        addresses = self._addresses(host, port)
        for address in addresses[:-1]:
            try:
                return self._connect(address, port)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return self._connect(addresses[-1], port)

    def _connect(self, address: str, port: int) -> httpcore.NetworkStream:
        stream = self._network.connect_tcp(address, port, min(self._deadline.left(), _CONNECT_SECONDS))
        return _TimedStream(stream, self._deadline)

    def _addresses(self, host: str, port: int) -> list[str]:
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError):
            addresses = []
        if not addresses:
            raise UnknownHostError(f"The name {host} has no address.")
        allowed = self._may_be_private(host, port)
        if not all(is_allowed(address, allow_private=allowed) for address in addresses):
            raise RefusedAddressError(f"{host} is not at a public address, so it is not talked to.")
        return addresses[:_MAX_ADDRESSES]


class _TimedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left())

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> Self:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadline.left())
        return type(self)(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()
