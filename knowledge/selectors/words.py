"""Passages that hold words, found in the keyword index: for lists, where a search by meaning would be too much."""

from django.db.models import Case, Exists, IntegerField, OuterRef, QuerySet, When

from devflow import fulltext
from knowledge.models import COLUMNS, Chunk, CodeExample

MOST = 200
"""Passages a list is narrowed to."""

COLUMN_WEIGHTS = (2.0, 1.0, 0.5)


def _ranked(chunks: QuerySet[Chunk], text: str) -> list[int]:
    return [pk for pk, _ in fulltext.search(chunks, text, columns=COLUMNS, weights=COLUMN_WEIGHTS, limit=MOST)]


def best_chunks(chunks: QuerySet[Chunk], text: str) -> QuerySet[Chunk]:
    """The chunks among these that hold any of the words, at most 200, best first."""
    ranked = _ranked(chunks, text)
    if not ranked:
        return chunks.none()
    place = Case(*(When(pk=pk, then=number) for number, pk in enumerate(ranked)), output_field=IntegerField())
    return chunks.filter(pk__in=ranked).order_by(place)


def examples_near(examples: QuerySet[CodeExample], text: str) -> QuerySet[CodeExample]:
    """The code examples among these that share lines with one of the 200 best chunks for the words."""
    inside = examples.order_by().values("document")
    best = Chunk.objects.filter(pk__in=_ranked(Chunk.objects.filter(has_code=True, document__in=inside), text))
    here = best.filter(
        document=OuterRef("document"), start_line__lte=OuterRef("end_line"), end_line__gte=OuterRef("start_line")
    )
    return examples.filter(Exists(here), document__in=best.values("document"))
