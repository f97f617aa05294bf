"""What `/mcp/health` says of the knowledge hub."""

from django.db import DatabaseError

from devflow.ports import HealthReport
from devflow.vectors import index
from devflow.vectors.models import Collection
from knowledge.models import Source
from knowledge.selectors.sources import KIND


def hub() -> HealthReport:
    """Up when its tables answer; the detail tells how far vectors are behind and why."""
    try:
        Source.objects.exists()
        lag = index.lag(KIND)
        fault = Collection.objects.filter(kind=KIND).exclude(fault="").values_list("fault", flat=True).first()
    except DatabaseError as exc:
        return HealthReport("down", str(exc))
    behind = f"{lag.pending} chunks wait for their vectors, the oldest for {lag.seconds:.0f} s" if lag.pending else ""
    return HealthReport("degraded" if fault else "up", "; ".join(filter(None, (behind, fault))))
