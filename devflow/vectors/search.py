"""Ask the live collection of a kind, and say why where it cannot be asked.

A store or an embedder that failed is left alone for a moment, and then asked by one caller first: nobody else waits
for its timeout.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from devflow.vectors import embedders, stores, terms
from devflow.vectors.base import EmbeddingError, Hits, MissingCollectionError, Query, StoreError
from devflow.vectors.models import Collection

if TYPE_CHECKING:
    from devflow.vectors.base import Vector

REST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the store found by leg. `reason` says why a leg (or all of them) is missing; empty: nothing is."""

    hits: Hits = field(default_factory=dict)
    reason: str = ""


class _Rest:
    """Until when a part that failed is not asked again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._why = ""

    def why(self) -> str:
        """Why it rests; empty: it does not."""
        with self._lock:
            return self._why if self._until > time.monotonic() else ""

    def excuse(self) -> str:
        """Why not to ask it now; empty: ask, and say with `begin` or `end` how it went. When the rest is over one
        caller is let through, and the others wait for what that one finds."""
        with self._lock:
            now = time.monotonic()
            if self._why and self._until <= now:
                self._until = now + REST_SECONDS
                return ""
            return self._why

    def begin(self, why: str) -> None:
        with self._lock:
            self._until, self._why = time.monotonic() + REST_SECONDS, why

    def end(self) -> None:
        with self._lock:
            self._until, self._why = 0.0, ""


resting = _Rest()
"""The store."""
speechless = _Rest()
"""The embedder."""


def search(
    kind: str,
    text: str,
    *,
    where: Mapping[str, Sequence[str | int | bool]],
    limit: int = 100,
    words: bool = True,
) -> Answer:
    """Search a kind by meaning and, with `words`, by words and exact identifiers. Blocks; never raises for a fault."""
    if why := resting.excuse():
        return Answer(reason=why)
    collection = Collection.objects.filter(kind=kind, state=Collection.State.LIVE).first()
    if collection is None or not collection.dimensions:
        return Answer(reason="The index is being built for the first time." if collection else "")
    dense, reason = _embedded(collection.embedder, text)
    query = Query(where=where, dense=dense, limit=limit)
    if words or dense is None:
        query = replace(query, text=terms.query_terms(text), symbols=terms.symbol_terms(terms.symbols_in(text)))
    try:
        hits = stores.store().search(collection.name, query)
    except MissingCollectionError:
        resting.end()
        return Answer(
            reason="The vector store has lost the index. It is made anew within minutes; `devflow reindex` does it now."
        )
    except StoreError as exc:
        resting.begin(f"The vector store does not answer: {exc}")
        return Answer(reason=f"The vector store does not answer: {exc}")
    resting.end()
    return Answer(hits, reason)


def _embedded(name: str, text: str) -> "tuple[Vector | None, str]":
    """The question's vector, or why there is none."""
    if why := speechless.excuse():
        return None, why
    try:
        embedder = embedders.by_name(name)
        if embedder is None:
            return None, f"The index is being rebuilt: {name}, which made it, is no longer configured."
        vector = embedder.embed_query(text)
    except EmbeddingError as exc:
        speechless.begin(f"The question could not be embedded: {exc}")
        return None, f"The question could not be embedded: {exc}"
    speechless.end()
    return vector, ""
