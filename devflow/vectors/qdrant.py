"""The vector store on a Qdrant server, over gRPC. The URL `:memory:` is the library's imitation, for unit tests."""

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from devflow.vectors.base import (
    DENSE,
    PAYLOAD_INDEXES,
    SYMBOLS,
    TEXT,
    Hits,
    MissingCollectionError,
    Point,
    Query,
    Sparse,
    StoreError,
)

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

MEMORY = ":memory:"
WRITE_SECONDS = 30
SLICE = 100
PAGE = 1000
_RETURN = {  # milliseconds; left alone, gRPC looks for a server that came back only every two minutes
    "grpc.initial_reconnect_backoff_ms": 200,
    "grpc.min_reconnect_backoff_ms": 2000,
    "grpc.max_reconnect_backoff_ms": 2000,
}

Value = str | int | bool


class QdrantStore:
    """A `VectorStore` on a server. `url` is its HTTP address, of which host and scheme count; `timeout`: seconds a
    read may take, rounded up."""

    def __init__(self, url: str, *, grpc_port: int = 6334, api_key: str = "", timeout: float = 2.0) -> None:
        self._url = url
        self._grpc_port = grpc_port
        self._headers = {"api-key": api_key} if api_key else {}
        self._timeout = timeout
        self._lock = threading.RLock()
        self._clients: tuple[QdrantClient, QdrantClient] | None = None
        self._is_closed = False

    @contextmanager
    def _client(self, *, writing: bool = False) -> Iterator["QdrantClient"]:
        import grpc
        from qdrant_client.common.client_exceptions import QdrantException
        from qdrant_client.http.exceptions import ApiException

        try:
            client = self._connected()[writing]
            if self._url == MEMORY:
                with self._lock:
                    yield client
            else:
                yield client
        except grpc.RpcError as exc:
            code = exc.code().name if isinstance(exc, grpc.Call) else type(exc).__name__
            said = exc.details() if isinstance(exc, grpc.Call) else ""
            kind = MissingCollectionError if code == "NOT_FOUND" else StoreError
            raise kind(f"Qdrant: {code}: {' '.join(str(said).split())[:300]}") from exc
        except (ApiException, QdrantException, ValueError, RuntimeError, AssertionError) as exc:
            kind = MissingCollectionError if self._url == MEMORY and "not found" in str(exc) else StoreError
            raise kind(f"Qdrant: {' '.join(str(exc).split())[:300] or type(exc).__name__}") from exc

    def _connected(self) -> tuple["QdrantClient", "QdrantClient"]:
        """The client to read and the one to write with: the library takes no timeout for a single write."""
        with self._lock:
            if self._is_closed:
                raise StoreError("the vector store was closed")
            if self._clients is None:
                self._clients = self._made()
            return self._clients

    def _made(self) -> tuple["QdrantClient", "QdrantClient"]:
        import math

        from qdrant_client import QdrantClient

        if self._url == MEMORY:
            alone = QdrantClient(location=MEMORY, force_disable_check_same_thread=True)
            return alone, alone

        def client(timeout: int) -> QdrantClient:
            made = QdrantClient(
                url=self._url,
                grpc_port=self._grpc_port,
                prefer_grpc=True,
                timeout=timeout,
                headers=dict(self._headers),
                grpc_options=dict(_RETURN),
                check_compatibility=False,
                pool_size=1,
            )
            _ = made.grpc_points, made.grpc_collections  # made on first use otherwise, by several threads at once
            return made

        return client(math.ceil(self._timeout)), client(WRITE_SECONDS)

    def create(self, collection: str, dimensions: int) -> None:
        from qdrant_client import models

        with self._client(writing=True) as client:
            if not client.collection_exists(collection):
                sparse = models.SparseVectorParams(modifier=models.Modifier.IDF)
                try:
                    client.create_collection(
                        collection,
                        vectors_config={DENSE: models.VectorParams(size=dimensions, distance=models.Distance.COSINE)},
                        sparse_vectors_config={TEXT: sparse, SYMBOLS: sparse},
                    )
                except Exception:
                    if not client.collection_exists(collection):  # another process was faster
                        raise
            made = client.get_collection(collection)
            dense = made.config.params.vectors
            has = dense[DENSE].size if isinstance(dense, dict) and DENSE in dense else 0
            if has != dimensions:
                raise StoreError(f"{collection} has {has} dimensions, not {dimensions}")
            for field, kind in PAYLOAD_INDEXES.items():
                if self._url != MEMORY and field not in made.payload_schema:
                    client.create_payload_index(collection, field, models.PayloadSchemaType(kind))

    def drop(self, collection: str) -> None:
        with self._client(writing=True) as client:
            client.delete_collection(collection)

    def collections(self) -> set[str]:
        with self._client() as client:
            return {one.name for one in client.get_collections().collections}

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        from qdrant_client import models

        for at in range(0, len(points), SLICE):
            part = [
                models.PointStruct(id=str(one.id), vector=_vectors(one), payload=_payload(one.payload))
                for one in points[at : at + SLICE]
            ]
            with self._client(writing=True) as client:
                client.upsert(collection, part, wait=True)

    def delete(self, collection: str, ids: Iterable[uuid.UUID]) -> None:
        from qdrant_client import models

        names: list[int | str | uuid.UUID] = [str(one) for one in ids]
        for at in range(0, len(names), PAGE):
            selector = models.PointIdsList(points=names[at : at + PAGE])
            with self._client(writing=True) as client:
                client.delete(collection, selector, wait=True)

    def search(self, collection: str, query: Query) -> Hits:
        from qdrant_client import models

        legs: dict[str, Any] = {} if query.dense is None else {DENSE: query.dense.tolist()}
        legs |= {name: _sparse(one) for name, one in ((TEXT, query.text), (SYMBOLS, query.symbols)) if one}
        if not legs or query.limit < 1:
            self.count(collection)  # the same error where the collection is missing
            return {leg: [] for leg in legs}
        only = models.Filter(must=[_one_of(*item) for item in query.where.items()]) if query.where else None
        asked = [
            models.QueryRequest(query=vector, using=leg, filter=only, limit=query.limit, with_payload=False)
            for leg, vector in legs.items()
        ]
        with self._client() as client:
            answers = client.query_batch_points(collection, asked)
        return {
            leg: [(uuid.UUID(str(hit.id)), hit.score) for hit in answer.points]
            for leg, answer in zip(legs, answers, strict=True)
        }

    def scroll(self, collection: str) -> Iterator[tuple[uuid.UUID, str]]:
        after: Any = None
        while True:
            with self._client() as client:
                records, after = client.scroll(collection, limit=PAGE, offset=after, with_payload=["hash"])
            for one in records:
                yield uuid.UUID(str(one.id)), str((one.payload or {}).get("hash", ""))
            if after is None:
                return

    def count(self, collection: str) -> int:
        with self._client() as client:
            return client.count(collection, exact=True).count

    def ping(self) -> str:
        return f"Qdrant at {self._url}, {len(self.collections())} collections"

    def tend(self) -> str:
        """Nothing: the server looks after itself."""
        return ""

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            clients, self._clients = self._clients, None
        for client in set(clients or ()):
            client.close()


def _vectors(point: Point) -> dict[str, Any]:
    sparse = {name: _sparse(one) for name, one in ((TEXT, point.text), (SYMBOLS, point.symbols)) if one}
    return {DENSE: point.dense.tolist(), **sparse}


def _sparse(vector: Sparse) -> "models.SparseVector":
    from qdrant_client import models

    return models.SparseVector(indices=list(vector.indices), values=list(vector.values))


def _payload(payload: Mapping[str, Value | Sequence[str]]) -> dict[str, Any]:
    return {field: value if isinstance(value, Value) else list(value) for field, value in payload.items()}


def _one_of(field: str, values: Sequence[Value]) -> "models.Filter | models.FieldCondition":
    from qdrant_client import models

    def match(condition: Any) -> models.FieldCondition:
        return models.FieldCondition(key=field, match=condition)

    words = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    either = [match(models.MatchAny(any=some)) for some in (words, numbers) if some]
    either += [match(models.MatchValue(value=value)) for value in values if isinstance(value, bool)]
    if not either:
        return match(models.MatchAny(any=words))  # one of nothing: no point has it
    return either[0] if len(either) == 1 else models.Filter(should=list(either))
