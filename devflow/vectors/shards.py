"""One folder of the embedded engine (qdrant-edge), spoken to in the words of `base`.

Above: `edge`, which decides which folder is live, and `build`, which optimises one in a process of its own. What to
know of the engine (0.9): every call keeps the GIL to its end, so writes go in small slices and graphs are built in
another process; what `update` was given is in its log, so kill -9 loses none of it; a filter never matches booleans,
so they are kept as 0 and 1.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from devflow.vectors.base import DENSE, PAYLOAD_INDEXES, SYMBOLS, TEXT, Hits, Point, Query, Sparse, StoreError

if TYPE_CHECKING:
    import qdrant_edge

SLICE = 100
"""Points written at once: about 3 ms in which no other thread runs."""

T = TypeVar("T")
Value = str | int | bool


@contextmanager
def engine(doing: str) -> Iterator[None]:
    """Turn whatever the engine raises into `StoreError`; its panics are no `Exception`."""
    try:
        yield
    except StoreError:
        raise
    except BaseException as exc:
        if isinstance(exc, Exception) or type(exc).__name__ == "PanicException":
            raise StoreError(f"{doing} failed: {' '.join(str(exc).split())[:300]}") from exc
        raise


class Shard:
    """An open folder. Safe to call from many threads; nothing may run once `close` is called."""

    def __init__(self, folder: Path, shard: "qdrant_edge.EdgeShard") -> None:
        self.folder = folder
        self.readers = 0  # counted by who may close it
        self._shard = shard

    @classmethod
    def create(cls, folder: Path, dimensions: int) -> Self:
        import qdrant_edge as edge

        sparse = edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)
        config = edge.EdgeConfig(
            vectors={DENSE: edge.EdgeVectorParams(size=dimensions, distance=edge.Distance.Cosine)},
            sparse_vectors={TEXT: sparse, SYMBOLS: sparse},
        )
        kinds = {"keyword": edge.PayloadSchemaType.Keyword, "integer": edge.PayloadSchemaType.Integer}
        with engine(f"making {folder}"):
            folder.mkdir(parents=True)
            shard = edge.EdgeShard.create(str(folder), config)
            for field, kind in PAYLOAD_INDEXES.items():
                kind = "integer" if kind == "bool" else kind
                shard.update(edge.UpdateOperation.create_field_index(field, kinds[kind]))
            shard.flush()
        return cls(folder, shard)

    @classmethod
    def load(cls, folder: Path) -> Self:
        import qdrant_edge as edge

        with engine(f"opening {folder}"):
            return cls(folder, edge.EdgeShard.load(str(folder)))

    def upsert(self, points: Sequence[Point]) -> None:
        """Write at most `SLICE` points; they survive kill -9 from here on."""
        import qdrant_edge as edge

        with engine("writing vectors"):
            made = [edge.Point(id=one.id, vector=_vectors(one), payload=_payload(one.payload)) for one in points]
            self._shard.update(edge.UpdateOperation.upsert_points(made))

    def delete(self, ids: Sequence[uuid.UUID]) -> None:
        import qdrant_edge as edge

        with engine("deleting vectors"):
            self._shard.update(edge.UpdateOperation.delete_points(list(ids)))

    def copy(self, ids: Sequence[uuid.UUID], target: "Shard") -> None:
        """Bring these points of `target` to the state they have here: written or gone."""
        import qdrant_edge as edge

        for part in slices(ids):
            with engine("copying vectors"):
                found = self._shard.retrieve(list(part), with_payload=True, with_vector=True)
                here = [
                    edge.Point(id=one.id, vector=one.vector, payload=one.payload)
                    for one in found
                    if one.vector is not None
                ]
                if here:
                    target._shard.update(edge.UpdateOperation.upsert_points(here))
            if gone := set(part) - {_uuid(one.id) for one in found}:
                target.delete(list(gone))

    def search(self, query: Query) -> Hits:
        import qdrant_edge as edge

        legs: dict[str, Any] = {} if query.dense is None else {DENSE: query.dense.tolist()}
        legs |= {name: _sparse(one) for name, one in ((TEXT, query.text), (SYMBOLS, query.symbols)) if one}
        with engine("searching vectors"):
            only = _filter(query)
            asked = [
                edge.QueryRequest(query=edge.Query.Nearest(vector, using=leg), limit=query.limit, filter=only)
                for leg, vector in legs.items()
            ]
            answers = self._shard.query_batch(edge.QueryBatchRequest(asked)) if asked else []
        return {leg: [(_uuid(hit.id), hit.score) for hit in hits] for leg, hits in zip(legs, answers, strict=True)}

    def page(self, after: uuid.UUID | None, limit: int) -> tuple[list[tuple[uuid.UUID, str]], uuid.UUID | None]:
        """Give (id, hash) of up to `limit` points from `after` on, and where the next page starts (None: nowhere)."""
        import qdrant_edge as edge

        with engine("reading vectors"):
            asked = edge.ScrollRequest(offset=after, limit=limit, with_payload=["hash"], with_vector=False)
            records, following = self._shard.scroll(asked)
        points = [(_uuid(one.id), str((one.payload or {}).get("hash", ""))) for one in records]
        return points, None if following is None else _uuid(following)

    def count(self) -> int:
        with engine("counting vectors"):
            return self._shard.info().points_count

    def flush(self) -> None:
        with engine("flushing vectors"):
            self._shard.flush()

    def optimize(self) -> None:
        """Build the graphs. Blocks, with the GIL, for seconds to minutes: only in a process of its own."""
        with engine("optimising vectors"):
            self._shard.optimize()

    def close(self) -> None:
        with engine("closing vectors"):
            self._shard.close()


def slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + SLICE] for at in range(0, len(items), SLICE))


def _uuid(given: "int | str | uuid.UUID") -> uuid.UUID:
    """A point's id as the engine gives it; ours are UUIDs, which its type does not say."""
    return given if isinstance(given, uuid.UUID) else uuid.UUID(str(given))


def _vectors(point: Point) -> dict[str, Any]:
    sparse = {name: _sparse(one) for name, one in ((TEXT, point.text), (SYMBOLS, point.symbols)) if one}
    return {DENSE: point.dense.tolist(), **sparse}


def _sparse(vector: Sparse) -> "qdrant_edge.SparseVector":
    import qdrant_edge as edge

    return edge.SparseVector(list(vector.indices), list(vector.values))


def _payload(payload: Mapping[str, Value | Sequence[str]]) -> dict[str, Any]:
    return {
        field: int(value) if isinstance(value, bool) else value if isinstance(value, str | int) else list(value)
        for field, value in payload.items()
    }


def _filter(query: Query) -> "qdrant_edge.Filter | None":
    import qdrant_edge as edge

    if not query.where:
        return None
    return edge.Filter(must=[_one_of(field, values) for field, values in query.where.items()])


def _one_of(field: str, values: Iterable[Value]) -> "qdrant_edge.FieldCondition | qdrant_edge.Filter":
    import qdrant_edge as edge

    words = [value for value in values if isinstance(value, str)]
    numbers = [int(value) for value in values if not isinstance(value, str)]
    kinds: list[list[str] | list[int]] = [words, numbers] if words and numbers else [words or numbers]
    either = [edge.FieldCondition(key=field, match=edge.MatchAny(any=some)) for some in kinds]
    return either[0] if len(either) == 1 else edge.Filter(should=list(either))
