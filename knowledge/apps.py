from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devflow.ports import HealthReport, Passage


class KnowledgeConfig(AppConfig):
    name = "knowledge"
    verbose_name = "Knowledge"

    def ready(self) -> None:
        from devflow import ports
        from devflow.vectors.kinds import kinds
        from knowledge.services.rows import ChunkRows

        kinds["knowledge"] = ChunkRows()
        ports.shelf.bind(_Shelf())
        ports.health.add("knowledge_hub", _health)


class _Shelf:
    def near(self, project_id: int, text: str, *, limit: int) -> "Sequence[Passage]":
        from knowledge.services.shelf import KnowledgeShelf

        return KnowledgeShelf().near(project_id, text, limit=limit)


def _health() -> "HealthReport":
    from knowledge.services.health import hub  # with it come the stores' libraries

    return hub()
