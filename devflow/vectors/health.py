"""What `/mcp/health` says of the vectors; the PRD calls the part `qdrant` whichever store it is."""

from devflow.ports import HealthReport
from devflow.vectors import search, stores
from devflow.vectors.base import StoreError


def qdrant() -> HealthReport:
    """Whether the vector store answers (blocks, at most its timeout)."""
    try:
        said = stores.store().ping()
    except StoreError as exc:
        return HealthReport("down", str(exc), essential=False)  # keywords answer meanwhile
    return HealthReport("up", search.resting.why() or said)
