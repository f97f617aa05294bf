"""What a vector store and an embedder are to the rest of DevFlow: the two protocols and the values they speak in.

Above: `index` (outbox, rebuilds) and the rooms' searches. Below, one module per implementation. Vectors are derived
data: everything here may be lost and made again from the rows.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:  # numpy costs a start that never searches a tenth of a second
    import numpy as np
    import numpy.typing as npt

Vector: TypeAlias = "npt.NDArray[np.float32]"
"""One embedding, L2-normalised."""

Vectors: TypeAlias = "npt.NDArray[np.float32]"
"""Embeddings, one per row, L2-normalised."""

DENSE, TEXT, SYMBOLS = "dense", "text", "symbols"
"""The three legs of a search: meaning, BM25 over words, exact identifiers."""


class StoreError(Exception):
    """The vector store cannot be used now; the message says why. What was asked may be asked again."""


class MissingCollectionError(StoreError):
    """The store answers, and holds no such collection."""


class EmbeddingError(Exception):
    """Texts could not be embedded; the message says why."""


@dataclass(frozen=True, slots=True)
class Sparse:
    """A sparse vector: distinct 32-bit indices and their weights."""

    indices: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.indices)


@dataclass(frozen=True, slots=True)
class Point:
    """One row as a store keeps it. `payload` values are keywords, integers or booleans; a list means any of them.

    `payload["hash"]` is the hash of what was embedded: reconciliation compares it with the row's.
    """

    id: uuid.UUID
    dense: Vector
    text: Sparse
    symbols: Sparse
    payload: Mapping[str, str | int | bool | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Query:
    """A search of up to three legs (those that are given), each answering its `limit` best points.

    `where` maps payload fields to the values of which a point must have one.
    """

    where: Mapping[str, Sequence[str | int | bool]]
    dense: "Vector | None" = None
    text: Sparse = field(default_factory=Sparse)
    symbols: Sparse = field(default_factory=Sparse)
    limit: int = 100


Hits = Mapping[str, Sequence[tuple[uuid.UUID, float]]]
"""Leg name to (point, score), best first. A leg that was not asked for is absent."""


class VectorStore(Protocol):
    """Collections of points. Methods block and raise `StoreError`; they are safe to call from many threads.

    `create` is idempotent and indexes the payload fields named in `base.PAYLOAD_INDEXES`. Reading a collection that
    does not exist raises `StoreError`; dropping one does nothing.
    """

    def create(self, collection: str, dimensions: int) -> None: ...

    def drop(self, collection: str) -> None: ...

    def collections(self) -> set[str]: ...

    def upsert(self, collection: str, points: Sequence[Point]) -> None: ...

    def delete(self, collection: str, ids: Iterable[uuid.UUID]) -> None: ...

    def search(self, collection: str, query: Query) -> Hits: ...

    def scroll(self, collection: str) -> Iterator[tuple[uuid.UUID, str]]:
        """Yield every point's id and its `payload["hash"]`, in pages."""

    def count(self, collection: str) -> int: ...

    def ping(self) -> str:
        """Say in a few words what answers (`edge, 12,000 points`); raises `StoreError` when nothing does."""

    def close(self) -> None: ...


PAYLOAD_INDEXES: Mapping[str, str] = {
    "project": "integer",
    "source": "integer",
    "has_code": "bool",
    "category": "keyword",
    "tags": "keyword",
    "languages": "keyword",
}


class Embedder(Protocol):
    """Makes vectors of texts. `name` is stable and says which vectors can be compared with which.

    `embed` blocks and raises `EmbeddingError`; it is safe to call from many threads. `dimensions` may cost a call.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    @property
    def max_tokens(self) -> int:
        """Tokens of a text that count; what comes after them is not seen."""

    def embed(self, texts: Sequence[str]) -> Vectors: ...

    def embed_query(self, text: str) -> Vector:
        """Embed one question, with priority over running `embed` calls where that matters."""

    def count_tokens(self, text: str) -> int: ...
