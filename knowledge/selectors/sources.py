"""Sources, documents and how far the index is behind them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Count, Max, Q, QuerySet, Sum

from devflow.errors import not_found
from devflow.vectors.models import Collection, PendingPoint
from knowledge.models import Chunk, Document, Source

KIND = "knowledge"

_ID = re.compile(r"(?:source-|document-)?([1-9][0-9]{0,15})", re.ASCII)


def number_of(value: str, noun: str) -> int:
    """`source-12` or `12` as 12. Raises `not_found` for what cannot be one."""
    match = _ID.fullmatch(value)
    if match is None or (not value[0].isdigit() and not value.startswith(f"{noun.lower()}-")):
        raise not_found(noun, value, suggestion="list_knowledge_sources names the sources there are.")
    return int(match[1])


def source(*, project_id: int, source_id: str) -> Source:
    """One source of the project. Raises `not_found`, also for another project's."""
    found = Source.objects.filter(project_id=project_id, pk=number_of(source_id, "Source")).first()
    if found is None:
        raise not_found("Source", source_id, suggestion="list_knowledge_sources names the sources there are.")
    return found


def sources(*, project_id: int, tags: Iterable[str] = (), status: str | None = None) -> QuerySet[Source]:
    """The project's sources that carry every one of `tags`, newest first."""
    found = Source.objects.filter(project_id=project_id)
    if status is not None:
        found = found.filter(status=status)
    for tag in tags:
        found = found.filter(tags__has=tag)
    return found


def document(*, project_id: int, document_id: str) -> Document:
    """One document with its text. Raises `not_found`, also for another project's."""
    found = (
        Document.objects.select_related("source")
        .filter(project_id=project_id, pk=number_of(document_id, "Document"))
        .first()
    )
    if found is None:
        raise not_found("Document", document_id, suggestion="A search result's metadata names its document_id.")
    return found


def documents(*, source_id: int) -> QuerySet[Document]:
    """A source's documents without their text, with `chunks_count`."""
    return Document.objects.filter(source_id=source_id).defer("text").annotate(chunks_count=Count("chunks"))


def pending() -> QuerySet[PendingPoint]:
    """Points whose vectors are still to come, in the index that answers now."""
    return PendingPoint.objects.filter(collection__kind=KIND, collection__state=Collection.State.LIVE)


def pending_chunks(sources: Sequence[Source]) -> dict[int, int]:
    """Source id to the number of its chunks whose vectors are still to come; sources without any are absent."""
    if not pending().exists():
        return {}
    waiting = Chunk.objects.filter(source__in=[one.pk for one in sources], point__in=pending().values("point"))
    return dict(waiting.order_by().values_list("source").annotate(Count("pk")))


@dataclass(frozen=True, slots=True)
class Revision:
    """Changes whenever an answer from this project's sources may change."""

    sources: int
    changes: int
    newest: str


def revision(project_id: int) -> Revision:
    row = Source.objects.filter(project_id=project_id).aggregate(
        n=Count("pk"), changes=Sum("revision"), newest=Max("updated_at"), failed=Count("pk", filter=Q(status="error"))
    )
    return Revision(row["n"], row["changes"] or 0, str(row["newest"]))


def chunk_counts(documents: Sequence[Document]) -> dict[int, int]:
    """Document id to the number of its chunks; documents without any are absent. One query."""
    chunks = Chunk.objects.filter(document__in=[one.pk for one in documents])
    return dict(chunks.order_by().values_list("document").annotate(Count("pk")))
