"""What the protocol does by itself: logs and stored answers do not grow for ever, backends are looked at."""

from devflow.jobs import periodic
from mcpbridge import answers, audit
from mcpbridge.agentify import plans
from mcpbridge.gateway import health, large


@periodic(minutes=5)
def seal_left_behind() -> None:
    """Close the hash chains of processes that were killed."""
    audit.seal_left_behind()


@periodic(hours=1)
def expire() -> None:
    """Delete calls past the retention setting, answers older than a day, and plans older than a week."""
    audit.expire()
    answers.expire()
    large.expire()
    plans.expire()


@periodic(minutes=1)
def look_at_backends() -> None:
    """Ask the backends how they do, those that are due for their tools."""
    health.look_round()
