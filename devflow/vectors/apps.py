from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from devflow.ports import HealthReport


class VectorsConfig(AppConfig):
    name = "devflow.vectors"
    label = "vectors"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from devflow import ports

        ports.health.add("qdrant", _health)
        ports.gauges.add("index_pending_points", "Rows whose vectors are still to come.", _pending)
        ports.gauges.add("index_oldest_pending_seconds", "How long the oldest of them waits.", _oldest)


def _health() -> "HealthReport":
    from devflow.vectors.health import qdrant  # the stores' libraries cost a start that never searches half a second

    return qdrant()


def _pending() -> dict[str, float]:
    from devflow.vectors import index
    from devflow.vectors.kinds import kinds

    return {kind: float(index.lag(kind).pending) for kind in kinds}


def _oldest() -> dict[str, float]:
    from devflow.vectors import index
    from devflow.vectors.kinds import kinds

    return {kind: index.lag(kind).seconds for kind in kinds}
