"""Reading tasks. A task whose holder's lease ran out is shown as what it is by then, swept or not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, Exists, OuterRef, Q, QuerySet, Value, When
from django.db.models.fields import CharField
from django.utils import timezone

from devflow import config
from devflow.digits import whole
from devflow.errors import not_found
from workflow.models import Dependency, Priority, Status, Task, held_up, open_blocker

COLUMNS = (
    "pk", "ref", "subject", "description", "phase__number", "current_status", "priority", "boosted", "tags",
    "assigned_agent__name", "created_at", "manual_block", "iteration", "attempts", "lease_expires_at", "version",
    "completed_at", "created_by", "position", "parent_id", "parent__subject",
    "reserved_for__name", "user_story_id", "user_story__ref", "user_story__subject", "user_story__epic_id",
    "user_story__epic__ref", "user_story__epic__subject",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blocker:
    """What a task waits for, and how that stands."""

    pk: int
    status: str
    subject: str

    @property
    def public_id(self) -> str:
        return f"task-{self.pk}"


@dataclass(frozen=True, slots=True)
class Card:
    """A task as lists show it, without its row. `status` already takes an expired lease into account."""

    pk: int
    ref: int
    subject: str
    description: str
    phase: int
    status: str
    priority: int
    boosted: bool
    tags: list[str]
    agent: str | None
    created_at: datetime
    manual_block: str
    iteration: int
    attempts: int
    lease_expires_at: datetime | None
    version: int
    completed_at: datetime | None
    created_by: str
    position: int
    parent: int | None
    parent_subject: str | None
    reserved_for: str | None
    story: int | None
    story_ref: int | None
    story_subject: str | None
    epic: int | None
    epic_ref: int | None
    epic_subject: str | None
    blockers: tuple[Blocker, ...] = ()

    @property
    def public_id(self) -> str:
        return f"task-{self.pk}"

    @property
    def priority_name(self) -> str:
        return Priority(self.priority).label

    @property
    def blocked(self) -> bool:
        return bool(self.blockers or self.manual_block) and self.status not in (Status.DONE, Status.CANCELLED)


def gives_out(at: datetime) -> Q:
    """Expired for the last time it may: the sweep will call it failed."""
    last = config.current().workflow.max_attempts - 1
    return Q(status=Status.IN_PROGRESS, lease_expires_at__lte=at, attempts__gte=last)


def runs_out(at: datetime) -> Q:
    """Under an expired lease: nobody's."""
    return Q(status=Status.IN_PROGRESS, lease_expires_at__lte=at)


def with_status(tasks: QuerySet[Task], at: datetime) -> QuerySet[Task]:
    """Annotate `current_status`: the stored one, but for expired leases what the sweep will make of them."""
    return tasks.annotate(
        current_status=Case(
            When(gives_out(at), then=Value(Status.FAILED.value)),
            When(runs_out(at) & Q(open_blocker()), then=Value(Status.PENDING.value)),
            When(runs_out(at), then=Value(Status.READY.value)),
            default="status",
            output_field=CharField(),
        )
    )


def find(
    *,
    project_id: int,
    phase_number: int | None = None,
    status: str | None = None,
    tags: Sequence[str] = (),
    agent: str | None = None,
    text: str = "",
    priority: str | None = None,
    at: datetime | None = None,
) -> QuerySet[Task]:
    """Tasks by phase, status (or `blocked`), all of some tags, agent, priority and text; by id."""
    tasks: Any = with_status(Task.objects.filter(project_id=project_id), at or timezone.now())
    if phase_number is not None:
        tasks = tasks.filter(phase__number=phase_number)
    if status == "blocked":
        tasks = tasks.exclude(status__in=[Status.DONE, Status.CANCELLED]).filter(held_up())
    elif status is not None:
        tasks = tasks.filter(current_status=status)
    if agent is not None:
        tasks = tasks.filter(assigned_agent__name=agent)
    if priority is not None:
        tasks = tasks.filter(priority=Priority.of(priority))
    if text:
        tasks = tasks.filter(Q(subject__icontains=text) | Q(description__icontains=text))
    for tag in tags:
        tasks = tasks.filter(tags__has=tag)
    found: QuerySet[Task] = tasks.order_by("pk")
    return found


def cards(tasks: QuerySet[Task]) -> list[Card]:
    """The cards of `tasks` (annotated by `with_status`), with their blockers. Two queries."""
    rows = list(tasks.values_list(*COLUMNS))
    return with_blockers(rows)


def with_blockers(rows: Sequence[tuple[Any, ...]]) -> list[Card]:
    blockers = open_blockers(row[0] for row in rows)
    return [Card(*(*row, tuple(blockers.get(row[0], ())))) for row in rows]


def open_blockers(task_ids: Iterable[int]) -> dict[int, list[Blocker]]:
    """What each of the tasks waits for. One query."""
    found: dict[int, list[Blocker]] = {}
    wanted = list(task_ids)
    if not wanted:
        return found
    links = (
        Dependency.objects.filter(task__in=wanted)
        .exclude(blocker__status=Status.DONE)
        .order_by("blocker_id")
        .values_list("task_id", "blocker_id", "blocker__status", "blocker__subject")
    )
    for task_id, pk, status, subject in links:
        found.setdefault(task_id, []).append(Blocker(pk, status, subject))
    return found


def by_id(*, project_id: int, task_id: str | int) -> Task:
    """One task with its project, phase, holder and parent. Raises `not_found`, also for another project's."""
    number = whole(str(task_id).removeprefix("task-"), digits=16)
    task = None
    if number is not None:
        task = (
            Task.objects.select_related("project", "phase", "assigned_agent", "parent", "creator_agent")
            .filter(project_id=project_id, pk=number)
            .first()
        )
    if task is None:
        raise not_found("Task", task_id, suggestion="get_tasks lists the tasks of this project.")
    return task


def detail(*, project_id: int, task_id: str | int) -> Task:
    """One task with everything its page shows: blockers, dependents, children, evidence, notes. Raises `not_found`."""
    by_id(project_id=project_id, task_id=task_id)
    return (
        Task.objects.select_related("project", "phase", "assigned_agent", "parent", "creator_agent")
        .prefetch_related(
            "phase__done_definitions", "blockers", "dependents", "children", "evidence__definition", "notes"
        )
        .get(pk=int(str(task_id).removeprefix("task-")))
    )


def waiting_on_failed(*, project_id: int) -> QuerySet[Task]:
    """Tasks that wait for a failed or cancelled one: somebody has to decide."""
    stuck = Dependency.objects.filter(task=OuterRef("pk"), blocker__status__in=[Status.FAILED, Status.CANCELLED])
    return Task.objects.filter(Exists(stuck), project_id=project_id, status=Status.PENDING)
