"""The board: five columns with their cards, and exact counts beside them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from django.db import connection
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from devflow.errors import invalid
from workflow.models import Project, Status, Task, held_up, open_blocker
from workflow.selectors.tasks import COLUMNS, Card, gives_out, runs_out, with_blockers, with_status

Column = Literal["backlog", "ready", "in_progress", "review", "done"]
COLUMN_NAMES: tuple[str, ...] = get_args(Column)
FIRST_COLUMNS = COLUMN_NAMES[:3]
"""Those a new card can be wanted in."""
COLUMN_OF: Mapping[str, Column] = {
    Status.PENDING: "backlog",
    Status.READY: "ready",
    Status.IN_PROGRESS: "in_progress",
    Status.REVIEW: "review",
    Status.FAILED: "review",
    Status.DONE: "done",
}
"""Where a (current) status stands on the board; cancelled tasks are hidden."""
MAX_CARDS = 200
MAX_DONE = 50


@dataclass(frozen=True, slots=True)
class Board:
    """`columns` maps each name to its first cards; `counts` is exact; `truncated` names the columns with more."""

    project: Project
    columns: Mapping[str, list[Card]]
    counts: Mapping[str, int]
    total: int
    failed: int
    blocked: int
    limits: Mapping[str, int | None]
    truncated: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tasks stand in each column, and how many of all are failed or blocked."""

    columns: Mapping[str, int]
    failed: int
    blocked: int

    @property
    def total(self) -> int:
        return sum(self.columns.values())


_BEFORE_EVERYTHING = 10**16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE = re.compile(r"([01]?)([0-9]{17})\.([0-9]{17})", re.ASCII)


def place(card: Card) -> str:
    """Where a card stands in its column, as a text that sorts so: boosted first, then by position; done newest first.

    The same order as `in_column`.
    """
    if card.status == Status.DONE:
        done = (card.completed_at - _EPOCH) // timedelta(microseconds=1) if card.completed_at else 0
        return f"{_BEFORE_EVERYTHING - done:017d}.{_BEFORE_EVERYTHING - card.pk:017d}"
    return f"{0 if card.boosted else 1}{card.position + _BEFORE_EVERYTHING:017d}.{card.pk:017d}"


def behind(column: str, place: str) -> Q:
    """Stands behind a `place` in its column. Raises `invalid_input` for what is no place there."""
    found = _PLACE.fullmatch(place)
    if found is None or bool(found[1]) == (column == "done"):
        raise invalid("That is no place in this column.", after="the place of a card, as the page has it")
    major, pk = int(found[2]), int(found[3])
    if column == "done":
        done, number = _EPOCH + timedelta(microseconds=_BEFORE_EVERYTHING - major), _BEFORE_EVERYTHING - pk
        return Q(completed_at__lt=done) | Q(completed_at=done, pk__lt=number)
    position, boosted = major - _BEFORE_EVERYTHING, found[1] == "0"
    later = Q(position__gt=position) | Q(position=position, pk__gt=pk)
    return Q(boosted=True) & later | Q(boosted=False) if boosted else Q(boosted=False) & later


def _ran_out(at: datetime, *, has_blocker: bool) -> Q:
    waits = Q(open_blocker())
    return runs_out(at) & ~gives_out(at) & (waits if has_blocker else ~waits)


def in_column(tasks: QuerySet[Task], column: str, at: datetime) -> QuerySet[Task]:
    """Those of `tasks` that stand in `column` at `at`, in the column's order."""
    if column == "done":
        return tasks.filter(status=Status.DONE).order_by("-completed_at", "-pk")
    wanted = {
        "backlog": Q(status=Status.PENDING) | _ran_out(at, has_blocker=True),
        "ready": Q(status=Status.READY) | _ran_out(at, has_blocker=False),
        "in_progress": Q(status=Status.IN_PROGRESS) & ~Q(lease_expires_at__isnull=False, lease_expires_at__lte=at),
        "review": Q(status__in=[Status.REVIEW, Status.FAILED]) | gives_out(at),
    }[column]
    return tasks.filter(wanted).order_by("-boosted", "position", "pk")


_LEASES = """
    (SELECT MAX(lease_expires_at) FROM workflow_task WHERE project_id = %s AND lease_token IS NOT NULL),
    (SELECT COUNT(*) FROM workflow_task
      WHERE project_id = %s AND lease_token IS NOT NULL AND lease_expires_at <= %s)"""
_FINGERPRINT = f"SELECT (SELECT MAX(id) FROM workflow_event WHERE project_id = %s), {_LEASES}"  # noqa: S608  # constants
_FINGERPRINT_ON_POSTGRESQL = f"SELECT pg_current_snapshot()::text, {_LEASES}"


def fingerprint(*, project_id: int) -> tuple[object, ...]:
    """What the board of a project depends on, in one cheap query: equal fingerprints, equal boards.

    Every change appends an Event, leases aside: how far they reach and how many have run out is counted beside. On
    PostgreSQL event ids are given before commit, so the snapshot stands for them.
    """
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    on_postgresql = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        if on_postgresql:
            cursor.execute(_FINGERPRINT_ON_POSTGRESQL, [project_id, project_id, now])
        else:
            cursor.execute(_FINGERPRINT, [project_id, project_id, project_id, now])
        return (project_id, *cursor.fetchone())


def counts(*, tasks: QuerySet[Task], at: datetime) -> Counts:
    """Exact numbers of the columns of `tasks`. One query."""
    annotated: Any = with_status(tasks, at)
    statuses = (
        annotated.exclude(status=Status.CANCELLED)
        .order_by()
        .values_list("current_status")
        .annotate(
            n=Count("pk"),
            waiting=Count("pk", filter=~Q(status=Status.DONE) & held_up()),
        )
    )
    columns: dict[str, int] = dict.fromkeys(COLUMN_NAMES, 0)
    failed = blocked = 0
    for status, number, waiting in statuses:
        column = COLUMN_OF.get(status)
        if column is not None:
            columns[column] += number
        blocked += waiting
        failed += number if status == Status.FAILED else 0
    return Counts(columns, failed, blocked)


def more(*, tasks: QuerySet[Task], column: str, after: str, limit: int, at: datetime | None = None) -> list[Card]:
    """The next cards of a column behind the place `after`. Two queries. Raises `invalid_input`."""
    now = at or timezone.now()
    chosen = in_column(with_status(tasks, now), column, now).filter(behind(column, after))
    return with_blockers(list(chosen.values_list(*COLUMNS)[:limit]))


def board(
    *,
    project: Project,
    tasks: QuerySet[Task] | None = None,
    at: datetime | None = None,
    max_cards: int = MAX_CARDS,
    max_done: int = MAX_DONE,
) -> Board:
    """The board of a project, or of a filtered part of its `tasks`. Seven queries whatever the number of tasks."""
    now = at or timezone.now()
    shown = Task.objects.filter(project=project) if tasks is None else tasks
    seen = counts(tasks=shown, at=now)
    rows = {}
    for column in COLUMN_NAMES:
        most = max_done if column == "done" else max_cards
        chosen = in_column(with_status(shown, now), column, now)
        rows[column] = list(chosen.values_list(*COLUMNS)[:most]) if seen.columns[column] else []
    cards = iter(with_blockers([row for column in COLUMN_NAMES for row in rows[column]]))
    columns = {column: [next(cards) for _ in rows[column]] for column in COLUMN_NAMES}
    return Board(
        project=project,
        columns=columns,
        counts=seen.columns,
        total=seen.total,
        failed=seen.failed,
        blocked=seen.blocked,
        limits={column: project.limit_of(column) for column in COLUMN_NAMES},
        truncated={column: seen.columns[column] > len(columns[column]) for column in COLUMN_NAMES},
    )
