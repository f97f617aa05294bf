from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from devflow.ports import HealthReport


class KnowledgeConfig(AppConfig):
    name = "knowledge"
    verbose_name = "Knowledge"

    def ready(self) -> None:
        from devflow import ports
        from devflow.vectors.kinds import kinds
        from knowledge.services.rows import ChunkRows

        kinds["knowledge"] = ChunkRows()
        ports.health.add("knowledge_hub", _health)


def _health() -> "HealthReport":
    from knowledge.services.health import hub  # with it come the stores' libraries

    return hub()
