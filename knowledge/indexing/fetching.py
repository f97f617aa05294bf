"""Guarded HTTP: whatever a URL says, only public addresses are talked to, for a bounded time, for bounded bytes.

The guard is `devflow.network`; redirects are followed by hand through the same checks. httpcore is used without httpx
above it: it knows no proxies, cookies or redirects that would have to be switched off.
"""

import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urljoin, urlsplit

from devflow import __version__, config
from devflow.addresses import UrlError, normalise
from devflow.outside import retry_after
from knowledge.indexing.urls import check_url

if TYPE_CHECKING:  # httpcore takes 0.2 s to import, and most processes fetch nothing
    import httpcore

__all__ = ["FetchError", "Fetched", "Fetcher", "check_url", "read_capped"]

USER_AGENT = f"DevFlow/{__version__}"
ACCEPT = "text/html,application/xhtml+xml,text/markdown,text/plain;q=0.9,*/*;q=0.5"

_MAX_REDIRECTS = 5
_MAX_WAIT_SECONDS = 30  # the longest Retry-After that is waited for
_MAX_VALIDATOR = 500  # characters of an ETag worth keeping


class FetchError(Exception):
    """A URL that could not be read; the message is shown as that document's error.

    `retry`: worth trying again later. `status`: what the server answered, 0 if nothing. `wait`: the seconds it
    asked for before the next attempt, None if it named none.
    """

    def __init__(self, message: str, *, retry: bool = False, status: int = 0, wait: float | None = None) -> None:
        super().__init__(message)
        self.retry = retry
        self.status = status
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a URL answered.

    `url` after redirects; `media_type` with its charset as sent, empty if none; `etag` and `modified` go into the
    next `get`; `robots` is the X-Robots-Tag header. When `not_modified`, `data` is empty.
    """

    url: str
    status: int
    data: bytes
    media_type: str
    etag: str
    modified: str
    not_modified: bool
    robots: str = ""


class Fetcher:
    """A guarded HTTP client; one per ingestion run, closed at its end. It keeps connections; threads may share it.

    `resolve`, `network` and `sleep` stand for the name server, the network and the clock.
    """

    def __init__(
        self,
        *,
        max_bytes: int | None = None,
        timeout: float | None = None,
        allow_private: bool | None = None,
        user_agent: str = USER_AGENT,
        resolve: Callable[[str, int], list[str]] | None = None,
        network: "httpcore.NetworkBackend | None" = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpcore

        from devflow.network import Deadline, GuardedNetwork
        from devflow.network import resolve as ask_system

        limits = config.current().knowledge
        self.max_bytes = limits.max_document_mb * 1024 * 1024 if max_bytes is None else max_bytes
        self._seconds = limits.fetch_timeout_seconds if timeout is None else timeout
        self._user_agent = user_agent
        self._sleep = sleep
        self._deadline = Deadline()
        private = limits.allow_private_addresses if allow_private is None else allow_private
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpcore.default_ssl_context(),
            max_connections=16,
            max_keepalive_connections=4,
            keepalive_expiry=15,
            network_backend=GuardedNetwork(
                lambda _host, _port: private,
                resolve or ask_system,
                network or httpcore.SyncBackend(),
                self._deadline,
            ),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    def get(self, url: str, *, etag: str = "", modified: str = "", accept: str = ACCEPT) -> Fetched:
        """Fetch a URL; with `etag` or `modified` of an earlier answer, only if it has changed since.

        All redirects together share one timeout. A server that names a short time to wait (429, 503) is asked once
        more. Raises `FetchError`.
        """
        headers = {"User-Agent": self._user_agent, "Accept": accept, "Accept-Encoding": "gzip, deflate"}
        headers |= {"If-None-Match": etag} if etag else {}
        headers |= {"If-Modified-Since": modified} if modified else {}
        try:
            return self._follow(url, headers)
        except FetchError as exc:
            if exc.wait is None or exc.wait > _MAX_WAIT_SECONDS:
                raise
            self._sleep(exc.wait)
        return self._follow(url, headers)

    def _follow(self, url: str, headers: dict[str, str]) -> Fetched:
        self._deadline.at = time.monotonic() + self._seconds
        for _ in range(_MAX_REDIRECTS + 1):
            answer = self._request(url, headers)
            if isinstance(answer, Fetched):
                return answer
            if urlsplit(url).scheme == "https" and not answer.lower().startswith("https:"):
                raise FetchError("Its redirect leads from https to http.")
            url = answer
        raise FetchError(f"It redirects more than {_MAX_REDIRECTS} times.")

    def _request(self, url: str, headers: dict[str, str]) -> Fetched | str:
        """One request; a str is where it redirects to."""
        import httpcore

        from devflow.network import RefusedAddressError, UnknownHostError, target_of

        try:
            url = normalise(url)
            target, host = target_of(url)
            fields = [(name.encode(), value.encode("latin-1", "ignore")) for name, value in headers.items()]
            extensions = {"timeout": {"pool": self._deadline.left()}}
            with self._pool.stream("GET", target, headers=[host, *fields], extensions=extensions) as response:
                return self._read(url, response, headers)
        except UrlError as exc:
            raise FetchError(f"The address cannot be read: {exc}.") from None
        except RefusedAddressError as exc:
            raise FetchError(str(exc)) from None
        except UnknownHostError as exc:
            raise FetchError(str(exc), retry=True) from None
        except httpcore.TimeoutException:
            raise FetchError(f"It was not read within {self._seconds:g} seconds.", retry=True) from None
        except (httpcore.NetworkError, httpcore.ProtocolError) as exc:
            raise FetchError(f"The connection failed: {str(exc)[:200]}", retry=True) from None

    def _read(self, url: str, response: "httpcore.Response", sent: dict[str, str]) -> Fetched | str:
        headers = {name.lower(): value.decode("latin-1").strip() for name, value in reversed(response.headers)}
        status = response.status
        if status in (301, 302, 303, 307, 308) and (location := headers.get(b"location")):
            try:
                return normalise(urljoin(url, location.encode("latin-1").decode("utf-8", "replace")))
            except ValueError as exc:
                raise FetchError(f"Its redirect cannot be followed: {exc}.", status=status) from None
        is_conditional = "If-None-Match" in sent or "If-Modified-Since" in sent
        if status not in (200, 203) and not (status == 304 and is_conditional):
            raise FetchError(
                f"The server answered {status}.",
                status=status,
                retry=status in (408, 425, 429) or status >= 500,
                wait=retry_after(headers.get(b"retry-after", "")) if status in (429, 503) else None,
            )
        encoding = headers.get(b"content-encoding", "").lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise FetchError(f"Its encoding {encoding[:40]!r} was not asked for and is not read.")
        data = b""
        if status != 304:
            length = headers.get(b"content-length", "")
            if length.isascii() and length.isdigit() and int(length[:20]) > self.max_bytes:
                raise too_large(self.max_bytes)
            data = read_capped(response.iter_stream(), self.max_bytes, is_compressed=encoding not in ("", "identity"))
        etag, modified = headers.get(b"etag", ""), headers.get(b"last-modified", "")
        return Fetched(
            url=url,
            status=status,
            data=data,
            media_type=headers.get(b"content-type", "")[:_MAX_VALIDATOR],
            etag=etag if len(etag) <= _MAX_VALIDATOR else "",
            modified=modified if len(modified) <= _MAX_VALIDATOR else "",
            not_modified=status == 304,
            robots=",".join(
                value.decode("latin-1") for name, value in response.headers if name.lower() == b"x-robots-tag"
            ),
        )


def read_capped(chunks: Iterable[bytes], limit: int, *, is_compressed: bool) -> bytes:
    """Join the chunks, inflating gzip or zlib data on the way; `limit` holds for the bytes before and after.

    Raises `FetchError` as soon as either passes it, or when the compressed data is broken.
    """
    inflater = zlib.decompressobj(wbits=47) if is_compressed else None
    data, received = bytearray(), 0
    try:
        for chunk in chunks:
            received += len(chunk)
            data += inflater.decompress(chunk, limit + 1 - len(data)) if inflater else chunk
            if max(received, len(data)) > limit:
                raise too_large(limit)
            if inflater and inflater.eof:
                break
    except zlib.error:
        raise FetchError("Its compressed data is broken.") from None
    if inflater and received and not inflater.eof:
        raise FetchError("Its compressed data ends early.", retry=True)
    return bytes(data)


def too_large(limit: int) -> FetchError:
    return FetchError(f"It is larger than {limit / 1024 / 1024:.3g} MB.")
