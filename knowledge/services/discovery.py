"""Find the documents of a source: uploaded files and what is in archives, files of a directory, pages of a site."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from devflow import config
from devflow.errors import DevFlowError
from knowledge.indexing import archives, crawling, fetching, parsed, uploads, walking
from knowledge.models import Document, Source
from knowledge.services import documents
from knowledge.services.documents import Read


@dataclass(frozen=True, slots=True)
class Item:
    """One document found: `read` gives its bytes when it is its turn. `error`: it cannot be read at all.

    `unchanged`: the server said so. `total`: how many are known so far.
    """

    path: str
    read: Callable[[], Read] | None = None
    error: str = ""
    unchanged: bool = False
    total: int = 0


@dataclass
class Discovery:
    """The documents of a source. Once they were gone through, `missed` says why some may not have been met (empty:
    all were, and those that are missing may be deleted)."""

    items: Iterator[Item]
    missed: Callable[[], str] = field(default=lambda: "")


def discover(source: Source, stop: Callable[[], bool]) -> Discovery:
    """Find a source's documents. Raises `DevFlowError` or `FetchError` when the source as a whole cannot be read."""
    if source.type == Source.Type.WEB:
        return _crawl(source, stop)
    if source.is_local:
        return _walk(source)
    return Discovery(_uploaded(source))


def _uploaded(source: Source) -> Iterator[Item]:
    files = source.metadata.get("files", [])
    for file in files:
        name, digest = file["name"], file["sha256"]
        if not archives.is_archive(name):
            yield Item(name, partial(_read_upload, source.pk, name, digest), total=len(files))
            continue
        try:
            packed = uploads.read(source.pk, digest)
            for inner, data in archives.unpack(name, packed, supported=parsed.supported):
                yield Item(f"{name}/{inner}", partial(Read, f"{name}/{inner}", data), total=len(files))
        except DevFlowError as exc:
            yield Item(name, error=exc.message, total=len(files))


def _read_upload(source_id: int, name: str, digest: str) -> Read:
    return Read(name, uploads.read(source_id, digest))


def _read_file(entry: walking.Entry, root: Path, limit: int, stamp: str) -> Read:
    return Read(entry.path, walking.read(entry, root, max_bytes=limit), modified=stamp)


def _read_page(url: str, fetched: fetching.Fetched) -> Read:
    return Read(url, fetched.data, fetched.media_type, fetched.etag, fetched.modified)


def _walk(source: Source) -> Discovery:
    root = walking.resolve_root(source.url)
    limit = config.current().knowledge.max_document_mb * 1024 * 1024
    entries = list(walking.walk(root, supported=parsed.supported, max_bytes=limit))
    unlisted = [entry.path for entry in entries if entry.path.endswith("/")]
    known = dict(
        Document.objects.filter(source=source, status=Document.Status.INDEXED, parser=documents.PARSER).values_list(
            "path", "modified"
        )
    )

    def items() -> Iterator[Item]:
        for entry in entries:
            stamp = f"{entry.mtime:.6f}:{entry.size}"
            if entry.error:
                yield Item(entry.path, error=entry.error, total=len(entries))
            elif known.get(entry.path) == stamp and not source.run_force:
                yield Item(entry.path, unchanged=True, total=len(entries))
            else:
                yield Item(entry.path, partial(_read_file, entry, root, limit, stamp), total=len(entries))

    missed = f"{len(unlisted)} directories could not be listed, {unlisted[0]} first." if unlisted else ""
    return Discovery(items(), lambda: missed)


def _crawl(source: Source, stop: Callable[[], bool]) -> Discovery:
    conf = config.current().knowledge
    options = source.options
    rules = crawling.Rules(
        url=source.url,
        max_depth=min(options.get("max_depth", conf.crawl_max_depth), conf.crawl_max_depth),
        max_pages=min(options.get("max_pages", conf.crawl_max_pages), conf.crawl_max_pages),
        same_path=options.get("same_path", True),
        include=tuple(options.get("include", ())),
        exclude=tuple(options.get("exclude", ())),
    )
    known = {
        path: (etag, modified)
        if status == Document.Status.INDEXED and parser == documents.PARSER and not source.run_force
        else ("", "")
        for path, etag, modified, parser, status in Document.objects.filter(source=source).values_list(
            "path", "etag", "modified", "parser", "status"
        )
    }
    fetcher = fetching.Fetcher()
    crawl = crawling.Crawl(rules, fetcher, known=known, stop=stop)

    def items() -> Iterator[Item]:
        with fetcher:
            for page in crawl:
                total = crawl.found
                fetched = page.fetched
                if fetched is None and page.is_gone:
                    continue  # a broken link; of a document that was here before, its end
                if fetched is None:
                    yield Item(page.url, error=page.error, total=total)
                elif fetched.not_modified:
                    yield Item(page.url, unchanged=True, total=total)
                else:
                    yield Item(page.url, partial(_read_page, page.url, fetched), total=total)

    return Discovery(items(), lambda: "" if crawl.is_complete else crawl.note or "The crawl did not come to its end.")
