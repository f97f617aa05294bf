"""Sources as the pages show them: how far they are, and what can be done about them."""

from collections.abc import Sequence
from dataclasses import dataclass

from devflow.vectors.models import Collection
from knowledge.models import Source
from knowledge.selectors import sources as selectors
from knowledge.selectors.sources import KIND

KINDS = {
    Source.Type.UPLOAD: "Files",
    Source.Type.WEB: "Website",
    Source.Type.DIRECTORY: "Directory",
    Source.Type.GIT: "Git checkout",
    Source.Type.MANUAL: "Text",
}
MEANS = {
    Source.Status.PENDING: "waiting",
    Source.Status.INDEXING: "reading",
    Source.Status.ACTIVE: "ready",
    Source.Status.PAUSED: "paused",
    Source.Status.ERROR: "failed",
}
HUES = {"ready": "good", "reading": "on", "failed": "bad", "paused": "warn", "waiting": ""}


@dataclass(frozen=True, slots=True)
class Shown:
    """A source with what only the page shows. `waiting`: passages whose vectors are still to come."""

    source: Source
    waiting: int

    @property
    def kind(self) -> str:
        return KINDS[Source.Type(self.source.type)]

    @property
    def status(self) -> str:
        return MEANS[Source.Status(self.source.status)]

    @property
    def hue(self) -> str:
        return HUES[self.status]

    @property
    def is_moving(self) -> bool:
        return self.source.status in (Source.Status.PENDING, Source.Status.INDEXING)

    @property
    def percent(self) -> int:
        source = self.source
        return min(100, 100 * source.run_done // source.run_total) if source.run_total else 0

    @property
    def can_change(self) -> bool:
        """Whether its originals can change without anybody telling DevFlow."""
        return self.source.type in (Source.Type.WEB, Source.Type.DIRECTORY, Source.Type.GIT)

    @property
    def has_failed(self) -> bool:
        return bool(self.source.failed_count) or self.source.status == Source.Status.ERROR


def shown(sources: Sequence[Source]) -> list[Shown]:
    """These sources as a page shows them. One query."""
    waiting = selectors.pending_chunks(sources)
    return [Shown(source, waiting.get(source.pk, 0)) for source in sources]


def fault() -> str:
    """Why vectors cannot be made at the moment; empty: they can."""
    found = Collection.objects.filter(kind=KIND, state=Collection.State.LIVE).exclude(fault="")
    return found.values_list("fault", flat=True).first() or ""
