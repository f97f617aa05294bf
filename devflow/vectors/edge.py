"""The embedded vector store: a directory with a folder per collection (see `generations`).

One process at a time may use a directory (see `stores`).
"""

import logging
import re
import shutil
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from devflow.vectors.base import Hits, MissingCollectionError, Point, Query, StoreError
from devflow.vectors.generations import EdgeCollection

logger = logging.getLogger(__name__)

PAGE = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class EdgeStore:
    """A `VectorStore` in a directory of its own. Collections are opened when they are first used."""

    def __init__(self, directory: Path, *, optimize_above: int = 20_000) -> None:
        self._directory = directory
        self._optimize_above = optimize_above
        self._open: dict[str, EdgeCollection] = {}
        self._opening = threading.RLock()
        self._is_closed = False
        self._compacting: threading.Thread | None = None

    def _folder(self, collection: str) -> Path:
        if not _NAME.fullmatch(collection):
            raise StoreError(f"{collection!r} cannot name a collection")
        return self._directory / collection

    def _get(self, name: str) -> EdgeCollection:
        with self._opening:
            if self._is_closed:
                raise StoreError("the vector store was closed")
            if (known := self._open.get(name)) is not None:
                return known
            folder = self._folder(name)
            if not (folder / "live.json").is_file():
                raise MissingCollectionError(f"there is no collection {name}")
            self._open[name] = EdgeCollection.open(folder)
            return self._open[name]

    def create(self, collection: str, dimensions: int) -> None:
        with self._opening:
            if collection not in self.collections():
                self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._open[collection] = EdgeCollection.create(self._folder(collection), dimensions)
            elif (has := self._get(collection).dimensions) != dimensions:
                raise StoreError(f"{collection} has {has} dimensions, not {dimensions}")

    def drop(self, collection: str) -> None:
        with self._opening:
            if (known := self._open.pop(collection, None)) is not None:
                known.close()
            shutil.rmtree(self._folder(collection), ignore_errors=True)

    def collections(self) -> set[str]:
        with self._opening:
            if self._is_closed:
                raise StoreError("the vector store was closed")
            return {path.parent.name for path in self._directory.glob("*/live.json")}

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        self._get(collection).upsert(points)

    def delete(self, collection: str, ids: Iterable[uuid.UUID]) -> None:
        self._get(collection).delete(list(ids))

    def search(self, collection: str, query: Query) -> Hits:
        with self._get(collection).reading() as shard:
            return shard.search(query)

    def page(
        self, collection: str, after: uuid.UUID | None = None, limit: int = PAGE
    ) -> tuple[list[tuple[uuid.UUID, str]], uuid.UUID | None]:
        """One page of `scroll`: (id, hash) of up to `limit` points from `after` on, and where the next one starts."""
        with self._get(collection).reading() as shard:
            return shard.page(after, limit)

    def scroll(self, collection: str) -> Iterator[tuple[uuid.UUID, str]]:
        points, following = self.page(collection)
        yield from points
        while following is not None:
            points, following = self.page(collection, following)
            yield from points

    def count(self, collection: str) -> int:
        with self._get(collection).reading() as shard:
            return shard.count()

    def ping(self) -> str:
        with self._opening:
            waiting = [name for name, one in self._open.items() if self._has_grown(one) or one.is_building]
        graph = f", the graph of {', '.join(sorted(waiting))} is to be built" if waiting else ""
        return f"edge, {sum(self.count(name) for name in self.collections()):,} points{graph}"

    def _has_grown(self, collection: EdgeCollection) -> bool:
        return 0 < self._optimize_above < collection.changed

    def compact(self, collection: str) -> None:
        """Build the collection's graphs in another process and swap them in; blocks until then."""
        self._get(collection).compact()

    def tend(self) -> str:
        """Flush, and start compacting a collection that has grown and rests; in words what was done (empty: nothing).

        Does not wait for the build.
        """
        with self._opening:
            known = dict(self._open)
        for name, one in known.items():
            try:
                one.flush()
            except StoreError as exc:  # also where it was dropped this moment
                logger.warning("%s could not be flushed: %s", name, exc)
        with self._opening:
            if self._compacting is not None and self._compacting.is_alive():
                return ""
            for name, one in known.items():
                if self._has_grown(one) and one.is_quiet:
                    self._compacting = threading.Thread(
                        target=_compact_quietly, args=(one,), name=f"compact {name}", daemon=True
                    )
                    self._compacting.start()
                    return f"compacting {name}"
        return ""

    def close(self) -> None:
        with self._opening:
            self._is_closed = True
            known, self._open = dict(self._open), {}
        for one in known.values():
            one.close()
        if self._compacting is not None:
            self._compacting.join()


def _compact_quietly(collection: EdgeCollection) -> None:
    began = time.monotonic()
    try:
        collection.compact()
        logger.info("%s was compacted in %.0f s", collection.folder.name, time.monotonic() - began)
    except StoreError as exc:
        logger.warning("%s", exc)
