"""Reading the Event log: the feed and catching up after a pause."""

from django.db import connection
from django.db.models import QuerySet

from workflow.models import Event


def feed(*, project_id: int, task_id: int | None = None) -> QuerySet[Event]:
    """What happened, newest first, with the task and phase it happened to."""
    events = Event.objects.filter(project_id=project_id).select_related("task", "phase", "agent").order_by("-pk")
    return events if task_id is None else events.filter(task_id=task_id)


def since(*, project_id: int, sequence: int, limit: int = 200) -> list[Event]:
    """The events after `sequence`, oldest first, at most `limit`: what a page missed.

    On PostgreSQL ids are given before commit, so events of transactions younger than the oldest open one are kept
    back: reading again later from the last id given misses none.
    """
    events = Event.objects.filter(project_id=project_id, pk__gt=sequence).order_by("pk")
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
            (horizon,) = cursor.fetchone()
        events = events.filter(transaction__lt=horizon)
    return list(events.select_related("task", "phase")[:limit])


def newest(*, project_id: int) -> int:
    """The id of the newest event that `since` may show, 0 where there is none."""
    events = Event.objects.filter(project_id=project_id)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
            (horizon,) = cursor.fetchone()
        events = events.filter(transaction__lt=horizon)
    return events.order_by("-pk").values_list("pk", flat=True).first() or 0
