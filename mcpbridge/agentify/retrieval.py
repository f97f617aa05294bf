"""Which actions are near a task in words: by meaning (the embedder of knowledge) and by words (BM25), fused.

Vectors of actions are kept in memory by their fingerprint. Everything here blocks; call it off the loop.
"""

import logging
import math
import re
import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devflow.vectors import embedders, terms
from devflow.vectors.base import DENSE, TEXT, EmbeddingError
from devflow.vectors.fusion import fuse
from mcpbridge.gateway.specs import ActionSpec

if TYPE_CHECKING:
    from devflow.vectors.base import Sparse, Vector

logger = logging.getLogger(__name__)

WEIGHTS = {DENSE: 0.7, TEXT: 0.3}
KEPT = 5000
MAX_TEXT = 2000
MAX_QUERY = 4000

_PARTS = re.compile(r"[a-z]+|\d+")


@dataclass(frozen=True, slots=True)
class Near:
    """An action and how near it is to a task, 0 to 1 among the others. `likeness`: cosine of meanings, if known."""

    action: ActionSpec
    score: float
    likeness: float | None


def text_of(action: ActionSpec) -> str:
    """What an action says of itself, as it is compared with a task."""
    name = " ".join(words_of(action.name))
    return f"{name}. {action.title}. {action.description}\n{' '.join(_parameters(action.input_schema))}"[:MAX_TEXT]


def words_of(name: str) -> list[str]:
    """`searchFiles`, `search_files` and `search-files` are `search` and `files`."""
    return _PARTS.findall(f"{name} {terms.split_identifiers(name)}".lower())


def _parameters(schema: Mapping[str, Any]) -> list[str]:
    said: list[str] = []
    properties = schema.get("properties")
    for name, item in (properties if isinstance(properties, dict) else {}).items():
        about = item.get("description", "") if isinstance(item, dict) else ""
        said.append(f"{' '.join(words_of(name))}: {about}" if isinstance(about, str) else name)
    return said


class _Kept:
    """Vectors and words of actions, made once for each definition of one."""

    def __init__(self) -> None:
        self._vectors: OrderedDict[tuple[str, str], Vector] = OrderedDict()
        self._words: OrderedDict[str, Sparse] = OrderedDict()
        self._lock = threading.Lock()

    def vectors(self, actions: Sequence[ActionSpec]) -> "list[Vector]":
        """Raises `EmbeddingError`."""
        embedder = embedders.current()
        keys = [(embedder.name, _key(action)) for action in actions]
        with self._lock:
            missing = {key: action for key, action in zip(keys, actions, strict=True) if key not in self._vectors}
            if missing:
                made = embedder.embed([text_of(action) for action in missing.values()])
                self._vectors.update(zip(missing, made, strict=True))
            found = [self._vectors[key] for key in keys]
            while len(self._vectors) > max(KEPT, len(actions)):
                self._vectors.popitem(last=False)
        return found

    def words(self, actions: Sequence[ActionSpec]) -> "list[Sparse]":
        with self._lock:
            for action in actions:
                if (key := _key(action)) not in self._words:
                    self._words[key] = terms.document_terms(text_of(action))
            found = [self._words[_key(action)] for action in actions]
            while len(self._words) > max(KEPT, len(actions)):
                self._words.popitem(last=False)
        return found

    def forget(self) -> None:
        with self._lock:
            self._vectors.clear()
            self._words.clear()


def _key(action: ActionSpec) -> str:
    return f"{action.backend}/{action.name}/{action.fingerprint}"


kept = _Kept()


def ranked(query: str, actions: Sequence[ActionSpec]) -> list[Near]:
    """All actions, nearest first. Without an embedder, by words alone."""
    query = query[:MAX_QUERY]
    points = [uuid.UUID(int=number) for number in range(len(actions))]
    likeness = _likeness(query, actions)
    legs = {TEXT: _by_words(query, actions)}
    if likeness is not None:
        legs[DENSE] = likeness
    hits = {
        leg: [(point, score) for point, score in zip(points, scores, strict=True) if leg == DENSE or score > 0]
        for leg, scores in legs.items()
    }
    found = {hit.point.int: hit.score for hit in fuse(hits, WEIGHTS)}
    near = [
        Near(action, found.get(number, 0.0), None if likeness is None else likeness[number])
        for number, action in enumerate(actions)
    ]
    return sorted(near, key=lambda item: (-item.score, item.action.full_name))


def _likeness(query: str, actions: Sequence[ActionSpec]) -> list[float] | None:
    try:
        asked = embedders.current().embed_query(query)
        return [float(vector @ asked) for vector in kept.vectors(actions)]
    except EmbeddingError as exc:
        logger.warning("tasks are matched by words alone: %s", exc)
        return None


def _by_words(query: str, actions: Sequence[ActionSpec]) -> list[float]:
    documents = [dict(zip(sparse.indices, sparse.values, strict=True)) for sparse in kept.words(actions)]
    seen = Counter(index for document in documents for index in document)
    asked = [(index, math.log(1 + len(documents) / (0.5 + seen[index]))) for index in terms.query_terms(query).indices]
    return [sum(document.get(index, 0.0) * rarity for index, rarity in asked) for document in documents]
