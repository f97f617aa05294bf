"""Moving cards: a person's drop on a column and a place in it, and the undo of a move."""

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from devflow.actors import Actor
from devflow.errors import conflict, forbidden, not_found
from devflow.events import REJOINED, LiveEvent, bus
from workflow.models import POSITION_GAP, Agent, Event, Status, Task
from workflow.selectors.board import COLUMN_OF, Column
from workflow.services import activity, claims, leases, readiness, transitions
from workflow.services.rows import LET_GO, change, check_version, locked_project, locked_task, task_number
from workflow.services.transitions import Moved, illegal, tell_agent

MOVES = frozenset(
    {
        "task.claimed", "task.released", "task.done", "task.submitted", "task.approved", "task.rejected",
        "task.failed", "task.retried", "task.cancelled", "task.started", "task.reordered",
    }
)  # fmt: skip
"""Events that undo can take back."""


@transaction.atomic
def move(
    *,
    project_id: int,
    task_id: str | int,
    column: Column,
    actor: Actor,
    after_id: str | int | None = None,
    before_id: str | int | None = None,
    version: int | None = None,
    reason: str = "",
) -> Moved:
    """Drop a card on a column, between two cards where they are named. `reason` is the feedback of a rejection.

    Raises `conflict` for an illegal move (naming the legal ones), a full column, and a card that changed since
    `version`.
    """
    task = locked_task(project_id=project_id, task_id=task_id)
    check_version(task, version)
    target = column
    moved = Moved(task)
    if COLUMN_OF.get(task.status) != target or (task.status == Status.FAILED and target == "review"):
        if COLUMN_OF.get(task.status) != target:
            _check_room(task, target)
            moved = _change_column(task, target, actor=actor, reason=reason)
        task = locked_task(project_id=project_id, task_id=task_id)
    if after_id is not None or before_id is not None:
        first = _last_move(task) if moved.task is not task else None
        place(task, after_id=after_id, before_id=before_id, actor=actor, part_of=first.pk if first else None)
    return Moved(task, moved.unblocked)


def _check_room(task: Task, column: Column) -> None:
    limit = task.project.limit_of(column)
    if limit is not None:
        locked_project(task.project_id)
        statuses = [status for status, stands_in in COLUMN_OF.items() if stands_in == column]
        if Task.objects.filter(project_id=task.project_id, status__in=statuses).count() >= limit:
            raise conflict(f"The column {column.replace('_', ' ')} is full: at most {limit} cards.", limit=limit)


def _change_column(task: Task, column: Column, *, actor: Actor, reason: str) -> Moved:
    project_id, task_id = task.project_id, task.pk
    status = Status(task.status)
    if column == "ready" and status == Status.IN_PROGRESS:
        moved = claims.release(project_id=project_id, task_id=task_id, actor=actor, reason=reason)
        tell_agent(task, actor=actor, body=f"{task.public_id} was taken back from you by {actor.name}.")
        return moved
    if column == "ready" and status == Status.FAILED:
        return transitions.retry(project_id=project_id, task_id=task_id, actor=actor)
    if column == "in_progress" and status == Status.READY:
        return _start_by_hand(task, actor=actor)
    if column == "in_progress" and status == Status.REVIEW:
        return transitions.review(
            project_id=project_id, task_id=task_id, actor=actor, decision="reject", feedback=reason
        )
    if column == "done" and status == Status.REVIEW:
        return transitions.review(
            project_id=project_id, task_id=task_id, actor=actor, decision="approve", feedback=reason
        )
    if column == "review" and status == Status.IN_PROGRESS and transitions.needs_review(task):
        return transitions.finish(project_id=project_id, task_id=task_id, actor=actor)
    if column == "done" and status in (Status.IN_PROGRESS, Status.READY) and not transitions.needs_review(task):
        return transitions.finish(project_id=project_id, task_id=task_id, actor=actor)
    if column == "ready" and status == Status.PENDING:
        raise illegal(task, "ready", f"it waits for {', '.join(transitions.blocked_by(task)) or 'its phase to open'}.")
    if column == "backlog":
        raise illegal(task, "pending", "a card goes back to the backlog by being blocked; block it with a reason.")
    raise illegal(task, column)


def _start_by_hand(task: Task, *, actor: Actor) -> Moved:
    now = timezone.now()
    if claims.wip_is_full(phase=task.phase, project=task.project, now=now):
        raise conflict("The column in progress is full.", suggestion="Finish or release a card first.")
    made = change(
        task,
        **LET_GO,
        closed_with="",
        status=Status.IN_PROGRESS,
        started_at=task.started_at or now,
        assigned_agent_id=None,
    )
    activity.record(
        kind="task.started", project=task.project, actor=actor, task=task, before=made.before, after=made.after
    )
    return Moved(task)


def place(
    task: Task,
    *,
    actor: Actor,
    after_id: str | int | None = None,
    before_id: str | int | None = None,
    part_of: int | None = None,
) -> None:
    """Put a locked card right after one card, or right before another, of the same project. Raises `not_found`.

    `part_of`: the Event of the move to another column this is the end of; undo takes back both.
    """
    neighbour = after_id if after_id is not None else before_id
    if neighbour is None or task_number(neighbour) == task.pk:
        return
    position = _gap(task, neighbour=task_number(neighbour), after=after_id is not None)
    if position is None:
        _renumber(task.project_id)
        position = _gap(task, neighbour=task_number(neighbour), after=after_id is not None)
    if position is not None and position != task.position:
        made = change(task, position=position)
        activity.record(
            kind="task.reordered",
            project=task.project,
            actor=actor,
            task=task,
            before=made.before,
            after=made.after | ({"part_of": part_of} if part_of else {}),
        )


def _gap(task: Task, *, neighbour: int, after: bool) -> int | None:
    """A free position beside `neighbour`; None when the two there leave no room."""
    others = Task.objects.filter(project_id=task.project_id).exclude(pk=task.pk)
    place_of = others.filter(pk=neighbour).values_list("position", flat=True).first()
    if place_of is None:
        raise not_found("Task", f"task-{neighbour}")
    on_board = others.filter(status__in=COLUMN_OF).exclude(pk=neighbour).order_by("position")
    if after:
        beyond = on_board.filter(position__gte=place_of).values_list("position", flat=True).first()
        beyond = place_of + 2 * POSITION_GAP if beyond is None else beyond
    else:
        beyond = on_board.filter(position__lte=place_of).values_list("position", flat=True).last()
        beyond = place_of - 2 * POSITION_GAP if beyond is None else beyond
    middle = (place_of + beyond) // 2
    return middle if middle not in (place_of, beyond) else None


def _renumber(project_id: int) -> None:
    """Spread a project's cards out again, in their order."""
    rows = list(Task.objects.select_for_update().filter(project_id=project_id).order_by("position", "pk"))
    for number, row in enumerate(rows, 1):
        row.position = number * POSITION_GAP
    Task.objects.bulk_update(rows, ["position"], batch_size=500)
    bus.publish(LiveEvent(REJOINED, project_id))  # every card's place is another one now


@transaction.atomic
def undo_last_move(*, project_id: int, task_id: str | int, actor: Actor, version: int | None = None) -> Moved:
    """Take back the last move of a task, if the task is still at `version`.

    Raises as `undo` does, `conflict` where there is nothing to take back or somebody moved it since.
    """
    task = locked_task(project_id=project_id, task_id=task_id)
    check_version(task, version)
    last = _last_move(task)
    if last is None or last.kind == "task.undone":
        raise conflict(f"{task.public_id} has no move to take back.")
    return undo(project_id=project_id, event_id=last.pk, actor=actor)


def _last_move(task: Task) -> Event | None:
    return Event.objects.filter(task=task).filter(Q(kind__in=MOVES) | Q(kind="task.undone")).order_by("-pk").first()


@transaction.atomic
def undo(*, project_id: int, event_id: int, actor: Actor) -> Moved:
    """Put a task back to what it was before the move that `event_id` logged.

    An agent takes back only its own moves. A lease that the move ended is given again to its holder. Tasks that the
    move made ready wait again, unless somebody has started them. Raises `not_found`, `forbidden`, `conflict` when
    the task changed since.
    """
    event = Event.objects.filter(project_id=project_id, pk=event_id, kind__in=MOVES, task__isnull=False).first()
    if event is None or event.task_id is None:
        raise not_found("Move", event_id, suggestion="Only moves of tasks can be taken back.")
    if actor.is_agent and event.agent_id != actor.agent_id:
        raise forbidden(
            "An agent can take back only its own moves.", suggestion="Ask the one who moved it, or a person."
        )
    task = locked_task(project_id=project_id, task_id=event.task_id)
    before, after = event.before, event.after
    if first := Event.objects.filter(task=task, pk=after.get("part_of")).first():
        before, after = {**before, **first.before}, {**first.after, **after}
    # What a move made possible follows by itself: a released task is ready at once, one version on.
    follows = Event.objects.filter(task=task, pk__gt=event.pk, kind__in=("task.ready", "task.waiting")).count()
    if task.version != after.get("version", 0) + follows:
        raise conflict(
            f"{task.public_id} changed since that move; it cannot be taken back.",
            suggestion="Read the task again and move it from where it is now.",
            version=task.version,
            expected=after.get("version"),
        )
    now = timezone.now()
    holder = task.assigned_agent if task.lease_token is not None else None
    fields = {
        name: parse_datetime(value) if value and name.endswith(("_at", "_since")) else value
        for name, value in before.items()
        if name not in ("version", "lease_expires_at", "lease_session", "lease_minutes")
    }
    fields |= LET_GO
    agent_id = before.get("assigned_agent_id", task.assigned_agent_id)
    if before["status"] == Status.IN_PROGRESS and before.get("lease_expires_at") and agent_id is not None:
        if Agent.objects.filter(pk=agent_id).exists():
            fields |= leases.lease_fields(phase=task.phase, session=before.get("lease_session", ""), now=now)
        else:
            fields["assigned_agent_id"] = None
    if before["status"] == Status.READY:
        fields["ready_since"] = fields.get("ready_since") or task.ready_since or now
    was_done = task.status == Status.DONE
    made = change(task, **fields)
    activity.record(
        kind="task.undone",
        project=task.project,
        actor=actor,
        task=task,
        before=made.before,
        after=made.after | {"undoes": event.pk},
    )
    if was_done or task.status == Status.DONE:
        readiness.task_closed(task=task, actor=actor)
    readiness.refresh(task_ids=[task.pk], actor=actor)
    if holder is not None and task.lease_token is None:
        said = f"Your claim of {task.public_id} was taken back by {actor.name}."
        tell_agent(task, actor=actor, body=said, holder=holder)
    task.refresh_from_db(fields=["status", "version", "ready_since"])
    return Moved(task)
