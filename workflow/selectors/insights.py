"""The project's history in figures: counted from the Event log and the tasks' own times, in days of UTC.

Every function is a fixed number of queries, whatever the period and the number of tasks.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from math import ceil
from typing import Any

from django.db.models import Count, QuerySet, TextField
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Substr

from workflow.models import Event, Phase, Status, Task
from workflow.selectors.board import COLUMN_NAMES, COLUMN_OF

DAY_BY_DAY = 30
"""The longest period that is counted by the day where single days say little; longer ones are counted by the week."""
MOST_EPICS = 100

# The database's clock is UTC: the text of a time begins with its day. A tenth of what TruncDate costs on SQLite.
_DAY = Substr(Cast("at", TextField()), 1, 10)
_COLUMN: Mapping[str | None, str | None] = {status.value: COLUMN_OF.get(status) for status in Status}


@dataclass(frozen=True, slots=True)
class Span:
    """Whole days from `first` to `last`, both included, and the steps they are put together in."""

    first: date
    last: date

    @classmethod
    def ending(cls, last: date, days: int) -> "Span":
        return cls(last - timedelta(days=days - 1), last)

    @property
    def since(self) -> datetime:
        return datetime.combine(self.first, time(), UTC)

    @property
    def days(self) -> list[date]:
        return [self.first + timedelta(days=number) for number in range((self.last - self.first).days + 1)]

    @property
    def step(self) -> int:
        """How many days are put together: 1, or 7 counted back from the last, so that the newest is whole."""
        return 1 if (self.last - self.first).days < DAY_BY_DAY else 7

    def step_of(self, day: date) -> date:
        """The first day of the step that `day` is in."""
        steps_before_last = (self.last - day).days // self.step
        return max(self.first, self.last - timedelta(days=(steps_before_last + 1) * self.step - 1))

    @property
    def steps(self) -> list[date]:
        return list(dict.fromkeys(self.step_of(day) for day in self.days))


@dataclass(frozen=True, slots=True)
class Scope:
    """Which tasks are meant: all of a project, those of one phase now, or those of one epic now (its children)."""

    project_id: int
    phase_id: int | None = None
    epic_id: int | None = None

    @property
    def tasks(self) -> QuerySet[Task]:
        return Task.objects.filter(project_id=self.project_id, **self._narrower(""))

    @property
    def events(self) -> QuerySet[Event]:
        """What happened to these tasks: deleted ones are not among them."""
        return Event.objects.filter(project_id=self.project_id, task__isnull=False, **self._narrower("task__"))

    def _narrower(self, prefix: str) -> dict[str, Any]:
        wanted = {"phase_id": self.phase_id, "parent_id": self.epic_id}
        return {f"{prefix}{name}": value for name, value in wanted.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Day:
    """How many tasks stood in each column when the day ended, and how many were added, done and called off in it."""

    date: date
    columns: Mapping[str, int]
    added: int
    done: int
    cancelled: int

    @property
    def open(self) -> int:
        return sum(self.columns.values()) - self.columns["done"]


def flow(*, scope: Scope, span: Span) -> list[Day]:
    """Every day of the span, walked back from where the tasks stand now. Two queries.

    A move taken back counts against what it was: `done` and `cancelled` are what remained of the day.
    """
    standing: Counter[str | None] = Counter()
    for status, number in scope.tasks.order_by().values_list("status").annotate(n=Count("pk")):
        standing[_COLUMN[status]] += number
    moves: dict[str, list[tuple[str | None, str | None, int]]] = defaultdict(list)
    changes: Any = (
        scope.events.filter(at__gte=span.since)
        .order_by()
        .annotate(day=_DAY, left=KT("before__status"), entered=KT("after__status"))
        .values_list("day", "left", "entered")
        .annotate(n=Count("pk"))
    )
    for day, left, entered, number in changes:
        if entered is not None and left != entered:
            moves[day].append((left, entered, number))
    found = []
    for day in reversed(span.days):
        made = moves[day.isoformat()]
        found.append(
            Day(
                date=day,
                columns={column: max(0, standing[column]) for column in COLUMN_NAMES},
                added=sum(number for left, _, number in made if left is None),
                done=_balance(made, Status.DONE),
                cancelled=_balance(made, Status.CANCELLED),
            )
        )
        for left, entered, number in made:
            standing[_COLUMN.get(entered)] -= number
            if left is not None:
                standing[_COLUMN.get(left)] += number
    return found[::-1]


def _balance(moves: Iterable[tuple[str | None, str | None, int]], status: str) -> int:
    return sum(number * ((entered == status) - (left == status)) for left, entered, number in moves)


@dataclass(frozen=True, slots=True)
class Finished:
    """A task that is done: `cycle` is the seconds since its first start (None: it never was), `lead` since it was made.

    `by_agent`: an agent had it last; else a person did it.
    """

    on: date
    cycle: float | None
    lead: float
    phase_id: int
    by_agent: bool


def finished(*, project_id: int, span: Span) -> list[Finished]:
    """The tasks that were done in the span and still are, in order. One query."""
    rows = (
        Task.objects.filter(project_id=project_id, status=Status.DONE, completed_at__gte=span.since)
        .order_by("completed_at", "pk")
        .values_list("completed_at", "started_at", "created_at", "phase_id", "assigned_agent_id")
    )
    return [
        Finished(
            on=done.astimezone(UTC).date(),
            cycle=max(0.0, (done - started).total_seconds()) if started else None,
            lead=max(0.0, (done - created).total_seconds()),
            phase_id=phase_id,
            by_agent=agent_id is not None,
        )
        for done, started, created, phase_id, agent_id in rows
        if done is not None
    ]


def percentile(values: Sequence[float], part: float) -> float | None:
    """The smallest of `values` that is not less than `part` of them (nearest rank); None where there is none."""
    return sorted(values)[max(0, ceil(part * len(values)) - 1)] if values else None


def attempts(*, project_id: int, span: Span) -> dict[date, Counter[str]]:
    """For every day, how many tries were `started`, `expired` (their lease ran out), `given_up` and `sent_back`.

    The last lease a task may lose counts as expired and as given up. One query.
    """
    names = {
        "task.claimed": "started",
        "task.started": "started",
        "task.lease_expired": "expired",
        "task.failed": "given_up",
        "task.rejected": "sent_back",
    }
    found: dict[date, Counter[str]] = {day: Counter() for day in span.days}
    counted: Any = (
        Event.objects.filter(project_id=project_id, kind__in=names, at__gte=span.since)
        .order_by()
        .annotate(day=_DAY)
        .values_list("day", "kind", "actor_kind")
        .annotate(n=Count("pk"))
    )
    for text, kind, actor_kind, number in counted:
        tally = found.setdefault(date.fromisoformat(text), Counter())
        tally[names[kind]] += number
        if kind == "task.failed" and actor_kind == Event.ActorKind.SYSTEM:
            tally["expired"] += number
    return found


@dataclass(frozen=True, slots=True)
class Parts:
    """What a project's work is divided in: phases in their order, and the newest epics."""

    phases: Sequence[Phase]
    epics: Sequence[Task]


def parts(*, project_id: int) -> Parts:
    """Two queries."""
    epics = Task.objects.filter(project_id=project_id, children__isnull=False).distinct()
    return Parts(
        phases=list(Phase.objects.filter(project_id=project_id).only("pk", "number", "name", "project_id")),
        epics=list(epics.order_by("-pk").only("pk", "ref", "subject", "project_id")[:MOST_EPICS]),
    )
