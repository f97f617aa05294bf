"""Tools for the life of a task: create, claim, note, update, release, review, undo."""

from typing import Annotated, Literal

from pydantic import Field

from devflow import ports
from devflow.errors import DevFlowError
from mcpbridge.tooling import (
    Caller,
    Effect,
    Intent,
    JsonObject,
    Nothing,
    OptionalText,
    PhaseNumber,
    Priority,
    Result,
    ShortText,
    Tags,
    TaskId,
    tool,
)
from workflow.models import Note, Task
from workflow.selectors import agents as agent_selectors
from workflow.selectors import tasks as task_selectors
from workflow.selectors.board import COLUMN_OF
from workflow.services import board, claims, tasks, transitions
from workflow.services.transitions import Moved
from workflow.tools.context import note_scope
from workflow.tools.results import (
    EvidenceItem,
    LeaseToken,
    Prose,
    TaskCreated,
    TaskDetails,
    TaskUpdated,
    iso,
    task_details,
)

RELATED = 3
RECENT_NOTES = 20
SHOWN_MESSAGES = 20

WHY_NOTHING = {
    "none_ready": "Nothing waits in this phase. Look at get_kanban_board, or create what is needed.",
    "all_blocked": "Every waiting task here waits for another. get_tasks(status='blocked') says for what.",
    "wip_full": "As many tasks are in progress as may be. Finish or release one, or help with a review.",
}


class NoteAdded(Result):
    task_id: str
    note_id: int
    created_at: str


def _updated(moved: Moved, *, lease: bool = False) -> TaskUpdated:
    task = moved.task
    return TaskUpdated(
        task_id=task.public_id,
        status=task.status,
        completed_at=iso(task.completed_at) if task.status == "done" else None,
        unblocked_tasks=moved.unblocked_ids,
        version=task.version,
        lease_token=task.lease_token if lease else None,
        lease_expires_at=iso(task.lease_expires_at) if lease else None,
    )


def _with_memories(caller: Caller, answer: TaskDetails | Nothing) -> TaskDetails | Nothing:
    """Add what is remembered of this kind of work. Looking for it takes longer than the claim itself."""
    if isinstance(answer, Nothing):
        return answer
    about = f"{answer.subject}\n{answer.description}"[:2000]
    try:
        memories = ports.recall().related(caller.project.id, about, limit=RELATED)
    except DevFlowError:
        return answer  # a task is worth having without its memories
    return answer.model_copy(update={"memories": list(memories)})


def _details(caller: Caller, task: Task, *, resumed: bool) -> TaskDetails:
    agent_id = caller.agent.id
    notes = list(Note.objects.filter(task=task).order_by("-pk")[:RECENT_NOTES])[::-1]
    return task_details(
        task,
        resumed=resumed,
        definitions=list(task.phase.done_definitions.order_by("position", "pk").values_list("text", flat=True)),
        missing=tasks.missing_evidence(task) if task.phase.requires_evidence else [],
        notes=notes,
        messages=list(agent_selectors.inbox(agent_id=agent_id)[:SHOWN_MESSAGES])
        if agent_selectors.unread(agent_id=agent_id)
        else [],
    )


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="workflow")
def create_task(
    caller: Caller,
    *,
    description: Prose,
    phase_id: PhaseNumber,
    priority: Priority = "medium",
    blocked_by: Annotated[list[TaskId], Field(max_length=200)] = [],  # noqa: B006  # pydantic copies defaults
    tags: Tags = [],  # noqa: B006  # pydantic copies defaults
    metadata: JsonObject | None = None,
    subject: ShortText | None = None,
    parent: TaskId | None = None,
) -> TaskCreated:
    """Create a task in any phase, as soon as you discover work that is not part of the task you hold.

    Investigation goes to the analysis phase, building to the implementation phase, checking to the validation phase;
    get_phase_info describes each. Write the description so that an agent who knows nothing of your work can start:
    what to do, where, and how to tell that it is done. It is ready at once unless blocked_by names open tasks.

    Args:
        description: What has to be done, in full. The first line is shown as the subject.
        phase_id: The number of the phase it belongs to (1, 2, 3 ...).
        priority: How soon it is claimed among the ready tasks of its phase.
        blocked_by: Ids of tasks that must be done first.
        tags: Words to find it by.
        metadata: Anything else that belongs to it, as an object.
        subject: A title of its own instead of the description's first line.
        parent: The task this one was split off from.
    """
    task = tasks.create(
        project_id=caller.project.id,
        phase_number=phase_id,
        description=description,
        subject=subject or "",
        priority=priority,
        blocked_by=blocked_by,
        tags=tags,
        metadata=metadata,
        parent=parent,
        actor=caller.writer("create_task"),
    )
    return TaskCreated(
        task_id=task.public_id,
        status=task.status,
        kanban_column=COLUMN_OF[task.status],
        subject=task.subject,
        blocked_by=[blocker.public_id for blocker in task_selectors.open_blockers([task.pk]).get(task.pk, ())],
    )


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="workflow")
def update_task_status(
    caller: Caller,
    *,
    task_id: TaskId,
    status: Literal["in_progress", "done", "failed"],
    result: OptionalText | None = None,
    metadata: JsonObject | None = None,
    lease_token: LeaseToken | None = None,
    evidence: Annotated[list[EvidenceItem], Field(max_length=100)] = [],  # noqa: B006  # pydantic copies defaults
) -> TaskUpdated:
    """Move your task on. Call it with `done` when every requirement is met: others wait for it.

    `done` closes the task, or hands it to review where that is required; `unblocked_tasks` are the ones you made
    ready. `failed` says that you cannot do it: put the reason into result. `in_progress` claims exactly this task.
    Next: claim_task gives you another one.

    Args:
        task_id: The task to update.
        status: in_progress claims it, done finishes it, failed gives it up.
        result: What was accomplished, or why it failed. Whoever works on it next reads this.
        metadata: Facts to add to the task's metadata.
        lease_token: The token claim_task gave you; needed only from another session than the one that claimed.
        evidence: What shows that the phase's done definitions are met, where the phase requires it.
    """
    actor = caller.writer("update_task_status")
    project_id = caller.project.id
    if status == "in_progress":
        claim = claims.start(project_id=project_id, task_id=task_id, actor=actor, lease_token=lease_token)
        if claim.task is None:
            raise RuntimeError("a start gives a task or an error")
        return _updated(Moved(claim.task), lease=True)
    if status == "failed":
        moved = transitions.fail(
            project_id=project_id,
            task_id=task_id,
            actor=actor,
            result=result,
            metadata=metadata,
            lease_token=lease_token,
        )
    else:
        moved = transitions.finish(
            project_id=project_id,
            task_id=task_id,
            actor=actor,
            result=result,
            metadata=metadata,
            lease_token=lease_token,
            evidence=[item.proof() for item in evidence],
        )
    note_scope(caller, moved.task)
    return _updated(moved)


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="workflow", finish=_with_memories)
def claim_task(caller: Caller, *, phase_id: PhaseNumber) -> TaskDetails | Nothing:
    """Claim the next available task of your phase. It is yours alone until you close or release it, or fall silent.

    Asking again gives the same task with `resumed: true`. Read done_definitions and notes first, work, call
    add_task_note on the way, and end with update_task_status. Without a task the answer says why.

    Args:
        phase_id: The number of your phase.
    """
    claim = claims.claim(project_id=caller.project.id, phase_number=phase_id, actor=caller.writer("claim_task"))
    if claim.task is None:
        reason = claim.reason or "none_ready"
        return Nothing(reason=reason, advice=WHY_NOTHING[reason])
    return _details(caller, claim.task, resumed=claim.resumed)


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="workflow")
def get_my_task(caller: Caller) -> TaskDetails | Nothing:
    """Show the task you hold, with its lease, notes and done definitions. Call it when you lost your thread.

    Without one: claim_task gets you the next.
    """
    task = claims.current(agent_id=caller.agent.id, session=caller.kept_session)
    if task is None:
        return Nothing(reason="no_task", advice="You hold no task. Call claim_task with your phase.")
    return _with_memories(caller, _details(caller, task, resumed=True))


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="workflow")
def release_task(
    caller: Caller, *, task_id: TaskId, reason: Prose | None = None, lease_token: LeaseToken | None = None
) -> TaskUpdated:
    """Give a task back that you will not finish, so that another agent can take it at once.

    Say in reason how far you came; it is kept as a hand-over note. For work that cannot be done by anybody, use
    update_task_status with `failed` instead.

    Args:
        task_id: The task you hold.
        reason: Where it stands and what is left, for whoever takes it.
        lease_token: The token claim_task gave you; needed only from another session.
    """
    actor = caller.writer("release_task")
    project_id = caller.project.id
    moved = claims.release(
        project_id=project_id, task_id=task_id, actor=actor, lease_token=lease_token, reason=reason or ""
    )
    if reason:
        tasks.add_note(project_id=project_id, task_id=task_id, body=reason, actor=actor, kind="handover")
    return _updated(moved)


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="workflow")
def add_task_note(caller: Caller, *, task_id: TaskId, note: Prose) -> NoteAdded:
    """Write on a task what you found, decided or tried. People watch these, and the next agent starts from them.

    Args:
        task_id: The task, yours or another.
        note: The note; Markdown is shown as such.
    """
    actor = caller.writer("add_task_note")
    added = tasks.add_note(project_id=caller.project.id, task_id=task_id, body=note, actor=actor)
    note_scope(caller, added.task)
    return NoteAdded(task_id=added.task.public_id, note_id=added.pk, created_at=added.created_at.isoformat())


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="workflow")
def review_task(
    caller: Caller, *, task_id: TaskId, decision: Literal["approve", "reject"], feedback: Prose | None = None
) -> TaskUpdated:
    """Decide on a task in review. Compare its result and evidence with the done definitions first.

    `approve` makes it done and its dependents ready. `reject` sends it back to its agent with your feedback, one
    iteration on. get_tasks(status="review") lists what waits.

    Args:
        task_id: The task in review.
        decision: approve or reject.
        feedback: What is good, or what has to change; required to reject.
    """
    moved = transitions.review(
        project_id=caller.project.id,
        task_id=task_id,
        decision=decision,
        feedback=feedback or "",
        actor=caller.writer("review_task"),
    )
    return _updated(moved)


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="workflow")
def undo_move(caller: Caller, *, task_id: TaskId) -> TaskUpdated:
    """Take back the last move you made with a task: a status you set by mistake, a claim you did not want.

    It works as long as nobody changed the task since. Tasks that the move made ready wait again.

    Args:
        task_id: The task you moved.
    """
    moved = board.undo_last_move(project_id=caller.project.id, task_id=task_id, actor=caller.writer("undo_move"))
    own = (moved.task.assigned_agent_id, moved.task.lease_session) == (caller.agent.id, caller.kept_session)
    return _updated(moved, lease=own)
