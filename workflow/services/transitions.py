"""The state machine: finishing, failing, reviewing, retrying and cancelling a task.

pending <-> ready is automatic (`readiness`); ready -> in_progress is a claim (`claims`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db import transaction
from django.utils import timezone

from devflow.actors import Actor
from devflow.errors import DevFlowError, ErrorCode, conflict, invalid
from workflow.models import Agent, Message, Note, Phase, Status, Task
from workflow.services import activity, leases, messages, readiness
from workflow.services.rows import LET_GO, change, check_version, locked_project, locked_task
from workflow.services.tasks import Proof, attach, missing_evidence

WAYS: Mapping[str, Mapping[str, str]] = {
    Status.PENDING: {"ready": "by itself, once nothing blocks it", "cancelled": "cancel"},
    Status.READY: {"in_progress": "claim it", "cancelled": "cancel"},
    Status.IN_PROGRESS: {
        "done": "finish it",
        "review": "finish it where a review is required",
        "failed": "give up",
        "ready": "release it",
        "cancelled": "cancel",
    },
    Status.REVIEW: {"done": "approve it", "in_progress": "reject it with feedback", "cancelled": "cancel"},
    Status.FAILED: {"ready": "retry it", "cancelled": "cancel"},
    Status.DONE: {},
    Status.CANCELLED: {},
}
"""Where a task can go from each status, and what takes it there."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A task after its transition, with the primary keys of the tasks this made ready."""

    task: Task
    unblocked: tuple[int, ...] = ()

    @property
    def unblocked_ids(self) -> list[str]:
        return [f"task-{pk}" for pk in self.unblocked]


def illegal(task: Task, wanted: str, why: str = "") -> DevFlowError:
    """A `conflict` that names the moves there are."""
    ways = WAYS[task.status]
    listed = ", ".join(f"{status} ({how})" for status, how in ways.items())
    return conflict(
        f"{task.public_id} is {task.status} and cannot become {wanted}{': ' + why if why else '.'}",
        suggestion=f"From {task.status} it can go to: {listed}."
        if listed
        else f"{task.status} is final; undo the move.",
        status=task.status,
        allowed=list(ways),
    )


def blocked_by(task: Task) -> list[str]:
    """What keeps a task waiting, in words: open blockers with their status, then the manual block."""
    open_ones = task.blockers.exclude(status=Status.DONE).order_by("pk").values_list("pk", "status")
    reasons = [f"task-{pk} ({status})" for pk, status in open_ones]
    return reasons + ([task.manual_block] if task.manual_block else [])


def check_right(task: Task, *, actor: Actor, lease_token: str | None, now: datetime) -> None:
    """Refuse a change by somebody who neither holds the task, nor has its lease, nor made it and finds it unclaimed.

    People and the system may. Raises `conflict`.
    """
    if lease_token is not None:
        if task.is_held(now) and task.lease_token == lease_token:
            return
        raise conflict(
            f"That lease on {task.public_id} is not valid any more; nothing was changed.",
            suggestion="Somebody else may work on it by now. Call claim_task for your next task.",
        )
    if not actor.is_agent:
        return
    if task.is_held(now):
        if (task.assigned_agent_id, task.lease_session) == (actor.agent_id, actor.session):
            return
        holder = task.assigned_agent.name if task.assigned_agent else "somebody"
        raise conflict(
            f"{task.public_id} is claimed by {holder}.",
            suggestion="Send its lease_token if the claim is yours, or write to its holder with send_message_to_agent.",
        )
    if task.has_expired(now):
        raise conflict(
            f"The lease on {task.public_id} expired; nothing was changed.",
            suggestion="Call claim_task to get it again, if nobody else has it by then.",
        )
    if task.creator_agent_id != actor.agent_id or actor.agent_id is None:
        raise conflict(
            f"{task.public_id} is not yours to close: nobody has claimed it.",
            suggestion="Claim it first, with claim_task or update_task_status(status='in_progress').",
        )


def needs_review(task: Task) -> bool:
    return task.phase.requires_review or task.project.require_review


def _closing_lock(*, project_id: int, task_id: str | int) -> Task:
    """Lock a task that may become done. Where phases open others, the project is locked first: one lock order."""
    if Phase.objects.filter(project_id=project_id, entry_phase__isnull=False).exists():
        locked_project(project_id)
    return locked_task(project_id=project_id, task_id=task_id)


@transaction.atomic
def finish(
    *,
    project_id: int,
    task_id: str | int,
    actor: Actor,
    result: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    lease_token: str | None = None,
    evidence: Sequence[Proof] = (),
    version: int | None = None,
) -> Moved:
    """The work is done: the task becomes `done`, or `review` where its phase or project asks for one.

    Finishing again what the same actor finished under the same lease changes nothing. Raises `conflict` for a task
    of somebody else, a stale lease, a blocked task or an illegal move, `precondition_failed` listing the done
    definitions that still lack evidence.
    """
    task = _closing_lock(project_id=project_id, task_id=task_id)
    check_version(task, version)
    now = timezone.now()
    if task.status in (Status.DONE, Status.REVIEW) and actor.is_agent and task.assigned_agent_id == actor.agent_id:
        if lease_token is None or lease_token == task.closed_with:
            return Moved(task)
        raise conflict(f"That lease on {task.public_id} is not valid any more; it is {task.status} already.")
    check_right(task, actor=actor, lease_token=lease_token, now=now)
    if task.status in (Status.PENDING, Status.READY):
        made_it = (actor.agent_id is not None and task.creator_agent_id == actor.agent_id) or (
            actor.user_id is not None and task.creator_user_id == actor.user_id
        )
        if reasons := blocked_by(task):
            raise illegal(task, "done", f"it waits for {', '.join(reasons)}.")
        if not made_it or task.status == Status.PENDING:
            raise illegal(task, "done")
    elif task.status != Status.IN_PROGRESS:
        raise illegal(task, "done")
    attach(task=task, proofs=evidence, actor=actor)
    if task.phase.requires_evidence and (missing := missing_evidence(task)):
        raise DevFlowError(
            ErrorCode.PRECONDITION_FAILED,
            f"{task.public_id} still needs evidence for: {'; '.join(missing)}.",
            details={"missing": missing},
            suggestion="Call update_task_status again with `evidence` for each of them.",
        )
    if needs_review(task):
        return _to_review(task, actor=actor, result=result, metadata=metadata, now=now)
    return _to_done(task, actor=actor, result=result, metadata=metadata, now=now, kind="task.done")


def _closing_fields(
    task: Task, *, actor: Actor, result: str | None, metadata: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        **LET_GO,
        "closed_with": task.lease_token or "",
        "assigned_agent_id": task.assigned_agent_id or actor.agent_id,
        "result": task.result if result is None else result,
        "metadata": {**task.metadata, **(metadata or {})},
    }


def _to_done(
    task: Task, *, actor: Actor, result: str | None, metadata: Mapping[str, Any] | None, now: datetime, kind: str
) -> Moved:
    made = change(
        task,
        **_closing_fields(task, actor=actor, result=result, metadata=metadata),
        status=Status.DONE,
        completed_at=now,
    )
    activity.record(kind=kind, project=task.project, actor=actor, task=task, before=made.before, after=made.after)
    return Moved(task, tuple(readiness.task_closed(task=task, actor=actor)))


def _to_review(
    task: Task, *, actor: Actor, result: str | None, metadata: Mapping[str, Any] | None, now: datetime
) -> Moved:
    made = change(task, **_closing_fields(task, actor=actor, result=result, metadata=metadata), status=Status.REVIEW)
    activity.record(
        kind="task.submitted", project=task.project, actor=actor, task=task, before=made.before, after=made.after
    )
    return Moved(task)


@transaction.atomic
def fail(
    *,
    project_id: int,
    task_id: str | int,
    actor: Actor,
    result: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    lease_token: str | None = None,
) -> Moved:
    """Give up a task in progress; it waits in review for somebody to retry or cancel it, and unblocks nothing.

    Raises `conflict` as `finish` does.
    """
    task = locked_task(project_id=project_id, task_id=task_id)
    if task.status == Status.FAILED and actor.is_agent and task.assigned_agent_id == actor.agent_id:
        if lease_token is None or lease_token == task.closed_with:
            return Moved(task)
        raise conflict(f"That lease on {task.public_id} is not valid any more; it has failed already.")
    check_right(task, actor=actor, lease_token=lease_token, now=timezone.now())
    if task.status != Status.IN_PROGRESS:
        raise illegal(task, "failed")
    made = change(task, **_closing_fields(task, actor=actor, result=result, metadata=metadata), status=Status.FAILED)
    activity.record(
        kind="task.failed", project=task.project, actor=actor, task=task, before=made.before, after=made.after
    )
    return Moved(task)


@transaction.atomic
def review(
    *,
    project_id: int,
    task_id: str | int,
    decision: Literal["approve", "reject"],
    actor: Actor,
    feedback: str = "",
    version: int | None = None,
) -> Moved:
    """Decide on a task in review: approve makes it done; reject sends it back with feedback, one iteration on.

    A rejected task is in progress again under a fresh lease of its last agent, who gets the feedback as a message;
    where that agent has gone, the lease runs out and the task is ready for others. Raises `conflict` where it is not
    in review, `invalid_input` for a rejection without feedback.
    """
    task = _closing_lock(project_id=project_id, task_id=task_id)
    check_version(task, version)
    if task.status != Status.REVIEW:
        raise illegal(task, "approved" if decision == "approve" else "rejected", "it is not in review.")
    if decision == "reject" and not feedback.strip():
        raise invalid("Say what has to change.", feedback="is required to reject")
    now = timezone.now()
    if feedback.strip():
        Note.objects.create(
            task=task, kind=Note.Kind.FEEDBACK, body=feedback, actor_kind=actor.kind, actor_name=actor.name
        )
    if decision == "approve":
        return _to_done(task, actor=actor, result=None, metadata=None, now=now, kind="task.approved")
    agent = task.assigned_agent
    lease = (
        LET_GO
        if agent is None or agent.retired_at is not None
        else leases.lease_fields(phase=task.phase, session=agent.session, now=now)
    )
    made = change(task, **lease, closed_with="", status=Status.IN_PROGRESS, iteration=task.iteration + 1)
    activity.record(
        kind="task.rejected",
        project=task.project,
        actor=actor,
        task=task,
        before=made.before,
        after=made.after | {"feedback": feedback[:200]},
    )
    tell_agent(
        task,
        actor=actor,
        body=f"{task.public_id} came back from review (iteration {task.iteration}): {feedback}\n"
        "It is yours again: get_my_task shows it, update_task_status closes it when the feedback is met.",
    )
    return Moved(task)


@transaction.atomic
def retry(*, project_id: int, task_id: str | int, actor: Actor, version: int | None = None) -> Moved:
    """Put a failed task back to work; its attempts count anew. Raises `conflict` unless it has failed."""
    task = locked_task(project_id=project_id, task_id=task_id)
    check_version(task, version)
    if task.status != Status.FAILED:
        raise illegal(task, "ready")
    made = change(
        task,
        **LET_GO,
        status=Status.PENDING,
        attempts=0,
        assigned_agent_id=None,
        completed_at=None,
        closed_with="",
        iteration=task.iteration + 1,
    )
    activity.record(
        kind="task.retried", project=task.project, actor=actor, task=task, before=made.before, after=made.after
    )
    readiness.refresh(task_ids=[task.pk], actor=actor)
    task.refresh_from_db(fields=["status", "version", "ready_since"])
    return Moved(task)


@transaction.atomic
def cancel(*, project_id: int, task_id: str | int, actor: Actor, reason: str = "", version: int | None = None) -> Moved:
    """Call an open task off. It unblocks nothing: what waits for it shows why. Raises `conflict` for a closed one."""
    task = locked_task(project_id=project_id, task_id=task_id)
    check_version(task, version)
    if task.status == Status.CANCELLED:
        return Moved(task)
    if "cancelled" not in WAYS[task.status]:
        raise illegal(task, "cancelled")
    check_right(task, actor=actor, lease_token=None, now=timezone.now())
    held = task.lease_token is not None
    made = change(
        task, **LET_GO, status=Status.CANCELLED, ready_since=None, closed_with="", result=reason or task.result
    )
    activity.record(
        kind="task.cancelled", project=task.project, actor=actor, task=task, before=made.before, after=made.after
    )
    if held:
        tell_agent(task, actor=actor, body=f"{task.public_id} was cancelled{': ' + reason if reason else '.'}")
    return Moved(task)


def tell_agent(task: Task, *, actor: Actor, body: str, holder: Agent | None = None) -> None:
    """A message to the agent that holds the task (or held it), unless it is the one who acts."""
    agent = holder or task.assigned_agent
    if agent is not None and agent.pk != actor.agent_id and agent.retired_at is None:
        messages.deliver(recipients=[agent], body=body, actor=actor, task=task, kind=Message.Kind.SYSTEM)
