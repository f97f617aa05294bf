"""The memory room's side of `devflow.ports.Recall`: what is remembered of work about to begin."""

from collections.abc import Sequence
from typing import Any

from memory.selectors import search
from memory.services.uses import uses

MOST_CHARACTERS = 6_000


class MemoryRecall:
    def related(self, project_id: int, text: str, *, limit: int) -> Sequence[dict[str, Any]]:
        """Up to `limit` memories in force near `text`; a project without memories costs one query."""
        if not text.strip():
            return ()
        found = search.related(project_id=project_id, text=text, limit=limit)
        uses.note(hit.memory.pk for hit in found)
        return search.shown(found, most_characters=MOST_CHARACTERS)
