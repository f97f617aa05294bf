"""Search the chunks of a project: by meaning, by words and by exact identifiers, fused by score.

The vector store proposes, the rows decide: every hit is read again before it is shown. Without vectors the keyword
index of the database answers, and the answer says so.
"""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from django.db.models import Q, QuerySet
from django.utils import timezone

from devflow import fulltext
from devflow.errors import invalid
from devflow.vectors import index
from devflow.vectors import search as vectors
from devflow.vectors.base import DENSE, SYMBOLS, TEXT
from devflow.vectors.fusion import Fused, fuse
from knowledge.models import COLUMNS, Chunk, CodeExample, Source
from knowledge.selectors.sources import KIND, number_of, pending
from knowledge.services import rerank

Mode = Literal["semantic", "hybrid", "reranked"]

KEYWORD = "keyword"
"""The leg of the database's own index, in the place of the store's words while vectors are away or behind."""

WEIGHTS: Mapping[str, float] = {DENSE: 0.7, TEXT: 0.3, SYMBOLS: 0.3, KEYWORD: 0.3}
COLUMN_WEIGHTS = (2.0, 1.0, 0.5)
CANDIDATES = 100
RERANKED = 50
FILTERS = ("tags", "sources", "has_code")

_SHOWN = (
    *(field.attname for field in Chunk._meta.concrete_fields if field.name != "keywords"),
    *(f"source__{name}" for name in ("title", "type", "url", "tags", "priority")),
    *(f"document__{name}" for name in ("path", "title", "status", "pages", "modified", "indexed_at", "created_at")),
)


@dataclass(frozen=True, slots=True)
class Filters:
    """What hits must have: every one of `tags` on their source, one of `sources`, code (or none), a language."""

    tags: tuple[str, ...] = ()
    sources: tuple[int, ...] | None = None
    has_code: bool | None = None
    language: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> "Filters":
        """Read the tool's `filters`. Raises `invalid_input` for unknown keys and wrong types."""
        given = given or {}
        if unknown := sorted(given.keys() - set(FILTERS)):
            raise invalid(
                f"There is no filter {', '.join(unknown)[:100]}.",
                **{f"filters.{name[:50]}": f"one of {', '.join(FILTERS)}" for name in unknown[:10]},
            )
        tags, sources, has_code = (given.get(name) for name in FILTERS)
        return cls(
            tags=_texts("tags", tags) if tags is not None else (),
            sources=None if sources is None else tuple(number_of(one, "Source") for one in _texts("sources", sources)),
            has_code=_flag(has_code),
        )


def _texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > 200 or not all(isinstance(one, str) and one for one in value):
        raise invalid(f"filters.{name} must be a list of texts.", **{f"filters.{name}": "a list of at most 200 texts"})
    return tuple(value)


def _flag(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise invalid("filters.has_code must be true or false.", **{"filters.has_code": "true or false"})
    return value


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk found. `fused` is what its legs gave, `score` that with the source's priority and the age in it."""

    chunk: Chunk
    score: float
    fused: Fused
    factors: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Found:
    """Hits best first, out of `candidates`. `reason` says why the answer is weaker than asked; empty: it is not."""

    hits: Sequence[Hit] = ()
    candidates: int = 0
    reason: str = ""
    reranker: str = ""
    lag: index.Lag = field(default_factory=lambda: index.Lag(0, None))


def allowed_sources(project_id: int, filters: Filters) -> list[int]:
    """The sources a search may look into."""
    rows = Source.objects.filter(project_id=project_id)
    if filters.sources is not None:
        rows = rows.filter(pk__in=filters.sources)
    for tag in filters.tags:
        rows = rows.filter(tags__has=tag)
    return list(rows.values_list("pk", flat=True))


def find(
    *, project_id: int, query: str, mode: Mode = "hybrid", top_k: int = 10, filters: Filters | None = None
) -> Found:
    """Find chunks. Blocks on the database, the embedder and the vector store. Raises `invalid_input`."""
    if not query.strip():
        raise invalid("Say what to look for.", query="some words")
    filters = filters or Filters()
    sources = allowed_sources(project_id, filters)
    if not sources:
        return Found()
    wanted = max(top_k, RERANKED if mode == "reranked" else 0)
    legs, reason, lag = _legs(project_id, query, mode, filters, sources, max(CANDIDATES, 2 * wanted))
    fused = fuse(legs, WEIGHTS, unindexed=_unindexed(legs.get(KEYWORD, ())) if lag.pending else ())
    hits = _hits(project_id, fused, sources, filters, wanted)
    found = Found(hits, len(fused), reason, lag=lag)
    if mode == "reranked":
        found = _reranked(found, query)
    return replace(found, hits=found.hits[:top_k])


def _legs(
    project_id: int, query: str, mode: Mode, filters: Filters, sources: list[int], limit: int
) -> tuple[dict[str, Sequence[tuple[uuid.UUID, float]]], str, index.Lag]:
    where: dict[str, Sequence[str | int | bool]] = {"project": [project_id]}
    if filters.sources is not None or filters.tags:
        where["source"] = sources
    if filters.has_code is not None:
        where["has_code"] = [filters.has_code]
    if filters.language:
        where["languages"] = [filters.language]
    answer = vectors.search(KIND, query, where=where, limit=limit, words=mode != "semantic")
    legs = dict(answer.hits)
    lag = index.lag(KIND)
    reason = answer.reason
    if not legs or lag.pending:
        legs.pop(TEXT, None)
        legs[KEYWORD] = by_words(chunks_of(project_id, sources, filters), query, limit)
    if not answer.hits and not reason and lag.pending:
        reason = "The index is being built; only keywords were looked for."
    return legs, reason, lag


def _unindexed(hits: Sequence[tuple[uuid.UUID, float]]) -> set[uuid.UUID]:
    """Those among the hits whose vectors are still to come."""
    return set(pending().filter(point__in=[point for point, _ in hits]).values_list("point", flat=True))


def chunks_of(project_id: int, sources: Sequence[int], filters: Filters) -> QuerySet[Chunk]:
    """The chunks these filters leave."""
    rows = Chunk.objects.filter(project_id=project_id)
    if filters.sources is not None or filters.tags:
        rows = rows.filter(source__in=sources)
    if filters.has_code is not None:
        rows = rows.filter(has_code=filters.has_code)
    return rows


def by_words(chunks: QuerySet[Chunk], query: str, limit: int) -> list[tuple[uuid.UUID, float]]:
    """Search the keyword index of the database."""
    scores = dict(fulltext.search(chunks, query, columns=COLUMNS, weights=COLUMN_WEIGHTS, limit=limit))
    points = dict(Chunk.objects.filter(pk__in=scores).values_list("pk", "point"))
    return [(points[pk], score) for pk, score in scores.items() if pk in points]


def _hits(project_id: int, fused: Sequence[Fused], sources: Sequence[int], filters: Filters, wanted: int) -> list[Hit]:
    """The rows of the best candidates, weighed, without repetitions."""
    seen = set(sources)
    hits: list[Hit] = []
    texts: set[str] = set()
    for start in range(0, len(fused), 2 * wanted):
        page = {hit.point: hit for hit in fused[start : start + 2 * wanted]}
        # With the project among the conditions SQLite reads all of its chunks instead of these few.
        rows = Chunk.objects.filter(point__in=page).order_by().select_related("source", "document").only(*_SHOWN)
        for chunk in sorted(rows, key=lambda row: -page[row.point].score):
            if chunk.project_id != project_id or chunk.source_id not in seen or chunk.hash in texts:
                continue
            if filters.language and filters.language not in chunk.languages:
                continue
            texts.add(chunk.hash)
            factors = _factors(chunk)
            hits.append(Hit(chunk, _score(page[chunk.point], factors), page[chunk.point], factors))
        if len(hits) >= wanted:
            break
    return sorted(hits, key=lambda hit: (-hit.score, hit.chunk.pk))[:wanted]


def _factors(chunk: Chunk) -> dict[str, float]:
    """What weighs beside the match: priority 10 is 10 % above 5, a text indexed a year ago 3 % below a new one."""
    age = (timezone.now() - _moment(chunk)).total_seconds() / 86400
    return {
        "priority": 1 + 0.02 * (chunk.source.priority - 5),
        "freshness": 0.95 + 0.05 * math.exp(-max(age, 0) / 365),
    }


def _moment(chunk: Chunk) -> datetime:
    return chunk.document.indexed_at or chunk.document.created_at


def _score(fused: Fused, factors: Mapping[str, float]) -> float:
    """One leg alone shows its own score (a cosine), several their fused one; never above 1."""
    legs = list(fused.legs.items())
    base = legs[0][1].score if len(legs) == 1 and legs[0][0] == DENSE else fused.score
    return base * math.prod(factors.values())


def _reranked(found: Found, query: str) -> Found:
    order, reason = rerank.rerank(query, [hit.chunk.embed_text for hit in found.hits])
    if order is None:
        return replace(found, reranker="fallback", reason="; ".join(filter(None, (found.reason, reason))))
    chosen = [found.hits[place] for place in order]
    rest = [hit for place, hit in enumerate(found.hits) if place not in set(order)]
    return replace(found, hits=[*chosen, *rest], reranker="model")


def examples_in(chunks: Sequence[Chunk]) -> dict[int, list[CodeExample]]:
    """Chunk to the code examples that share lines with it, in order. One query."""
    documents = {chunk.document_id for chunk in chunks if chunk.has_code}
    rows: dict[int, list[CodeExample]] = {}
    if not documents:
        return rows
    spans = Q()
    for chunk in chunks:
        if chunk.has_code:
            spans |= Q(document=chunk.document_id, start_line__lte=chunk.end_line, end_line__gte=chunk.start_line)
    found = list(CodeExample.objects.filter(spans).order_by("document", "start_line", "pk"))
    for chunk in chunks:
        rows[chunk.pk] = [
            one
            for one in found
            if one.document_id == chunk.document_id
            and one.start_line <= chunk.end_line
            and one.end_line >= chunk.start_line
        ]
    return rows
