"""Making tasks and writing on them. Their movement through the states is in `transitions`, `claims` and `board`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from devflow.actors import Actor
from devflow.digits import whole
from devflow.errors import conflict, invalid, not_found
from workflow.models import (
    CLOSED,
    POSITION_GAP,
    Agent,
    Dependency,
    DoneDefinition,
    Evidence,
    Note,
    Priority,
    Project,
    Status,
    Task,
)
from workflow.services import activity, readiness
from workflow.services.dependencies import locked_blockers
from workflow.services.rows import change, check_version, locked_task, phase_numbered, task_number

MAX_SUBJECT = 255
MAX_TEXT = 100_000


@dataclass(frozen=True, slots=True)
class Proof:
    """Evidence for one done definition: `definition` is its number in the phase (from 1) or its text."""

    definition: int | str
    content: str
    kind: str = "text"


def subject_of(description: str) -> str:
    """The first line that says something, without Markdown's marks, cut at a word to 255 characters."""
    line = next((text for raw in description.splitlines() if (text := raw.strip().lstrip("#*->").strip())), "Untitled")
    return line if len(line) <= MAX_SUBJECT else line[: MAX_SUBJECT - 1].rsplit(" ", 1)[0] + "…"


def next_ref(project: Project) -> int:
    """The next number in the project's one count over every kind of work item. Serialises creations per project."""
    Project.objects.filter(pk=project.pk).update(next_ref=F("next_ref") + 1)
    return Project.objects.values_list("next_ref", flat=True).get(pk=project.pk) - 1


def _clean_tags(tags: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))


@transaction.atomic
def create(
    *,
    project_id: int,
    phase_number: int,
    description: str,
    actor: Actor,
    subject: str = "",
    priority: str = "medium",
    blocked_by: Sequence[str | int] = (),
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    parent: str | int | None = None,
    manual_block: str = "",
) -> Task:
    """Make a task; it is ready at once where nothing blocks it.

    Raises `not_found` for an unknown phase, blocker or parent, `invalid_input` for an empty or too long text.
    """
    if not description.strip():
        raise invalid("Say what has to be done.", description="is empty")
    if len(description) > MAX_TEXT:
        raise invalid(f"A description has at most {MAX_TEXT} characters.", description=f"{len(description)} given")
    phase = phase_numbered(project_id=project_id, number=phase_number)
    above = None
    if parent is not None:
        above = locked_task(project_id=project_id, task_id=parent)
    ref = next_ref(phase.project)
    blockers = locked_blockers(project_id=project_id, task_ids=blocked_by)
    is_free = not blockers and not manual_block and phase.entry_phase_id is None
    task = Task.objects.create(
        project=phase.project,
        phase=phase,
        status=Status.READY if is_free else Status.PENDING,
        ready_since=timezone.now() if is_free else None,
        ref=ref,
        subject=subject.strip()[:MAX_SUBJECT] or subject_of(description),
        description=description,
        priority=Priority.of(priority),
        tags=_clean_tags(tags),
        metadata=dict(metadata or {}),
        position=ref * POSITION_GAP,
        parent=above,
        manual_block=manual_block,
        created_by=actor.name,
        creator_agent_id=actor.agent_id,
        creator_user_id=actor.user_id,
    )
    if blockers:
        Dependency.objects.bulk_create(Dependency(task=task, blocker=blocker) for blocker in blockers)
    activity.record(
        kind="task.created",
        project=phase.project,
        actor=actor,
        task=task,
        after={
            "subject": task.subject,
            "phase": phase.number,
            "priority": task.priority_name,
            "blocked_by": [blocker.public_id for blocker in blockers],
            "status": task.status,
        },
    )
    if not is_free and readiness.refresh(task_ids=[task.pk], actor=actor):
        task.refresh_from_db(fields=["status", "ready_since", "version"])
    return task


@transaction.atomic
def edit(
    *,
    project_id: int,
    task_id: str | int,
    actor: Actor,
    version: int | None = None,
    subject: str | None = None,
    description: str | None = None,
    priority: str | None = None,
    tags: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    phase_number: int | None = None,
    boosted: bool | None = None,
) -> Task:
    """Change what a task says. `version` is the one the change was decided on.

    Raises `conflict` when the task changed since that version, or when a held task would change its phase.
    """
    task = locked_task(project_id=project_id, task_id=task_id)
    check_version(task, version)
    fields: dict[str, Any] = {}
    if subject is not None:
        if not subject.strip():
            raise invalid("A task needs a subject.", subject="is empty")
        fields["subject"] = subject.strip()[:MAX_SUBJECT]
    if description is not None:
        if not description.strip() or len(description) > MAX_TEXT:
            raise invalid(f"A description has 1 to {MAX_TEXT} characters.", description=f"{len(description)} given")
        fields["description"] = description
    if priority is not None:
        fields["priority"] = Priority.of(priority)
    if tags is not None:
        fields["tags"] = _clean_tags(tags)
    if metadata is not None:
        fields["metadata"] = {**task.metadata, **metadata}
    if boosted is not None:
        fields["boosted"] = boosted
    left = task.phase
    if phase_number is not None and phase_number != left.number:
        if task.lease_token is not None:
            raise conflict(f"{task.public_id} is claimed; release it before it changes its phase.")
        fields["phase"] = phase_numbered(project_id=project_id, number=phase_number)
    made = change(task, **{name: value for name, value in fields.items() if name != "phase"})
    if "phase" in fields:
        task.phase = fields["phase"]
        task.save(update_fields=["phase"])
        made.before["phase"], made.after["phase"] = left.number, task.phase.number
    activity.record(
        kind="task.edited",
        project=task.project,
        actor=actor,
        task=task,
        before=made.before,
        after=made.after,
    )
    if "phase" in fields:
        readiness.refresh(task_ids=[task.pk], actor=actor)
        if task.status == Status.DONE:
            readiness.entry_changed(phase=left, actor=actor)
            readiness.entry_changed(phase=task.phase, actor=actor)
        task.refresh_from_db(fields=["status", "version", "ready_since"])
    return task


@transaction.atomic
def reserve(*, project_id: int, task_id: str | int, agent: str, actor: Actor, version: int | None = None) -> Task:
    """Let only one agent (by name) claim a task, or everybody again (an empty name).

    Raises `not_found` for an agent this project does not have, `conflict` for a closed or claimed task.
    """
    task = locked_task(project_id=project_id, task_id=task_id)
    check_version(task, version)
    if task.status in CLOSED or task.lease_token is not None:
        raise conflict(
            f"{task.public_id} is {task.status.replace('_', ' ')}; only an open, unclaimed task waits for somebody."
        )
    chosen = None
    if agent:
        chosen = Agent.objects.filter(project_id=project_id, name=agent, retired_at=None).first()
        if chosen is None:
            raise not_found("Agent", agent, suggestion="The agents page lists those of this project.")
    if task.reserved_for_id == (chosen.pk if chosen else None):
        return task
    made = change(task, reserved_for_id=chosen.pk if chosen else None)
    activity.record(
        kind="task.reserved" if chosen else "task.unreserved",
        project=task.project,
        actor=actor,
        task=task,
        before=made.before,
        after=made.after,
    )
    return task


@transaction.atomic
def hold_back(*, project_id: int, task_id: str | int, reason: str, actor: Actor, version: int | None = None) -> Task:
    """Block a task by hand (`reason`), or let it go on (an empty reason). Raises `conflict` for a closed task."""
    task = locked_task(project_id=project_id, task_id=task_id)
    check_version(task, version)
    if task.status in CLOSED:
        raise conflict(f"{task.public_id} is {task.status}; only an open task can be blocked.")
    fields: dict[str, Any] = {"manual_block": reason.strip()[:500]}
    if fields["manual_block"] and task.status == Status.READY:
        fields |= {"status": Status.PENDING, "ready_since": None}
    made = change(task, **fields)
    activity.record(
        kind="task.blocked" if task.manual_block else "task.unblocked",
        project=task.project,
        actor=actor,
        task=task,
        before=made.before,
        after=made.after,
    )
    if readiness.refresh(task_ids=[task.pk], actor=actor):
        task.refresh_from_db(fields=["status", "version", "ready_since"])
    return task


@transaction.atomic
def add_note(*, project_id: int, task_id: str | int, body: str, actor: Actor, kind: str = "note") -> Note:
    """Write a comment on a task. Raises `not_found`, `invalid_input` for an empty one."""
    if not body.strip():
        raise invalid("A note says something.", note="is empty")
    try:
        task = Task.objects.select_related("project").get(project_id=project_id, pk=task_number(task_id))
    except Task.DoesNotExist:
        locked_task(project_id=project_id, task_id=task_id)  # raises the one not_found there is
        raise
    note = Note.objects.create(task=task, kind=kind, body=body, actor_kind=actor.kind, actor_name=actor.name)
    activity.record(
        kind="task.noted",
        project=task.project,
        actor=actor,
        task=task,
        after={"note": note.pk, "kind": kind, "text": body[:200]},
    )
    return note


def attach(*, task: Task, proofs: Sequence[Proof], actor: Actor) -> None:
    """Tick done definitions of a locked task's phase; a second proof of one replaces the first.

    Raises `invalid_input` naming the definitions there are.
    """
    if not proofs:
        return
    definitions = list(DoneDefinition.objects.filter(phase_id=task.phase_id))
    by_text = {definition.text.strip().lower(): definition for definition in definitions}
    ticked: dict[int, Proof] = {}
    for proof in proofs:
        named = proof.definition
        if isinstance(named, str) and (number := whole(named)) is not None:
            named = number
        found = (
            (definitions[named - 1] if 1 <= named <= len(definitions) else None)
            if isinstance(named, int)
            else by_text.get(named.strip().lower())
        )
        if found is None or not proof.content.strip():
            listed = "; ".join(f"{number}. {item.text}" for number, item in enumerate(definitions, 1)) or "none"
            raise invalid(
                f"Evidence names a done definition of its phase and says something. They are: {listed}.",
                evidence=f"{named!r} is not one of them" if found is None else f"{named!r} has no content",
            )
        ticked[found.pk] = proof
    Evidence.objects.bulk_create(
        [
            Evidence(
                task=task,
                definition_id=pk,
                kind=proof.kind,
                content=proof.content,
                actor_kind=actor.kind,
                actor_name=actor.name,
            )
            for pk, proof in ticked.items()
        ],
        update_conflicts=True,
        unique_fields=["task", "definition"],
        update_fields=["kind", "content", "actor_kind", "actor_name", "created_at"],
    )
    activity.record(
        kind="task.evidence",
        project=task.project,
        actor=actor,
        task=task,
        after={"definitions": [item.text for item in definitions if item.pk in ticked]},
    )


@transaction.atomic
def add_evidence(*, project_id: int, task_id: str | int, proofs: Sequence[Proof], actor: Actor) -> Task:
    """Tick done definitions of a task with evidence. Raises `not_found`, `invalid_input`."""
    task = locked_task(project_id=project_id, task_id=task_id)
    attach(task=task, proofs=proofs, actor=actor)
    return task


def missing_evidence(task: Task) -> list[str]:
    """The done definitions of the task's phase that nothing shows yet."""
    return list(
        DoneDefinition.objects.filter(phase_id=task.phase_id)
        .exclude(evidence__task=task)
        .values_list("text", flat=True)
    )
