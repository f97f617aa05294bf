"""Memories that answer a question, and memories that say nearly the same.

Meaning, words and exact identifiers come from the vectors, fused by score. What the vectors do not know yet, and
everything while they are away, is found by the keyword index of the database. Every hit is read again from its row.
"""

import re
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.utils import timezone

from devflow import fulltext
from devflow.errors import invalid
from devflow.vectors import search as vectors
from devflow.vectors.base import DENSE, SYMBOLS, TEXT
from devflow.vectors.fusion import fuse
from devflow.vectors.models import Collection as VectorCollection
from devflow.vectors.models import PendingPoint
from memory.models import COLUMNS, Memory, MemoryQuerySet, Trust
from memory.selectors import memories
from memory.selectors.memories import Match

WEIGHTS = {DENSE: 0.5, TEXT: 0.5, SYMBOLS: 0.25}
MAX_RESULTS = 200
CANDIDATES = 100

# What is asked for decides; these only order what answers about equally well.
_RELEVANCE = 0.9
_PINNED = 0.05
_TRUSTED = {Trust.PERSON: 0.05, Trust.EVIDENCE: 0.03, Trust.AGENT: 0.02, Trust.OUTSIDE: 0.0}

SIMILAR_FROM = 0.75
"""Cosine (or share of common words) from which two memories are called similar."""
MAX_SIMILAR = 5
_NEAR_BUT_NOT_SAME = 0.999

MAX_ANSWER = 200_000
"""Characters of content in one answer; what does not fit is cut to an excerpt."""
EXCERPT = 500

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Found:
    """`score` lies in 0..1. `likeness`: the cosine with the question, where the vectors gave one.

    `is_superseded` at the moment asked for.
    """

    memory: Memory
    score: float
    likeness: float | None = None
    is_superseded: bool = False


@dataclass(frozen=True, slots=True)
class Findings:
    """Best first, superseded ones last. `reason`: why the answer is not as good as it could be; empty: it is."""

    found: tuple[Found, ...] = ()
    reason: str = ""


def search(
    *,
    project_ids: Collection[int],
    text: str,
    category: str = "",
    tags: Sequence[str] = (),
    match: Match = "any",
    at: datetime | None = None,
    include_superseded: bool = True,
    limit: int = 10,
) -> Findings:
    """Find memories, as they stood at `at` (now). Raises `invalid_input` for an empty question or unknown category.

    Without a single memory to choose from nothing is embedded.
    """
    if not text.strip():
        raise invalid("Say what to look for.", query="is empty")
    limit = max(1, min(limit, MAX_RESULTS))
    rows = memories.find(project_ids=project_ids, category=category, tags=tags, match=match, at=at)
    superseded = Q(superseded_by__isnull=False) & (Q(superseded_at__lte=at) if at else Q())
    if not include_superseded:
        rows = rows.exclude(superseded)
    if not rows.exists():
        return Findings()
    where: dict[str, list[Any]] = {"project": sorted(project_ids)}
    if category:
        where["category"] = [memories.category_of(category)]
    if tags:
        where["tags"] = list(tags)
    answer = vectors.search("memory", text, where=where, limit=max(CANDIDATES, 2 * limit))
    hits = {leg: found for leg, found in answer.hits.items() if found}
    fused = fuse(hits, WEIGHTS)
    scores = {hit.point: hit.score for hit in fused}
    cosines = {hit.point: hit.legs[DENSE].score for hit in fused if DENSE in hit.legs}
    unknown = _unknown_to_vectors(rows, at) if fused else set()
    if unknown or not fused:
        for point, score in _by_words(rows, text, limit=max(CANDIDATES, 2 * limit)).items():
            if point in unknown or not fused:
                scores[point] = max(score, scores.get(point, 0.0))
    found = [
        Found(
            row,
            score=round(_weighed(row, scores[row.point]), 4),
            likeness=cosines.get(row.point),
            is_superseded=row.superseded_by_id is not None
            and (at is None or (row.superseded_at is not None and row.superseded_at <= at)),
        )
        for row in rows.filter(point__in=scores)
    ]
    found.sort(key=lambda hit: (hit.is_superseded, -hit.score, -hit.memory.pk))
    return Findings(tuple(found[:limit]), answer.reason)


def _weighed(row: Memory, score: float) -> float:
    return _RELEVANCE * score + (_PINNED if row.pinned else 0) + _TRUSTED[Trust(row.trust)]


def _unknown_to_vectors(rows: MemoryQuerySet, at: datetime | None) -> set[uuid.UUID]:
    """Points of `rows` that a search of the vectors cannot find as they are now."""
    live = VectorCollection.State.LIVE
    waiting = PendingPoint.objects.filter(collection__kind="memory", collection__state=live)
    missing = Q(point__in=waiting.values("point"))
    if at is not None:
        missing |= Q(expires_at__lte=timezone.now())
    return set(rows.filter(missing).values_list("point", flat=True))


def _by_words(rows: MemoryQuerySet, text: str, *, limit: int) -> dict[uuid.UUID, float]:
    """Points of `rows` that share words with `text`: 1.0 for the best, the others in proportion."""
    found = dict(fulltext.search(rows, text, columns=COLUMNS, limit=limit))
    best = max(found.values(), default=0.0) or 1.0
    points = Memory.objects.filter(pk__in=found).values_list("pk", "point")
    return {point: found[pk] / best for pk, point in points}


def similar(memory: Memory, *, limit: int = MAX_SIMILAR) -> list[Found]:
    """Memories in force that say nearly the same, best first. Identical content has the score 1.0, and only that.

    Asks the embedder: call it outside transactions.
    """
    rows = memories.find(project_ids=[memory.project_id]).filter(superseded_by=None).exclude(pk=memory.pk)
    if not rows.exists():
        return []
    answer = vectors.search("memory", memory.content, where={"project": [memory.project_id]}, limit=20, words=False)
    cosines = dict(answer.hits.get(DENSE, ()))
    worded = [pk for pk, _ in fulltext.search(rows, memory.content, columns=COLUMNS, limit=20)]
    words = _words_in(memory.content)
    found = []
    for row in rows.filter(Q(point__in=cosines) | Q(pk__in=worded) | Q(hash=memory.hash))[: 3 * CANDIDATES]:
        likeness = max(cosines.get(row.point, 0.0), _overlap(words, _words_in(row.content)))
        score = 1.0 if row.hash == memory.hash else min(round(likeness, 3), _NEAR_BUT_NOT_SAME)
        if score >= SIMILAR_FROM:
            found.append(Found(row, score, cosines.get(row.point)))
    return sorted(found, key=lambda hit: (-hit.score, hit.memory.pk))[:limit]


def _words_in(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _overlap(one: set[str], other: set[str]) -> float:
    """Dice's coefficient of two sets of words, 0..1."""
    return 2 * len(one & other) / (len(one) + len(other)) if one or other else 0.0


def related(*, project_id: int, text: str, limit: int, least_likeness: float = 0.3) -> list[Found]:
    """Memories in force that may help with `text`: those whose meaning is near it, or that share its words."""
    findings = search(project_ids=[project_id], text=text, include_superseded=False, limit=limit)
    return [hit for hit in findings.found if hit.likeness is None or hit.likeness >= least_likeness]


def shown(found: Sequence[Found], *, most_characters: int = MAX_ANSWER) -> list[dict[str, Any]]:
    """What an agent is given of each: the keys of `query_memories` results."""
    left = most_characters
    answer = []
    for hit in found:
        row = hit.memory
        content = row.content if len(row.content) <= max(left, EXCERPT) else f"{row.content[:EXCERPT]}…"
        left -= len(content)
        answer.append(
            {
                "memory_id": row.public_id,
                "content": content,
                "category": row.category,
                "tags": row.tags,
                "created_at": row.created_at.isoformat(),
                "score": hit.score,
                "trust": row.trust,
                "untrusted": row.is_untrusted,
                "created_by": row.created_by,
                "task_id": row.task or None,
                "superseded_by": f"memory-{row.superseded_by_id}" if hit.is_superseded else None,
                "pinned": row.pinned,
                "original_category": row.original_category,
                "metadata": row.metadata,
                "version": row.version,
                "truncated": content != row.content,
            }
        )
    return answer
