"""Ask a server outside, and read its answer within a time and a size in all: httpx bounds each read only, so that an
answer may drip for hours or fill the memory.

`post` is for servers that whoever runs this installation named, `post_guarded` for addresses that others chose.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import httpx

from devflow import __version__
from devflow.addresses import MayBePrivate, UrlError, check

if TYPE_CHECKING:
    import ssl

    import httpcore

USER_AGENT = f"DevFlow/{__version__}"


def post(
    client: httpx.Client,
    url: str,
    *,
    body: Mapping[str, Any],
    seconds: float,
    most_bytes: int,
    headers: Mapping[str, str] | None = None,
) -> httpx.Response:
    """POST JSON and give the whole answer. Blocks for `seconds` at most (but for a server that drips its headers).

    Raises `httpx.ReadTimeout`, `httpx.ReadError` for more than `most_bytes`, and whatever else httpx raises.
    """
    until = time.monotonic() + seconds
    read = bytearray()
    with client.stream("POST", url, json=dict(body), headers=headers, timeout=seconds) as answer:
        for piece in answer.iter_bytes():
            read += piece
            if len(read) > most_bytes:
                raise httpx.ReadError(f"the answer has more than {most_bytes:,} bytes")
            if time.monotonic() > until:
                raise httpx.ReadTimeout("the answer did not end in time")
        kept = {name: value for name, value in answer.headers.items() if name != "content-encoding"}
        return httpx.Response(answer.status_code, headers=kept, content=bytes(read))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server outside said: its headers by their names in lower case, and the first bytes of its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class OutsideError(Exception):
    """There was no answer; the message is a sentence that says why."""


def post_guarded(
    url: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    seconds: float,
    most_bytes: int,
    may_be_private: MayBePrivate,
    resolve: Callable[[str, int], list[str]] | None = None,
    network: "httpcore.NetworkBackend | None" = None,
) -> Answer:
    """POST bytes to an address somebody chose, if it is a public one. Follows no redirect, reads `most_bytes` at most.

    Blocks for `seconds` at most. `resolve` and `network` stand for the name server and the network. Raises
    `OutsideError`.
    """
    import httpcore

    from devflow import network as guarded

    deadline = guarded.Deadline()
    deadline.at = time.monotonic() + seconds
    backend = guarded.GuardedNetwork(
        may_be_private, resolve or guarded.resolve, network or httpcore.SyncBackend(), deadline
    )
    fields = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity", **headers}
    try:
        target, host = guarded.target_of(check(url, may_be_private=may_be_private))
        with (
            httpcore.ConnectionPool(ssl_context=_ssl_context(), network_backend=backend) as pool,
            pool.stream(
                "POST",
                target,
                headers=[host, *((name.encode(), value.encode()) for name, value in fields.items())],
                content=body,
                extensions={"timeout": {"pool": seconds}},
            ) as response,
        ):
            found = {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
            return Answer(response.status, found, _start(response, most_bytes))
    except UrlError as exc:
        raise OutsideError(f"The address cannot be used: {exc}.") from None
    except (guarded.RefusedAddressError, guarded.UnknownHostError) as exc:
        raise OutsideError(str(exc)) from None
    except httpcore.TimeoutException:
        raise OutsideError(f"It did not answer within {seconds:g} seconds.") from None
    except (httpcore.NetworkError, httpcore.ProtocolError) as exc:
        raise OutsideError(f"The connection failed: {str(exc)[:200] or 'it was closed'}.") from None


def _start(response: "httpcore.Response", most_bytes: int) -> bytes:
    """The first bytes of a body. The status has said what counts: a body that ends early or late is cut."""
    import httpcore

    read = bytearray()
    try:
        for piece in response.iter_stream():
            read += piece
            if len(read) >= most_bytes:
                break
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError):
        pass
    return bytes(read[:most_bytes])


@lru_cache(maxsize=1)
def _ssl_context() -> "ssl.SSLContext":
    import httpcore

    return httpcore.default_ssl_context()


def retry_after(value: str) -> float | None:
    """Seconds a `Retry-After` header asks for, None where it says nothing that can be read."""
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
