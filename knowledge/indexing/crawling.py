"""Which pages a web source has: from its address by links, sitemap and llms.txt, within what robots.txt allows.

Pages are read breadth first, one at a time, each once. Below: `politeness` (robots.txt, delays) and `fetching`
(addresses, time, size); beside: `scope` (what belongs to the source) and `links` (what a page names).
"""

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urljoin, urlsplit

from devflow import config
from knowledge.indexing import links
from knowledge.indexing.fetching import Fetched, Fetcher, FetchError, read_capped
from knowledge.indexing.politeness import DisallowedError, PoliteFetcher
from knowledge.indexing.scope import Scope
from knowledge.indexing.urls import check_url

_MAX_SITEMAPS = 50
_MAX_KNOWN = 50_000  # URLs remembered in one crawl
_MAX_FAILURES = 10  # in a row, before a site is taken to be away

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_MARKDOWN = frozenset({"text/markdown", "text/x-markdown", "text/plain"})
_OTHERS = frozenset(
    {
        "",
        "text/x-rst",
        "text/prs.fallenstein.rst",
        "application/pdf",
        "application/x-ipynb+json",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    }
)
_SUFFIXES = (".md", ".markdown", ".rst", ".txt", ".pdf", ".docx", ".ipynb")  # for servers that know no types
_UNTYPED = frozenset({"application/octet-stream", "binary/octet-stream", "application/json"})


@dataclass(frozen=True, slots=True)
class Rules:
    """What belongs to a web source.

    With `same_path` only pages below the address's path (below its directory, if it names a file). `include` and
    `exclude` are fnmatch patterns on the whole URL; a page that `include` leaves out is not read for links either.
    """

    url: str
    max_depth: int
    max_pages: int
    same_path: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """One URL of the source, read or failed.

    `fetched` is None when there is an `error`; `retry`: it may work later; `is_gone`: the server has no such page.
    `depth` counts links from the address; `total_known` the pages known so far, this one included.
    """

    url: str
    fetched: Fetched | None
    error: str
    depth: int
    total_known: int
    retry: bool = False
    is_gone: bool = False


class Crawl:
    """One crawl: iterate once over its pages. Afterwards `is_complete` says whether every page of the source was
    seen, so that what is missing is really gone; if not, `note` says why. `found` counts the pages known so far.

    `known` maps the URLs of the last crawl to their ETag and Last-Modified, empty where there is none. The address
    itself is always read in full. A page that answers "not modified" or fails for now does not tell its links, so
    the known pages are then visited too, linked or not. `stop` is asked before every request and during waits.
    """

    def __init__(
        self,
        rules: Rules,
        fetcher: Fetcher,
        *,
        known: Mapping[str, tuple[str, str]] | None = None,
        stop: Callable[[], bool] = lambda: False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        limits = config.current().knowledge
        self.is_complete = False
        self.note = ""
        self._start = check_url(rules.url)
        self._rules = rules
        self._scope = self._scope_of(self._start)
        self._max_pages = min(rules.max_pages, limits.crawl_max_pages)
        self._max_depth = min(rules.max_depth, limits.crawl_max_depth)
        self._site = PoliteFetcher(fetcher, stop=stop, sleep=sleep)
        self._known = known or {}
        self._stop = stop
        self._queue = deque([(self._start, 0)])
        self._seen = {self._start}  # queued or read
        self._given: set[str] = set()  # became a Page
        self._reads = 0
        self._failures = 0  # since the last page that was read
        self._silent_depth: int | None = None  # of the first page that did not tell its links

    @property
    def found(self) -> int:
        return min(self._max_pages, len(self._given) + len(self._queue))

    def __iter__(self) -> Iterator[Page]:
        while self._queue or self._queue_known():
            if reason := self._reason_to_end():
                self.note = reason
                return
            url, depth = self._queue.popleft()
            if url in self._given or (page := self._visit(url, depth)) is None:
                continue
            self._given.add(page.url)
            yield replace(page, total_known=self.found)
            if depth == 0:
                if page.error and not self._queue:
                    self.note = page.error
                    return
                self._discover(page.url)
        self.note = self.note or ("" if self._given else "No page was found at this address.")
        self.is_complete = not self.note

    def _reason_to_end(self) -> str:
        if self._stop():
            return "It was stopped."
        # What is read but turns out to be no page must not go on for ever either.
        if len(self._given) >= self._max_pages or self._reads >= 2 * self._max_pages:
            return f"It has more than {self._max_pages:,} pages; the others were not read."
        if self._failures >= _MAX_FAILURES:
            return f"The last {_MAX_FAILURES} pages failed, so the others were not tried."
        return ""

    # One page

    def _visit(self, url: str, depth: int) -> Page | None:
        """Read a page and queue its links; None if it is no page of this source after all."""
        etag, modified = self._known.get(url, ("", "")) if depth else ("", "")
        self._reads += 1
        try:
            fetched = self._site.get(url, etag=etag, modified=modified)
            self._failures = 0
            return self._take(fetched, url, depth)
        except DisallowedError as exc:
            return _left_out(url, depth, str(exc))
        except FetchError as exc:
            if exc.retry:
                self._failures += 1
                self._miss_links(depth)
            return Page(url, None, str(exc), depth, 0, retry=exc.retry, is_gone=exc.status in (404, 410))

    def _take(self, fetched: Fetched, asked: str, depth: int) -> Page | None:
        if depth == 0:
            self._scope = self._scope_of(fetched.url)  # the address may redirect to another host
        url = self._scope.spell(fetched.url) or ("" if depth else fetched.url)
        if not url or (url != asked and url in self._seen):
            return None
        self._seen.add(url)
        if fetched.not_modified:
            self._miss_links(depth)
            return Page(url, fetched, "", depth, 0)
        if depth == 0 and (named := self._named_by_sitemap(fetched)) is not None:
            self._queue_all(named, 1)
            return None
        if not _is_parsed(fetched):
            return _left_out(url, depth, f"Its type is not read: {_media_type(fetched)[:100]}")
        told = _links(fetched)
        told.obey(fetched.robots)
        if told.is_followable and depth < self._max_depth:
            self._queue_all(told.urls, depth + 1)
        if not told.is_indexable:
            return _left_out(url, depth, "It asks robots not to index it.")
        if _is_same_page(told.canonical, url):
            url = self._scope.spell(told.canonical) or url
            self._seen.add(url)
        return None if url in self._given else Page(url, fetched, "", depth, 0)

    # The queue

    def _queue_all(self, urls: list[str], depth: int) -> None:
        for url in urls:
            spelled = self._scope.spell(url)
            if spelled is None or spelled in self._seen:
                continue
            if len(self._seen) >= _MAX_KNOWN:
                self.note = f"It names more than {_MAX_KNOWN:,} addresses; the others were not read."
            else:
                self._seen.add(spelled)
                self._queue.append((spelled, depth))

    def _queue_known(self) -> bool:
        if self._silent_depth is not None:
            depth, self._silent_depth = self._silent_depth + 1, None
            self._queue_all(list(self._known), depth)
        return bool(self._queue)

    def _miss_links(self, depth: int) -> None:
        self._silent_depth = depth if self._silent_depth is None else min(depth, self._silent_depth)

    def _scope_of(self, url: str) -> Scope:
        rules = self._rules
        return Scope.below(url, same_path=rules.same_path, include=rules.include, exclude=rules.exclude)

    # Sitemaps and llms.txt

    def _discover(self, start: str) -> None:
        """Queue what the site names by itself."""
        if not self._max_depth:
            return
        if urlsplit(start).path == "/":
            for name in ("/llms.txt", "/llms-full.txt"):
                found = self._try(urljoin(start, name))
                if found and _media_type(found) in _MARKDOWN:
                    self._queue_all(links.in_markdown(links.decode(found.data), found.url).urls, 1)
                    break
        named = [urljoin(start, url) for url in self._site.sitemaps(start)] or [urljoin(start, "/sitemap.xml")]
        self._queue_all(self._named_by_sitemaps(named), 1)

    def _named_by_sitemap(self, fetched: Fetched) -> list[str] | None:
        if not (_media_type(fetched).endswith("xml") or re.search(r"\.xml(\.gz)?$", urlsplit(fetched.url).path)):
            return None
        found = self._locations(fetched)
        return None if found is None else found[0] + self._named_by_sitemaps(found[1])

    def _named_by_sitemaps(self, urls: list[str]) -> list[str]:
        pages: list[str] = []
        waiting, seen = deque(urls), set(urls)
        while waiting and len(pages) < _MAX_KNOWN and not self._stop():
            if len(seen) - len(waiting) >= _MAX_SITEMAPS:
                self.note = f"It has more than {_MAX_SITEMAPS} sitemaps; the others were not read."
                break
            fetched = self._try(waiting.popleft())
            found, further = (self._locations(fetched) if fetched else None) or ([], [])
            pages += found
            fresh = [url for url in dict.fromkeys(further) if url not in seen]
            waiting.extend(fresh)
            seen.update(fresh)
        return pages

    def _locations(self, fetched: Fetched) -> tuple[list[str], list[str]] | None:
        data = fetched.data
        if data[:2] == b"\x1f\x8b":
            try:
                data = read_capped([data], self._site.max_bytes, is_compressed=True)
            except FetchError:
                return None
        return links.in_sitemap(data, fetched.url)

    def _try(self, url: str) -> Fetched | None:
        try:
            return self._site.get(url)
        except DisallowedError:
            return None
        except FetchError as exc:
            if exc.retry:
                self._miss_links(0)
            return None


def _left_out(url: str, depth: int, reason: str) -> Page | None:
    """Pages are left out silently, but the source's address must say why there is nothing."""
    return None if depth else Page(url, None, reason, depth, 0)


def _media_type(fetched: Fetched) -> str:
    return fetched.media_type.partition(";")[0].strip().lower()


def _is_parsed(fetched: Fetched) -> bool:
    kind = _media_type(fetched)
    is_suffixed = urlsplit(fetched.url).path.lower().endswith(_SUFFIXES)
    return kind in _HTML | _MARKDOWN | _OTHERS or (kind in _UNTYPED and is_suffixed)


def _links(fetched: Fetched) -> links.Links:
    kind, path = _media_type(fetched), urlsplit(fetched.url).path.lower()
    if kind in _HTML or (not kind and fetched.data.lstrip()[:1] == b"<"):
        return links.in_html(links.decode(fetched.data), fetched.url)
    if kind in _MARKDOWN or path.endswith((".md", ".markdown", ".txt")):
        return links.in_markdown(links.decode(fetched.data), fetched.url)
    return links.Links()


def _is_same_page(canonical: str, url: str) -> bool:
    """Whether a canonical URL only spells its page otherwise: many sites wrongly name their home page everywhere."""
    one, other = (urlsplit(each).path.removesuffix("index.html").rstrip("/") for each in (canonical, url))
    return bool(canonical) and one == other
