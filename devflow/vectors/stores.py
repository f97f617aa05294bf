"""Which vector store this process uses: a Qdrant server, or the embedded one in the data directory.

The embedded one has one owner at a time. Whichever process needs it first takes the lock and serves the others on
loopback; when the owner ends, however it ends, the next call of any process takes its place.
"""

import atexit
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from devflow import config, owner
from devflow.vectors.base import Hits, Point, Query, StoreError, VectorStore

if TYPE_CHECKING:
    from devflow.vectors.edge import EdgeStore
    from devflow.vectors.remote import RemoteStore, Served

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.02


class Store(VectorStore, Protocol):
    def tend(self) -> str:
        """Do what has to be done now and then, without waiting for it; in words what was begun (empty: nothing)."""


class SharedStore:
    """The embedded store of a directory, wherever it is owned; decided anew at every call.

    `timeout`: seconds a read may take when another process owns it. Raises `StoreError`, also to a call that is under
    way when the owner dies.
    """

    def __init__(self, directory: Path, *, optimize_above: int = 20_000, timeout: float = 2.0) -> None:
        self._directory = directory
        self._optimize_above = optimize_above
        self._timeout = timeout
        self._deciding = threading.Lock()
        self._held: owner.Owner | None = None
        self._own: EdgeStore | None = None
        self._served: Served | None = None
        self._other: tuple[owner.Published, RemoteStore] | None = None

    @property
    def is_owner(self) -> bool:
        return self._held is not None

    def _store(self) -> "EdgeStore | RemoteStore":
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                with self._deciding:
                    if (found := self._mine() or self._others()) is not None:
                        return found
            except OSError as exc:
                raise StoreError(f"{self._directory} cannot be used: {exc}") from exc
            if time.monotonic() > deadline:
                raise StoreError("the process that owns the vectors does not listen yet; try again")
            time.sleep(_POLL_SECONDS)

    def _mine(self) -> "EdgeStore | None":
        if self._held is not None and not self._held.holds():
            with suppress(StoreError):  # somebody deleted the directory: what is open here is in none any more
                self._step_down()
        if self._held is None:
            held = owner.try_acquire(self._directory)
            if held is None:
                return None
            from devflow.vectors.edge import EdgeStore
            from devflow.vectors.remote import Served

            try:
                own = EdgeStore(self._directory, optimize_above=self._optimize_above)
                served = Served(own)
                held.publish(served.url, served.token)
            except BaseException:
                held.release()
                raise
            self._forget_other()
            self._held, self._own, self._served = held, own, served
        return self._own

    def _others(self) -> "RemoteStore | None":
        published = owner.read_published(self._directory)
        if published is None:
            return None
        if self._other is None or self._other[0] != published:
            from devflow.vectors.remote import RemoteStore

            self._forget_other()
            self._other = published, RemoteStore(published.url, published.key, timeout=self._timeout)
        return self._other[1]

    def _forget_other(self) -> None:
        if self._other is not None:
            self._other[1].close()
            self._other = None

    def _step_down(self) -> None:
        held, own, served = self._held, self._own, self._served
        self._held = self._own = self._served = None
        try:
            if served is not None:
                served.close()
            if own is not None:
                own.close()
        finally:
            if held is not None:
                held.release()

    def close(self) -> None:
        """Flush, and let another process own the store; the next call decides anew."""
        with self._deciding:
            self._forget_other()
            self._step_down()

    def create(self, collection: str, dimensions: int) -> None:
        self._store().create(collection, dimensions)

    def drop(self, collection: str) -> None:
        self._store().drop(collection)

    def collections(self) -> set[str]:
        return self._store().collections()

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        self._store().upsert(collection, points)

    def delete(self, collection: str, ids: Iterable[uuid.UUID]) -> None:
        self._store().delete(collection, ids)

    def search(self, collection: str, query: Query) -> Hits:
        return self._store().search(collection, query)

    def scroll(self, collection: str) -> Iterator[tuple[uuid.UUID, str]]:
        return self._store().scroll(collection)

    def count(self, collection: str) -> int:
        return self._store().count(collection)

    def ping(self) -> str:
        return self._store().ping()

    def tend(self) -> str:
        return self._store().tend()


_choosing = threading.Lock()
_chosen: tuple[int, Store] | None = None
_of_parents: list[tuple[int, Store]] = []


def store() -> Store:
    """The store of this process by the configuration. Cheap: nothing is opened before the first call of a method."""
    global _chosen
    with _choosing:
        if _chosen is not None and _chosen[0] != os.getpid():
            _of_parents.append(_chosen)  # a fork must neither use nor close its parent's files
            _chosen = None
        if _chosen is None:
            atexit.register(close)
            _chosen = os.getpid(), _configured()
        return _chosen[1]


def _configured() -> Store:
    conf = config.current()
    if url := conf.mcp_gateway.qdrant_url:
        from devflow.vectors.qdrant import QdrantStore

        return QdrantStore(
            url,
            grpc_port=conf.mcp_gateway.qdrant_grpc_port,
            api_key=conf.mcp_gateway.qdrant_api_key.get_secret_value(),
            timeout=conf.vectors.timeout_seconds,
        )
    return SharedStore(
        config.home() / "vectors",
        optimize_above=conf.vectors.optimize_above,
        timeout=conf.vectors.timeout_seconds,
    )


def tend() -> str:
    """For a periodic job: let the store do what it has to now and then. In words what was begun (empty: nothing)."""
    try:
        done = store().tend()
    except StoreError as exc:
        logger.warning("the vectors could not be tended: %s", exc)
        return ""
    if done:
        logger.info("vectors: %s", done)
    return done


def close() -> None:
    """Flush and let go of the store; the next `store()` opens it again."""
    global _chosen
    with _choosing:
        chosen, _chosen = _chosen, None
        atexit.unregister(close)
    if chosen is not None and chosen[0] == os.getpid():
        chosen[1].close()


def forget() -> None:
    """For tests, whose configuration and data directory change."""
    close()
