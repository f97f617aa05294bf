"""Claims: exactly one winner per task, however many agents ask at once.

A claim belongs to (agent, session) and lives as long as its lease, which every call of the holder renews. Expiry is
enforced where it matters, inside the claim itself; the periodic sweep only tidies.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from devflow import config
from devflow.actors import SYSTEM, Actor
from devflow.errors import conflict
from workflow.models import Agent, Phase, Project, Status, Task, open_blocker
from workflow.services import activity, leases, readiness
from workflow.services.activity import Entry
from workflow.services.rows import LET_GO, change, locked_project, locked_task, phase_numbered
from workflow.services.transitions import Moved, check_right, illegal

Reason = Literal["none_ready", "all_blocked", "wip_full"]

SWEEP_BATCH = 500


@dataclass(frozen=True, slots=True)
class Claim:
    """A task with its lease, or the reason why there is none. `resumed`: it was the caller's already."""

    task: Task | None
    resumed: bool = False
    reason: Reason | None = None


@transaction.atomic
def claim(*, project_id: int, phase_number: int, actor: Actor) -> Claim:
    """Give the calling agent its next task in a phase: its own unexpired one, else the first ready one.

    Order: boosted, priority, position on the board, ready since, id. Raises `not_found` for an unknown phase.
    """
    phase = phase_numbered(project_id=project_id, number=phase_number)
    agent_id = _agent_of(actor)
    if connection.features.has_select_for_update:
        # One agent asking twice at once gets one task: its two calls take turns.
        Agent.objects.select_for_update(no_key=True).get(pk=agent_id)
    now = timezone.now()
    mine = Task.objects.held(now).filter(phase=phase, assigned_agent_id=agent_id, lease_session=actor.session)
    if mine.exists():
        leases.renew(agent_id=agent_id, session=actor.session, at=now)
        if own := _own(agent_id=agent_id, session=actor.session, now=now, phase=phase):
            return Claim(own, resumed=True)
    _expire(now=now, phase_id=phase.pk)
    if wip_is_full(phase=phase, now=now):
        return Claim(None, reason="wip_full")
    won = _take_first(phase=phase, agent_id=agent_id, session=actor.session, now=now)
    if won is None:
        waiting = Task.objects.filter(phase=phase, status=Status.PENDING).exists()
        return Claim(None, reason="all_blocked" if waiting else "none_ready")
    task = Task.objects.get(pk=won)
    task.phase, task.project = phase, phase.project
    Agent.objects.filter(pk=agent_id).update(phase=phase)
    activity.record(
        kind="task.claimed",
        project=task.project,
        actor=actor,
        task=task,
        before={"status": Status.READY.value, "version": task.version - 1, "assigned_agent_id": None},
        after={"status": task.status, "version": task.version, "assigned_agent_id": agent_id},
    )
    return Claim(task)


def _agent_of(actor: Actor) -> int:
    if actor.agent_id is None:
        raise conflict("Only an agent can claim a task.", suggestion="Move the card to in progress instead.")
    return actor.agent_id


def _own(*, agent_id: int, session: str, now: datetime, phase: Phase | None = None) -> Task | None:
    held = (
        Task.objects.held(now)
        .filter(assigned_agent_id=agent_id, lease_session=session)
        .select_related("project", "phase", "assigned_agent")
        .order_by("-started_at", "pk")
    )
    return (held if phase is None else held.filter(phase=phase)).first()


def _take_first(*, phase: Phase, agent_id: int, session: str, now: datetime) -> int | None:
    """Claim the first ready task in one statement; the primary key of it, or None when there is none.

    PostgreSQL passes over rows that other claims hold at this moment; on SQLite the transaction is the only writer.
    """
    lease = leases.lease_fields(phase=phase, session=session, now=now)
    skip = "FOR UPDATE SKIP LOCKED" if connection.features.has_select_for_update_skip_locked else ""
    adapt = connection.ops.adapt_datetimefield_value
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            UPDATE workflow_task
               SET status = 'in_progress', assigned_agent_id = %s, lease_token = %s, lease_session = %s,
                   lease_expires_at = %s, lease_renew_at = %s, lease_minutes = %s, closed_with = '',
                   started_at = COALESCE(started_at, %s), updated_at = %s, version = version + 1
             WHERE status = 'ready' AND lease_token IS NULL AND id = (
                   SELECT id FROM workflow_task
                    WHERE phase_id = %s AND status = 'ready' AND (reserved_for_id IS NULL OR reserved_for_id = %s)
                    ORDER BY boosted DESC, priority, position, ready_since, id
                    LIMIT 1 {skip})
         RETURNING id
            """,  # noqa: S608  # the only interpolation is the constant above
            [
                agent_id,
                lease["lease_token"],
                session,
                adapt(lease["lease_expires_at"]),
                adapt(lease["lease_renew_at"]),
                lease["lease_minutes"],
                adapt(now),
                adapt(now),
                phase.pk,
                agent_id,
            ],
        )
        row = cursor.fetchone()
    return None if row is None else int(row[0])


def wip_is_full(*, phase: Phase, now: datetime, project: Project | None = None) -> bool:
    """Whether the phase or the project's column takes no further task in progress.

    Where there is a limit, its row is locked, so that two claims cannot both take the last place.
    """
    project = project or phase.project
    column = project.limit_of("in_progress")
    running = Task.objects.filter(status=Status.IN_PROGRESS).exclude(lease_expires_at__lte=now)
    if column is not None:
        locked_project(project.pk)
        if running.filter(project=project).count() >= column:
            return True
    if phase.wip_limit is not None:
        Phase.objects.select_for_update(no_key=True).get(pk=phase.pk)
        return running.filter(phase=phase).count() >= phase.wip_limit
    return False


@transaction.atomic
def start(*, project_id: int, task_id: str | int, actor: Actor, lease_token: str | None = None) -> Claim:
    """Claim exactly this task (`update_task_status("in_progress")`); on one's own it changes nothing.

    A task in progress that nobody holds (dragged there by a person) is taken up. Raises `conflict` for somebody
    else's, a blocked one, a full column, and a stale lease.
    """
    agent_id = _agent_of(actor)
    task = locked_task(project_id=project_id, task_id=task_id)
    now = timezone.now()
    mine = (task.assigned_agent_id, task.lease_session) == (agent_id, actor.session)
    if lease_token is not None or (task.is_held(now) and not mine):
        check_right(task, actor=actor, lease_token=lease_token, now=now)
    if task.is_held(now):
        return Claim(task, resumed=True)
    if task.has_expired(now):
        _expire(now=now, task_id=task.pk)
        task = locked_task(project_id=project_id, task_id=task_id)
    if task.status not in (Status.READY, Status.IN_PROGRESS):
        raise illegal(task, "in_progress")
    if task.reserved_for is not None and task.reserved_for_id != agent_id:
        raise conflict(
            f"{task.public_id} is reserved for {task.reserved_for.name}.",
            suggestion="Claim another one with claim_task, or ask for it with send_message_to_agent.",
        )
    if task.status == Status.READY and wip_is_full(phase=task.phase, project=task.project, now=now):
        raise conflict(
            "The column in progress is full.",
            suggestion="Finish or release a task first; get_kanban_board shows the limits.",
        )
    made = change(
        task,
        **leases.lease_fields(phase=task.phase, session=actor.session, now=now),
        status=Status.IN_PROGRESS,
        assigned_agent_id=agent_id,
        started_at=task.started_at or now,
        closed_with="",
    )
    Agent.objects.filter(pk=agent_id).update(phase=task.phase)
    activity.record(
        kind="task.claimed", project=task.project, actor=actor, task=task, before=made.before, after=made.after
    )
    return Claim(task)


@transaction.atomic
def release(
    *, project_id: int, task_id: str | int, actor: Actor, lease_token: str | None = None, reason: str = ""
) -> Moved:
    """Give a task in progress back: it is ready again for others. Its attempts stay as they are.

    Raises `conflict` where the caller does not hold it (people may always) or it is not in progress.
    """
    task = locked_task(project_id=project_id, task_id=task_id)
    if task.status != Status.IN_PROGRESS:
        raise illegal(task, "ready")
    check_right(task, actor=actor, lease_token=lease_token, now=timezone.now())
    return _back_to_work(task, actor=actor, reason=reason)


def _back_to_work(task: Task, *, actor: Actor, reason: str) -> Moved:
    made = change(task, **LET_GO, closed_with="", status=Status.PENDING, assigned_agent_id=None, ready_since=None)
    activity.record(
        kind="task.released",
        project=task.project,
        actor=actor,
        task=task,
        before=made.before,
        after=made.after | ({"reason": reason[:500]} if reason else {}),
    )
    readiness.refresh(task_ids=[task.pk], actor=actor)
    task.refresh_from_db(fields=["status", "version", "ready_since"])
    return Moved(task)


def current(*, agent_id: int, session: str) -> Task | None:
    """The task (agent, session) holds now, the newest where there are several."""
    return _own(agent_id=agent_id, session=session, now=timezone.now())


def _expire(*, now: datetime, phase_id: int | None = None, task_id: int | None = None) -> int:
    """Take tasks back from holders that fell silent, in a constant number of statements. Returns how many.

    The first expiries make a task ready again; after the configured number it has failed, for a person to look at.
    """
    silent = Task.objects.expired(now)
    if phase_id is not None:
        silent = silent.filter(phase_id=phase_id)
    if task_id is not None:
        silent = silent.filter(pk=task_id)
    if not silent.exists():
        return 0
    rows = list(
        silent.select_related("project")
        .select_for_update(skip_locked=connection.features.has_select_for_update_skip_locked, of=("self",))
        .order_by("pk")[:SWEEP_BATCH]
    )
    if not rows:
        return 0
    blocked = set(Task.objects.filter(open_blocker(), pk__in=[task.pk for task in rows]).values_list("pk", flat=True))
    limit = config.current().workflow.max_attempts
    groups: dict[Status, list[Task]] = {Status.READY: [], Status.PENDING: [], Status.FAILED: []}
    for task in rows:
        if task.attempts + 1 >= limit:
            groups[Status.FAILED].append(task)
        else:
            waits = task.pk in blocked or task.manual_block
            groups[Status.PENDING if waits else Status.READY].append(task)
    for status, tasks in groups.items():
        if tasks:
            kept = {} if status == Status.FAILED else {"assigned_agent": None}
            Task.objects.filter(pk__in=[task.pk for task in tasks]).update(
                **LET_GO,
                **kept,
                status=status,
                ready_since=now if status == Status.READY else None,
                attempts=F("attempts") + 1,
                version=F("version") + 1,
                updated_at=now,
            )
    activity.record_tasks(
        entries=[
            Entry(
                "task.failed" if status == Status.FAILED else "task.lease_expired",
                task,
                {"status": task.status, "version": task.version, "assigned_agent_id": task.assigned_agent_id},
                {"status": status.value, "version": task.version + 1, "attempts": task.attempts + 1},
            )
            for status, tasks in groups.items()
            for task in tasks
        ],
        actor=SYSTEM,
    )
    return len(rows)


@transaction.atomic
def sweep_expired_leases() -> int:
    """Tidy every expired lease (at most 500 at once). Returns how many there were."""
    return _expire(now=timezone.now())
