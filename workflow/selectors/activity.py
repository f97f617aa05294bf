"""Reading the Event log: the feed and catching up after a pause."""

from django.db import connection
from django.db.models import Q, QuerySet

from workflow.models import Event


def feed(*, project_id: int, task_id: int | None = None) -> QuerySet[Event]:
    """What happened, newest first, with the task and phase it happened to."""
    events = Event.objects.filter(project_id=project_id).select_related("task", "phase", "agent").order_by("-pk")
    return events if task_id is None else events.filter(task_id=task_id)


def since(*, project_id: int, sequence: int, limit: int = 200) -> list[Event]:
    """The events after the one whose id is `sequence`, oldest first, at most `limit`: what a page missed.

    On PostgreSQL ids are given before commit, in another order than transactions end. There events are ordered by
    (transaction, id), and those of transactions younger than the oldest open one are kept back: reading again later
    from the last one given misses none.
    """
    events = Event.objects.filter(project_id=project_id)
    if connection.vendor == "postgresql":
        last = Event.objects.filter(pk=sequence).values_list("transaction", flat=True).first()
        later = Q(pk__gt=sequence) if last is None else Q(transaction=last, pk__gt=sequence) | Q(transaction__gt=last)
        events = events.filter(later, transaction__lt=_horizon())
    else:
        events = events.filter(pk__gt=sequence)
    return list(events.order_by("transaction", "pk").select_related("task", "phase")[:limit])


def _horizon() -> int:
    """The oldest transaction that is still open: every one before it has ended."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        (horizon,) = cursor.fetchone()
    return int(horizon)


def newest(*, project_id: int) -> int:
    """The id of the last event that `since` would show, 0 where there is none."""
    events = Event.objects.filter(project_id=project_id)
    if connection.vendor == "postgresql":
        events = events.filter(transaction__lt=_horizon())
    return events.order_by("-transaction", "-pk").values_list("pk", flat=True).first() or 0
