"""What the workflow does by itself."""

from devflow.jobs import periodic
from workflow.services import claims, coherence


@periodic(minutes=1)
def sweep_leases() -> None:
    """Tidy expired leases. Claims and boards already treat them as expired; this only writes it down."""
    claims.sweep_expired_leases()


@periodic(minutes=1)
def guard_coherence() -> None:
    """Write to agents that lost their thread."""
    coherence.guard()
