"""What the protocol does by itself: the log of calls and stored answers do not grow for ever."""

from devflow.jobs import periodic
from mcpbridge import answers, audit


@periodic(minutes=5)
def seal_left_behind() -> None:
    """Close the hash chains of processes that were killed."""
    audit.seal_left_behind()


@periodic(hours=1)
def expire() -> None:
    """Delete calls past the retention setting and answers older than a day."""
    audit.expire()
    answers.expire()
