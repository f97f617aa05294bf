"""The fetcher with manners: robots.txt is obeyed, and a host is given time between two requests."""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from devflow import config
from knowledge.indexing.fetching import Fetched, Fetcher, FetchError

if TYPE_CHECKING:
    from protego import Protego

AGENT = "DevFlow"  # the name robots.txt knows us by

_MAX_ROBOTS = 500 * 1024  # bytes, as RFC 9309 says
_MAX_DELAY_SECONDS = 10.0  # whatever robots.txt asks for
_TICK_SECONDS = 0.25  # how long a wait takes to notice that it should stop


class DisallowedError(Exception):
    """robots.txt does not allow reading the URL."""


class PoliteFetcher:
    """Reads each site's robots.txt once, before anything else of it; for one crawl."""

    def __init__(self, fetcher: Fetcher, *, stop: Callable[[], bool], sleep: Callable[[float], None]) -> None:
        self.max_bytes = fetcher.max_bytes
        self._fetcher = fetcher
        self._stop = stop
        self._sleep = sleep
        self._delay = config.current().knowledge.crawl_delay_seconds
        self._robots: dict[str, Protego | FetchError | None] = {}
        self._next_request: dict[str, float] = {}

    def get(self, url: str, *, etag: str = "", modified: str = "") -> Fetched:
        """Fetch a URL when it is its host's turn. A redirect must lead to where robots.txt allows, too.

        Raises `FetchError`, also while robots.txt cannot be read, and `DisallowedError`.
        """
        self._require_allowed(url)
        fetched = self._wait_and_get(url, etag=etag, modified=modified)
        if fetched.url != url:
            self._require_allowed(fetched.url)
        return fetched

    def sitemaps(self, url: str) -> list[str]:
        """The sitemaps that the robots.txt of a URL's site names; it must have been read."""
        robots = self._robots.get(_origin(url))
        return [] if robots is None or isinstance(robots, FetchError) else list(robots.sitemaps)

    def _wait_and_get(self, url: str, *, etag: str = "", modified: str = "") -> Fetched:
        origin = _origin(url)
        while (wait := self._next_request.get(origin, 0.0) - time.monotonic()) > 0 and not self._stop():
            self._sleep(min(wait, _TICK_SECONDS))
        try:
            return self._fetcher.get(url, etag=etag, modified=modified)
        finally:
            self._next_request[origin] = time.monotonic() + self._seconds_between(origin)

    def _seconds_between(self, origin: str) -> float:
        robots = self._robots.get(origin)
        if robots is None or isinstance(robots, FetchError):
            return self._delay
        rate = robots.request_rate(AGENT)
        asked = max(robots.crawl_delay(AGENT) or 0.0, rate.seconds / rate.requests if rate else 0.0)
        return max(self._delay, min(asked, _MAX_DELAY_SECONDS))

    def _require_allowed(self, url: str) -> None:
        origin = _origin(url)
        if origin not in self._robots:
            self._robots[origin] = self._read_robots(origin)
        robots = self._robots[origin]
        if isinstance(robots, FetchError):
            raise robots
        if robots is not None and not robots.can_fetch(url, AGENT):
            raise DisallowedError("robots.txt does not allow reading it.")

    def _read_robots(self, origin: str) -> "Protego | FetchError | None":
        from protego import Protego

        try:
            data = self._wait_and_get(urljoin(origin, "/robots.txt")).data[:_MAX_ROBOTS]
        except FetchError as exc:
            if 400 <= exc.status < 500 and not exc.retry:
                return None  # a site without one allows everything
            return FetchError(f"Its site's robots.txt could not be read, so nothing else is. {exc}", retry=exc.retry)
        return Protego.parse("\n".join(map(_merged, data.decode("utf-8-sig", "replace").splitlines())))


def _merged(line: str) -> str:
    """Give all other robots one name: the parser makes an object of each name times each rule."""
    match = re.match(r"\s*user[- ]?agent\s*:?(.*)", line, re.IGNORECASE)
    name = match[1].partition("#")[0].strip().strip("*") if match else ""
    return "User-agent: others" if name and name.lower() != AGENT.lower() else line


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
