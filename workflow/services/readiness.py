"""pending <-> ready: a task is ready when nothing blocks it and its phase may be entered."""

from collections.abc import Iterable

from django.db.models import Count, F, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from devflow.actors import Actor
from workflow.models import Phase, Status, Task, open_blocker
from workflow.services.activity import Entry, record_tasks
from workflow.services.rows import locked_project


def _startable(tasks: QuerySet[Task]) -> QuerySet[Task]:
    """Those of `tasks` that nothing keeps from being started."""
    done_before = (
        Task.objects.filter(phase=OuterRef("phase__entry_phase"), status=Status.DONE)
        .order_by()
        .values("phase")
        .annotate(n=Count("pk"))
        .values("n")
    )
    return (
        tasks.filter(~open_blocker(), manual_block="")
        .annotate(entry_done=Coalesce(Subquery(done_before, output_field=IntegerField()), 0))
        .filter(Q(phase__entry_phase__isnull=True) | Q(entry_done__gte=F("phase__entry_done_tasks")))
    )


def refresh(*, task_ids: Iterable[int], actor: Actor) -> list[int]:
    """Set pending tasks that may start to ready, ready ones that may not to pending. Returns the newly ready ids.

    The rows are locked first and looked at in a statement of their own: of two transactions that close the last two
    blockers at the same moment, the second sees what the first did, and exactly one of them makes the task ready.
    """
    ids = sorted(set(task_ids))
    if not ids:
        return []
    rows = {
        task.pk: task
        for task in Task.objects.select_for_update(of=("self",))
        .select_related("project")
        .filter(pk__in=ids, status__in=[Status.PENDING, Status.READY])
        .order_by("pk")
    }
    if not rows:
        return []
    startable = set(_startable(Task.objects.filter(pk__in=rows)).values_list("pk", flat=True))
    opened = [pk for pk, task in rows.items() if task.status == Status.PENDING and pk in startable]
    shut = [pk for pk, task in rows.items() if task.status == Status.READY and pk not in startable]
    now = timezone.now()
    if opened:
        Task.objects.filter(pk__in=opened).update(
            status=Status.READY, ready_since=now, updated_at=now, version=F("version") + 1
        )
    if shut:
        Task.objects.filter(pk__in=shut).update(
            status=Status.PENDING, ready_since=None, updated_at=now, version=F("version") + 1
        )
    record_tasks(
        entries=[_entry(rows[pk], "task.ready", Status.READY) for pk in opened]
        + [_entry(rows[pk], "task.waiting", Status.PENDING) for pk in shut],
        actor=actor,
    )
    return opened


def _entry(task: Task, kind: str, status: Status) -> Entry:
    return Entry(
        kind,
        task,
        {"status": task.status, "version": task.version},
        {"status": status.value, "version": task.version + 1},
    )


def task_closed(*, task: Task, actor: Actor) -> list[int]:
    """A task became done (or stopped being done): look at what waits for it. Returns the dependents it made ready."""
    dependents = list(task.dependent_links.order_by().values_list("task_id", flat=True))
    opened = refresh(task_ids=dependents, actor=actor)
    entry_changed(phase=task.phase, actor=actor)
    return opened


def entry_changed(*, phase: Phase, actor: Actor) -> None:
    """Look again at the phases that are entered through `phase`."""
    entered = list(phase.opens.order_by().values_list("pk", flat=True))
    if entered:
        # Two closings at once would each miss the other's in the count; the project's row puts them in order.
        locked_project(phase.project_id)
        phase_refreshed(phase_ids=entered, actor=actor)


def phase_refreshed(*, phase_ids: Iterable[int], actor: Actor) -> list[int]:
    """Look again at every waiting task of these phases."""
    waiting = Task.objects.filter(phase_id__in=list(phase_ids), status__in=[Status.PENDING, Status.READY])
    return refresh(task_ids=waiting.values_list("pk", flat=True), actor=actor)
