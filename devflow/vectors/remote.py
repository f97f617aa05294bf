"""The embedded store for the other processes of this machine: `serve` in the process that owns it, `RemoteStore` there.

HTTP on loopback, a POST per method with a JSON body, a bearer token that only this user can read. Vectors are base64
of little-endian float32. A `StoreError` of the owner arrives as one.
"""

import base64
import binascii
import hmac
import json
import logging
import secrets
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx

from devflow.vectors.base import Hits, MissingCollectionError, Point, Query, Sparse, StoreError

if TYPE_CHECKING:
    from devflow.vectors.base import Vector
    from devflow.vectors.edge import EdgeStore

logger = logging.getLogger(__name__)

WRITE_SECONDS = 30.0
_UPSERT_POINTS = 500
_MAX_BODY = 256 * 1024 * 1024
_READ_OF_STRANGERS = 64 * 1024

Json = dict[str, Any]


# --- the wire -------------------------------------------------------------------------------------------------------


def _pack(vector: "Vector") -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _unpack(text: str) -> "Vector":
    import numpy as np

    return np.frombuffer(base64.b64decode(text), "<f4").astype(np.float32)


def _pack_sparse(vector: Sparse) -> list[Sequence[float]]:
    return [vector.indices, vector.values]


def _unpack_sparse(packed: Sequence[Sequence[Any]]) -> Sparse:
    return Sparse(tuple(packed[0]), tuple(packed[1]))


def _pack_point(point: Point) -> Json:
    return {
        "id": point.id.hex,
        "dense": _pack(point.dense),
        "text": _pack_sparse(point.text),
        "symbols": _pack_sparse(point.symbols),
        "payload": dict(point.payload),
    }


def _unpack_point(packed: Json) -> Point:
    return Point(
        id=uuid.UUID(packed["id"]),
        dense=_unpack(packed["dense"]),
        text=_unpack_sparse(packed["text"]),
        symbols=_unpack_sparse(packed["symbols"]),
        payload=packed["payload"],
    )


def _pack_query(query: Query) -> Json:
    return {
        "where": {field: list(values) for field, values in query.where.items()},
        "dense": None if query.dense is None else _pack(query.dense),
        "text": _pack_sparse(query.text),
        "symbols": _pack_sparse(query.symbols),
        "limit": query.limit,
    }


def _unpack_query(packed: Json) -> Query:
    return Query(
        where=packed["where"],
        dense=None if packed["dense"] is None else _unpack(packed["dense"]),
        text=_unpack_sparse(packed["text"]),
        symbols=_unpack_sparse(packed["symbols"]),
        limit=packed["limit"],
    )


# --- the owner ------------------------------------------------------------------------------------------------------


def _search(store: "EdgeStore", given: Json) -> Json:
    hits = store.search(given["collection"], _unpack_query(given["query"]))
    return {leg: [(point.hex, score) for point, score in found] for leg, found in hits.items()}


def _page(store: "EdgeStore", given: Json) -> list[Any]:
    after = given["after"]
    points, following = store.page(given["collection"], None if after is None else uuid.UUID(after))
    return [[(point.hex, digest) for point, digest in points], None if following is None else following.hex]


_METHODS: Mapping[str, Callable[["EdgeStore", Json], Any]] = {
    "create": lambda store, given: store.create(given["collection"], given["dimensions"]),
    "drop": lambda store, given: store.drop(given["collection"]),
    "collections": lambda store, given: sorted(store.collections()),
    "upsert": lambda store, given: store.upsert(given["collection"], [_unpack_point(one) for one in given["points"]]),
    "delete": lambda store, given: store.delete(given["collection"], [uuid.UUID(one) for one in given["ids"]]),
    "search": _search,
    "page": _page,
    "count": lambda store, given: store.count(given["collection"]),
    "ping": lambda store, given: store.ping(),
    "tend": lambda store, given: store.tend(),
}


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together

    def do_POST(self) -> None:  # http.server's name
        status, answer = self._answer()
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status in (400, 403):
            self.send_header("Connection", "close")  # the body may not have been read
        self.end_headers()
        self.wfile.write(body)

    def _answer(self) -> tuple[int, Json]:
        given = self.headers.get("Authorization", "")
        try:
            length = int(self.headers.get("Content-Length", ""))
            if not 0 < length <= _MAX_BODY:
                raise ValueError("the body has no acceptable length")
            if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
                self.rfile.read(min(length, _READ_OF_STRANGERS))  # closing on unread bytes would eat the answer
                return 403, {"error": "This store is for the processes of one DevFlow."}
            body = self.rfile.read(length)
            method = _METHODS[self.path.removeprefix("/")]
            return 200, {"result": method(self.server.store, json.loads(body))}
        except MissingCollectionError as exc:
            return 404, {"error": str(exc)}
        except StoreError as exc:
            return 409, {"error": str(exc)}
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, binascii.Error) as exc:
            return 400, {"error": f"The call cannot be read: {type(exc).__name__}: {exc}"}

    def log_message(self, format: str, *args: object) -> None:
        logger.debug("vectors for another process: " + format, *args)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, store: "EdgeStore") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store = store
        self.token = secrets.token_urlsafe(32)

    def handle_error(self, request: object, client_address: object) -> None:
        logger.debug("a process that used the vectors went away")


class Served:
    """A store being served: `url` and `token` are what `RemoteStore` needs."""

    def __init__(self, store: "EdgeStore") -> None:
        self._server = _Server(store)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.token = self._server.token
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="vectors for others", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Take no more calls. Connections that are open hear from the closed store that it is."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


# --- the others -----------------------------------------------------------------------------------------------------


class RemoteStore:
    """A `VectorStore` that another process of this machine owns. `timeout`: seconds a read may take."""

    def __init__(self, url: str, token: str, *, timeout: float = 2.0) -> None:
        self._timeout = timeout
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout,
            trust_env=False,  # no proxy between two processes of one machine
            limits=httpx.Limits(max_connections=16),
        )

    def _call(self, method: str, *, seconds: float | None = None, **given: Any) -> Any:
        try:
            answer = self._client.post(f"/{method}", json=given, timeout=seconds or self._timeout)
            said = answer.json()
        except (httpx.HTTPError, ValueError, RuntimeError) as exc:  # RuntimeError: closed meanwhile
            raise StoreError(
                f"the process that owns the vectors does not answer ({str(exc) or type(exc).__name__}); try again"
            ) from exc
        if answer.status_code == 404:
            raise MissingCollectionError(str(said.get("error", answer.status_code)))
        if answer.status_code != 200:
            raise StoreError(str(said.get("error", answer.status_code)))
        return said["result"]

    def create(self, collection: str, dimensions: int) -> None:
        self._call("create", seconds=WRITE_SECONDS, collection=collection, dimensions=dimensions)

    def drop(self, collection: str) -> None:
        self._call("drop", seconds=WRITE_SECONDS, collection=collection)

    def collections(self) -> set[str]:
        return set(self._call("collections"))

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        for at in range(0, len(points), _UPSERT_POINTS):
            packed = [_pack_point(one) for one in points[at : at + _UPSERT_POINTS]]
            self._call("upsert", seconds=WRITE_SECONDS, collection=collection, points=packed)

    def delete(self, collection: str, ids: Iterable[uuid.UUID]) -> None:
        self._call("delete", seconds=WRITE_SECONDS, collection=collection, ids=[one.hex for one in ids])

    def search(self, collection: str, query: Query) -> Hits:
        hits = self._call("search", collection=collection, query=_pack_query(query))
        return {leg: [(uuid.UUID(point), score) for point, score in found] for leg, found in hits.items()}

    def scroll(self, collection: str) -> Iterator[tuple[uuid.UUID, str]]:
        after = None
        while True:
            points, after = self._call("page", collection=collection, after=after)
            for point, digest in points:
                yield uuid.UUID(point), digest
            if after is None:
                return

    def count(self, collection: str) -> int:
        return int(self._call("count", collection=collection))

    def ping(self) -> str:
        return f"{self._call('ping')} (in another process)"

    def tend(self) -> str:
        return str(self._call("tend", seconds=WRITE_SECONDS))

    def close(self) -> None:
        self._client.close()
