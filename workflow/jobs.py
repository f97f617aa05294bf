"""What the workflow does by itself."""

from devflow.jobs import periodic, standing
from workflow.services import claims, coherence, deliveries, sending


@periodic(minutes=1)
def sweep_leases() -> None:
    """Tidy expired leases. Claims and boards already treat them as expired; this only writes it down."""
    claims.sweep_expired_leases()


@periodic(minutes=1)
def guard_coherence() -> None:
    """Write to agents that lost their thread."""
    coherence.guard()


@standing(seconds=2)
def collect_webhooks() -> None:
    """Make the messages that webhooks are owed for what happened."""
    if deliveries.collect():
        send_webhooks.wake()


@standing(seconds=5, threads=3)
def send_webhooks() -> None:
    """Send the messages that are due."""
    while not send_webhooks.is_stopping and (webhook := sending.claim()):
        sending.send(webhook, stop=lambda: send_webhooks.is_stopping)


@periodic(hours=1)
def prune_webhooks() -> None:
    """Delete old deliveries, and secrets that were replaced long enough ago."""
    deliveries.prune()
