"""The rows of what was brought in, written in bulk inside the caller's transaction. All of it was checked before."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from django.utils import timezone

from devflow.actors import Actor
from workflow.models import (
    POSITION_GAP,
    Agent,
    Dependency,
    DoneDefinition,
    Event,
    Evidence,
    Note,
    Phase,
    Priority,
    Project,
    Status,
    Task,
)
from workflow.services import activity
from workflow.services.activity import Entry
from workflow.services.transfer.exporting import taken
from workflow.services.transfer.formats import EventRow, PhaseRow, ProjectFile, TaskRow

BATCH = 500
OPEN = (Status.PENDING, Status.READY, Status.IN_PROGRESS)
"""Statuses that are found anew: nobody holds a task that has just arrived, and what it waits for may be done."""


def phases(project: Project, rows: Sequence[PhaseRow]) -> dict[int, Phase]:
    """The phases by number, with their done definitions and entry rules."""
    fields = [name for name in PhaseRow.model_fields if name not in ("done_definitions", "entry")]
    made = Phase.objects.bulk_create(
        Phase(
            project=project,
            **{name: getattr(row, name) for name in fields},
            entry_done_tasks=row.entry.done_tasks if row.entry else 1,
        )
        for row in rows
    )
    by_number = {phase.number: phase for phase in made}
    DoneDefinition.objects.bulk_create(
        DoneDefinition(phase=by_number[row.number], position=position, text=text)
        for row in rows
        for position, text in enumerate(row.done_definitions, 1)
    )
    for row in rows:
        if row.entry is not None:
            phase = by_number[row.number]
            phase.entry_phase = by_number[row.entry.phase]
            phase.save(update_fields=["entry_phase"])
    return by_number


def agents(project: Project, file: ProjectFile) -> dict[str, Agent]:
    """All who are named anywhere in the file, by name: retired, for none of them has called here."""
    now = timezone.now()
    listed = {agent.name: agent for agent in file.agents}
    named = [*listed, *(task.assigned_agent for task in file.tasks), *(event.agent for event in file.events)]
    made = []
    for name in dict.fromkeys(name for name in named if name is not None):
        row = listed.get(name)
        seen = (row.last_seen if row else None) or now
        started = (row.started_at if row else None) or seen
        made.append(
            Agent(
                project=project,
                name=name,
                client=row.client if row else "",
                started_at=started,
                last_seen=seen,
                last_progress_at=seen,
                retired_at=now,
            )
        )
    return {agent.name: agent for agent in Agent.objects.bulk_create(made, batch_size=BATCH)}


def tasks(
    project: Project,
    rows: Sequence[TaskRow],
    *,
    phases: Mapping[int, Phase],
    agents: Mapping[str, Agent],
    actor: Actor,
    done_before: Mapping[int, int] | None = None,
    offset: int = 0,
) -> dict[int, Task]:
    """The tasks by their ref in `rows`, with dependencies, notes and evidence.

    `offset` is added to every ref. `done_before`: done tasks the project has already, by phase number.
    """
    now = timezone.now()
    status = _statuses(rows, phases=phases, done_before=done_before or {})
    made: dict[int, Task] = {}
    for level in _levels(rows):
        fresh = [
            Task(
                project=project,
                phase=phases[row.phase],
                ref=row.ref + offset,
                subject=row.subject,
                description=row.description,
                status=status[row.ref],
                priority=Priority.of(row.priority),
                boosted=row.boosted,
                tags=list(dict.fromkeys(row.tags)),
                metadata=row.metadata,
                position=(row.ref + offset) * POSITION_GAP if row.position is None else row.position,
                parent=made[row.parent] if row.parent is not None else None,
                manual_block=row.manual_block,
                created_by=row.created_by or actor.name,
                creator_user_id=None if row.created_by else actor.user_id,
                assigned_agent=None if row.status in OPEN else agents.get(row.assigned_agent or ""),
                result=row.result,
                attempts=row.attempts,
                iteration=row.iteration,
                created_at=row.created_at or now,
                updated_at=row.updated_at or row.created_at or now,
                ready_since=row.ready_since or (now if status[row.ref] == Status.READY else None),
                started_at=row.started_at,
                completed_at=row.completed_at or ((row.updated_at or now) if status[row.ref] == Status.DONE else None),
            )
            for row in level
        ]
        for row, task in zip(level, Task.objects.bulk_create(fresh, batch_size=BATCH), strict=True):
            made[row.ref] = task
    _beside(rows, made, phases=phases)
    return made


def _levels(rows: Sequence[TaskRow]) -> Iterable[list[TaskRow]]:
    """Rows whose parents are in a level before theirs."""
    children: dict[int | None, list[TaskRow]] = {}
    for row in rows:
        children.setdefault(row.parent, []).append(row)
    level = children.get(None, [])
    while level:
        yield level
        level = [child for row in level for child in children.get(row.ref, ())]


def _statuses(
    rows: Sequence[TaskRow], *, phases: Mapping[int, Phase], done_before: Mapping[int, int]
) -> dict[int, Status]:
    """The status of each task here: open ones are ready where nothing blocks them and their phase may be entered."""
    done = {row.ref for row in rows if row.status == Status.DONE}
    count = Counter(row.phase for row in rows if row.status == Status.DONE)
    entered = {
        number: phase.entry_phase is None
        or count[phase.entry_phase.number] + done_before.get(phase.entry_phase.number, 0) >= phase.entry_done_tasks
        for number, phase in phases.items()
    }
    found = {}
    for row in rows:
        free = not row.manual_block and entered[row.phase] and done.issuperset(row.blocked_by)
        found[row.ref] = row.status if row.status not in OPEN else Status.READY if free else Status.PENDING
    return found


def _beside(rows: Sequence[TaskRow], made: Mapping[int, Task], *, phases: Mapping[int, Phase]) -> None:
    """What is written beside the tasks: dependencies, notes, evidence."""
    now = timezone.now()
    Dependency.objects.bulk_create(
        (Dependency(task=made[row.ref], blocker=made[ref]) for row in rows for ref in dict.fromkeys(row.blocked_by)),
        batch_size=BATCH,
    )
    Note.objects.bulk_create(
        (
            Note(task=made[row.ref], **note.model_dump(exclude={"created_at"}), created_at=note.created_at or now)
            for row in rows
            for note in row.notes
        ),
        batch_size=BATCH,
    )
    if not any(row.evidence for row in rows):
        return
    definitions = {
        (item.phase_id, item.text): item
        for item in DoneDefinition.objects.filter(phase__in=[phase.pk for phase in phases.values()])
    }
    Evidence.objects.bulk_create(
        (
            Evidence(
                task=made[row.ref],
                definition=definitions[phases[proof.phase or row.phase].pk, proof.definition],
                **proof.model_dump(exclude={"definition", "phase", "created_at"}),
                created_at=proof.created_at or now,
            )
            for row in rows
            for proof in row.evidence
        ),
        batch_size=BATCH,
    )


def events(
    project: Project,
    rows: Sequence[EventRow],
    *,
    phases: Mapping[int, Phase],
    agents: Mapping[str, Agent],
    tasks: Mapping[int, Task],
) -> None:
    """The history of the project. Listeners are not told: all of it was long ago."""
    Event.objects.bulk_create(
        (
            Event(
                project=project,
                kind=row.kind,
                actor_kind=row.actor_kind,
                actor_name=row.actor_name,
                tool=row.tool,
                agent=agents[row.agent] if row.agent else None,
                task=tasks[row.task] if row.task else None,
                phase=phases[row.phase] if row.phase else None,
                before=taken(row.before),
                after=taken(row.after),
                at=row.at,
            )
            for row in rows
        ),
        batch_size=BATCH,
    )


def log_made(made: Collection[Task], *, actor: Actor) -> None:
    """A line of the log for each task that was brought in without a history of its own."""
    activity.record_tasks(
        entries=[
            Entry(
                "task.created",
                task,
                after={
                    "subject": task.subject,
                    "phase": task.phase.number,
                    "priority": task.priority_name,
                    "status": str(task.status),
                    "imported": True,
                },
            )
            for task in made
        ],
        actor=actor,
    )
