"""Points and questions for the tests of the stores."""

import uuid
from collections.abc import Sequence

import numpy as np

from devflow.vectors.base import Point, Sparse, Vector

DIMENSIONS = 8


def uid(number: int) -> uuid.UUID:
    return uuid.UUID(int=number)


def vector(seed: int, dimensions: int = DIMENSIONS) -> Vector:
    made = np.random.default_rng(seed).normal(size=dimensions).astype(np.float32)
    return made / np.linalg.norm(made)  # type: ignore[no-any-return]  # numpy's float32 / float32


def point(
    number: int,
    *,
    seed: int | None = None,
    words: Sequence[int] = (),
    symbols: Sequence[int] = (),
    digest: str = "",
    dimensions: int = DIMENSIONS,
    **payload: str | int | bool | Sequence[str],
) -> Point:
    return Point(
        id=uid(number),
        dense=vector(number if seed is None else seed, dimensions),
        text=Sparse(tuple(words), (1.0,) * len(words)),
        symbols=Sparse(tuple(symbols), (1.0,) * len(symbols)),
        payload={"hash": digest or f"hash {number}", **payload},
    )


def numbers(hits: Sequence[tuple[uuid.UUID, float]]) -> list[int]:
    return [found.int for found, _ in hits]
