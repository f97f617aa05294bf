"""The knowledge room's side of `devflow.ports.Shelf`: passages that may help with some work."""

from collections.abc import Sequence

from devflow.ports import Passage
from knowledge.services import citations, search

MOST_ASKED = 1_000
LEAST_SCORE = 0.6
"""Below this a passage shares little more than the language with what was asked."""


class KnowledgeShelf:
    def near(self, project_id: int, text: str, *, limit: int) -> Sequence[Passage]:
        """Up to `limit` passages near `text`, best first; a project without sources costs one query."""
        asked = text.strip()[:MOST_ASKED]
        if not asked:
            return ()
        hits = search.find(project_id=project_id, query=asked, top_k=limit).hits
        return [
            Passage(
                source=hit.chunk.source.title,
                title=hit.chunk.heading or hit.chunk.document.title or hit.chunk.document.path,
                first=hit.chunk.start_line,
                last=hit.chunk.end_line,
                opens=citations.opens(hit.chunk.document_id, hit.chunk.start_line, hit.chunk.end_line),
            )
            for hit in hits
            if hit.score >= LEAST_SCORE
        ]
