"""The chunks as the vector index reads them."""

import uuid
from collections.abc import Iterator, Sequence

from devflow.vectors.kinds import Entry
from knowledge.models import Chunk


class ChunkRows:
    def entries(self, points: Sequence[uuid.UUID]) -> Sequence[Entry]:
        return [entry_of(chunk) for chunk in Chunk.objects.filter(point__in=points)]

    def hashes(self) -> Iterator[tuple[uuid.UUID, str]]:
        return iter(Chunk.objects.order_by("pk").values_list("point", "hash").iterator(chunk_size=2000))


def entry_of(chunk: Chunk) -> Entry:
    return Entry(
        id=chunk.point,
        hash=chunk.hash,
        text=chunk.embed_text,
        words=chunk.embed_text,
        symbols=chunk.symbols,
        payload={
            "project": chunk.project_id,
            "source": chunk.source_id,
            "has_code": chunk.has_code,
            "languages": chunk.languages,
        },
    )
