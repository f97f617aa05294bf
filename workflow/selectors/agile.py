"""Reading epics, stories, tasks of stories and issues: filters, progress, and what the pages and tools show of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from devflow.digits import whole
from workflow.models import CLOSED, Category, Epic, Event, Issue, ItemStatus, Kind, Status, Task, UserStory
from workflow.models.agile import CLOSING, shown_status

RowT = TypeVar("RowT", Epic, UserStory, Issue, Task)

FINISHED = (Status.DONE, Status.CANCELLED)


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of something is done. What has no parts of its own counts as one."""

    total: int
    completed: int

    @property
    def percent(self) -> int:
        return 100 * self.completed // self.total if self.total else 0


def statuses(project_id: int, kind: Kind | None = None) -> QuerySet[ItemStatus]:
    found = ItemStatus.objects.filter(project_id=project_id).order_by("kind", "order", "pk")
    return found if kind is None else found.filter(kind=kind)


def _counted(tasks: QuerySet[Task]) -> Any:
    return Coalesce(Subquery(tasks.order_by().values("project").annotate(n=Count("pk")).values("n")), 0)


def _of(project_id: int | None) -> dict[str, int]:
    return {} if project_id is None else {"project_id": project_id}


def stories(project_id: int | None = None) -> QuerySet[UserStory]:
    """Stories (None: of every project) with `tasks_total` and `tasks_done`; a constant number of queries."""
    own = Task.objects.filter(user_story=OuterRef("pk"))
    return (
        UserStory.objects.filter(**_of(project_id))
        .select_related("status", "assigned_to", "epic", "sprint", "project")
        .annotate(tasks_total=_counted(own), tasks_done=_counted(own.filter(status__in=FINISHED)))
    )


def story_progress(story: UserStory) -> Progress:
    """Of a story read by `stories`: its tasks; without any, the story itself."""
    total: int = story.tasks_total  # type: ignore[attr-defined]  # an annotation of `stories`
    done: int = story.tasks_done  # type: ignore[attr-defined]  # likewise
    return Progress(total, done) if total else Progress(1, int(story.status.is_closed))


def epics(project_id: int | None = None) -> QuerySet[Epic]:
    """Epics (None: of every project) with the counts `epic_progress` needs; a constant number of queries."""
    tasks = Task.objects.filter(user_story__epic=OuterRef("pk"))
    bare = (
        UserStory.objects.filter(epic=OuterRef("pk"))
        .annotate(has_tasks=Exists(Task.objects.filter(user_story=OuterRef("pk"))))
        .filter(has_tasks=False)
    )
    return (
        Epic.objects.filter(**_of(project_id))
        .select_related("status", "assigned_to", "project")
        .annotate(
            tasks_total=_counted(tasks),
            tasks_done=_counted(tasks.filter(status__in=FINISHED)),
            bare_total=_counted(bare),  # type: ignore[arg-type]  # stories are counted as tasks are
            bare_done=_counted(bare.filter(status__category__in=CLOSING)),  # type: ignore[arg-type]  # likewise
        )
    )


def epic_progress(epic: Epic) -> Progress:
    """Of an epic read by `epics`: the tasks of its stories, and one for each story without tasks."""
    counts: Any = epic
    total, done = counts.tasks_total + counts.bare_total, counts.tasks_done + counts.bare_done
    return Progress(total, done) if total else Progress(0, 0)


def issues(project_id: int | None = None) -> QuerySet[Issue]:
    return Issue.objects.filter(**_of(project_id)).select_related("status", "assigned_to", "type", "project")


def tasks(project_id: int) -> QuerySet[Task]:
    return Task.objects.filter(project_id=project_id).select_related(
        "project", "phase", "assigned_agent", "assigned_to", "item_status", "user_story"
    )


def narrowed(
    rows: QuerySet[RowT],
    *,
    query: str = "",
    tags: Sequence[str] = (),
    match: str = "any",
    assignee_ids: Iterable[int] = (),
    unassigned: bool = False,
    modified_since: datetime | None = None,
) -> QuerySet[RowT]:
    """The filters every kind has. `query`: each word in the subject or description, or a number: its ref."""
    if (number := whole(query.removeprefix("#"), digits=9)) is not None:
        rows = rows.filter(Q(ref=number) | Q(subject__icontains=query))
    else:
        for word in query.split()[:20]:
            rows = rows.filter(Q(subject__icontains=word) | Q(description__icontains=word))
    if tags:
        has = [Q(tags__has=tag) for tag in tags]
        wanted = Q()
        for one in has:
            wanted = wanted & one if match == "all" else wanted | one
        rows = rows.filter(wanted)
    people = list(assignee_ids)
    if people and unassigned:
        rows = rows.filter(Q(assigned_to__in=people) | Q(assigned_to__isnull=True))
    elif people:
        rows = rows.filter(assigned_to__in=people)
    elif unassigned:
        rows = rows.filter(assigned_to__isnull=True)
    if modified_since is not None:
        rows = rows.filter(updated_at__gte=modified_since)
    return rows


def tasks_in(rows: QuerySet[Task], chosen: Sequence[ItemStatus]) -> QuerySet[Task]:
    """Tasks shown under one of the statuses: as `models.agile.shown_status` decides, in SQL."""
    wanted = Q(pk__in=())
    for status in chosen:
        wanted |= _shown_as(status, chosen)
    return rows.filter(wanted)


def _shown_as(status: ItemStatus, chosen: Sequence[ItemStatus]) -> Q:
    here = _holds(status)
    siblings = list(statuses(status.project_id, Kind.TASK))
    first = _first_fitting(siblings)
    by_default = Q(pk__in=())
    for state, pick in first.items():
        if pick.pk == status.pk:
            by_default |= _in_state(state)
    chosen_elsewhere = Q(item_status__isnull=False) & _own_choice_holds(siblings)
    return (Q(item_status=status) & here) | (by_default & ~chosen_elsewhere)


def _own_choice_holds(siblings: Sequence[ItemStatus]) -> Q:
    holds = Q(pk__in=())
    for sibling in siblings:
        holds |= Q(item_status=sibling) & _holds(sibling)
    return holds


_BLOCKED = "blocked"
STATES = (*Status.values, _BLOCKED)


def _in_state(state: str) -> Q:
    blocked = ~Q(manual_block="") & ~Q(status__in=CLOSED)
    return blocked if state == _BLOCKED else Q(status=state) & ~blocked


def _holds(status: ItemStatus) -> Q:
    """`models.agile.is_shown_as` in SQL."""
    if status.core:
        return _in_state(status.core)
    if status.category == Category.OTHER:
        return ~Q(status__in=CLOSED)
    if status.category == Category.CLOSED:
        return Q(status__in=FINISHED)
    if status.category == Category.BLOCKED:
        return _in_state(_BLOCKED)
    core = {
        Category.NEW: (Status.PENDING, Status.READY),
        Category.IN_PROGRESS: (Status.IN_PROGRESS,),
        Category.DONE: (Status.DONE,),
    }
    wanted = Q(pk__in=())
    for state in core[Category(status.category)]:
        wanted |= _in_state(state)
    return wanted


def _first_fitting(siblings: Sequence[ItemStatus]) -> dict[str, ItemStatus]:
    """The status each state of the board is shown as where none was chosen."""
    found: dict[str, ItemStatus] = {}
    for state in STATES:
        sample = Task(
            status=Status.READY if state == _BLOCKED else state, manual_block="x" if state == _BLOCKED else ""
        )
        found[state] = shown_status(sample, siblings)
    return found


def story_events(*, project_id: int, story_id: int, ref: int) -> QuerySet[Event]:
    """What happened to a story and to its tasks, newest first."""
    own = Q(kind__startswith="story.", after__ref=ref)
    of_tasks = Q(task__in=Task.objects.filter(user_story=story_id).values("pk"))
    return Event.objects.filter(own | of_tasks, project_id=project_id).select_related("task").order_by("-pk")
