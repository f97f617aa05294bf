"""Memories as the index of vectors reads them."""

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence

from django.utils import timezone

from devflow.vectors.kinds import Entry
from devflow.vectors.terms import symbols_in
from memory.models import Memory, MemoryQuerySet


def _digest(project_id: int, content_hash: str, category: str, tags: Sequence[str]) -> str:
    """Changes with everything a point is made of."""
    return hashlib.sha256(json.dumps([project_id, content_hash, category, tags]).encode()).hexdigest()


class MemoryPoints:
    """What has expired has no point: reconciliation takes it out."""

    @staticmethod
    def _rows() -> MemoryQuerySet:
        return Memory.objects.alive(timezone.now())

    def entries(self, points: Sequence[uuid.UUID]) -> list[Entry]:
        return [
            Entry(
                id=row.point,
                hash=_digest(row.project_id, row.hash, row.category, row.tags),
                text=row.content,
                words="\n".join([row.content, *row.tags]),
                symbols=symbols_in(row.content),
                payload={"project": row.project_id, "category": row.category, "tags": row.tags},
            )
            for row in self._rows().filter(point__in=points)
        ]

    def hashes(self) -> Iterator[tuple[uuid.UUID, str]]:
        rows = self._rows().order_by().values_list("point", "project_id", "hash", "category", "tags")
        for point, project_id, content_hash, category, tags in rows.iterator():
            yield point, _digest(project_id, content_hash, category, tags)
