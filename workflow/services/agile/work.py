"""Tasks in the vocabulary of planning: made under a story, moved by the project's own statuses.

A status moves the same card on the board under the same rules: leases, limits, reviews and events.
"""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from devflow.actors import Actor
from devflow.errors import conflict, invalid
from workflow.models import Category, ItemStatus, Kind, Phase, Project, Status, Task, Urgency, UserStory
from workflow.models.agile import MAX_SUBJECT, is_shown_as
from workflow.selectors.board import COLUMN_OF
from workflow.services import activity, board, claims, readiness, tasks, transitions
from workflow.services.agile import vocabulary
from workflow.services.agile.items import _text, assignee, checked_tags, status_of
from workflow.services.rows import change, check_version, locked_task

CORE_PRIORITY: Mapping[str, str] = {
    Urgency.LOWEST: "low",
    Urgency.LOW: "low",
    Urgency.NORMAL: "medium",
    Urgency.HIGH: "high",
    Urgency.HIGHEST: "high",
}
KEPT_BESIDE = (Urgency.LOWEST, Urgency.HIGHEST)
BLOCKED_WITHOUT_WORDS = "Blocked"


def urgency_of(task: Task) -> str:
    """The task's priority among the five; its own three are high, normal and low."""
    plain = {"high": Urgency.HIGH, "medium": Urgency.NORMAL, "low": Urgency.LOW}[task.priority_name]
    if task.urgency and CORE_PRIORITY[task.urgency] == task.priority_name:
        return task.urgency
    return plain


@transaction.atomic
def create(*, project: Project, story_id: int, actor: Actor, fields: Mapping[str, Any]) -> Task:
    """Make a task under a story, in the story's phase or the project's first one.

    Raises `invalid_input`, `Invalid userStoryId`; `conflict` for a project without phases.
    """
    vocabulary.ensure(project)
    story = UserStory.objects.filter(project=project, pk=story_id).select_related("phase").first()
    if story is None:
        raise invalid("Invalid userStoryId", userStoryId="not a story of this project")
    phase = story.phase or Phase.objects.filter(project=project).first()
    if phase is None:
        raise conflict("This project has no phases, and a task belongs to one.", suggestion="Add a phase first.")
    subject = _text("subject", fields["subject"], MAX_SUBJECT, needed=True)
    urgency = fields.get("priority", Urgency.NORMAL)
    task = tasks.create(
        project_id=project.pk,
        phase_number=phase.number,
        subject=subject,
        description=fields.get("description") or subject,
        priority=CORE_PRIORITY[urgency],
        tags=checked_tags(fields.get("tags", [])),
        actor=actor,
    )
    task.user_story = story
    task.assigned_to = assignee(project, fields.get("assigned_to_id"))
    task.urgency = urgency if urgency in KEPT_BESIDE else ""
    task.save(update_fields=["user_story", "assigned_to", "urgency"])
    return task


@transaction.atomic
def update(
    *,
    project: Project,
    pk: int,
    actor: Actor,
    fields: Mapping[str, Any],
    version: int | None = None,
    comment: str = "",
) -> Task:
    """Change what `fields` names, and move the card where a status asks for it. Raises what the board's moves raise."""
    task = locked_task(project_id=project.pk, task_id=pk)
    check_version(task, version)
    who: dict[str, Any] = {"project_id": project.pk, "task_id": pk, "actor": actor}
    said: dict[str, Any] = {}
    if "subject" in fields:
        said["subject"] = _text("subject", fields["subject"], MAX_SUBJECT, needed=True)
    if "description" in fields:
        said["description"] = fields["description"] or task.subject
    if "tags" in fields:
        said["tags"] = checked_tags(fields["tags"])
    if "priority" in fields:
        said["priority"] = CORE_PRIORITY[fields["priority"]]
    if said:
        task = tasks.edit(**who, **said)
    beside: dict[str, Any] = {}
    if "priority" in fields:
        beside["urgency"] = fields["priority"] if fields["priority"] in KEPT_BESIDE else ""
    if "assigned_to_id" in fields:
        found = assignee(project, fields["assigned_to_id"])
        beside["assigned_to_id"] = found.pk if found else None
    if "user_story_id" in fields:
        story_id = fields["user_story_id"]
        if story_id is not None and not UserStory.objects.filter(project=project, pk=story_id).exists():
            raise invalid("Invalid userStoryId", userStoryId="not a story of this project")
        beside["user_story_id"] = story_id
    if beside and any(getattr(task, name) != value for name, value in beside.items()):
        task = locked_task(project_id=project.pk, task_id=pk)
        made = change(task, **beside)
        activity.record(
            kind="task.edited", project=project, actor=actor, task=task, before=made.before, after=made.after
        )
    if "is_blocked" in fields:
        reason = (fields.get("blocked_reason") or BLOCKED_WITHOUT_WORDS) if fields["is_blocked"] else ""
        if reason != task.manual_block:
            task = tasks.hold_back(**who, reason=reason)
    if "status_id" in fields:
        _move(task, status_of(project, Kind.TASK, fields["status_id"]), actor=actor)
    if comment:
        tasks.add_note(**who, body=comment)
    return Task.objects.select_related("project", "phase", "assigned_agent", "assigned_to", "item_status").get(pk=pk)


def _move(task: Task, status: ItemStatus, *, actor: Actor) -> None:
    """Bring the card where the status says, by the way the board has for it."""
    who: dict[str, Any] = {"project_id": task.project_id, "task_id": task.pk, "actor": actor}
    if not is_shown_as(task, status):
        if task.manual_block and status.category != Category.BLOCKED:
            task = tasks.hold_back(**who, reason="")
        wanted = status.core or _core_for(status.category)
        if status.category == Category.BLOCKED:
            tasks.hold_back(**who, reason=BLOCKED_WITHOUT_WORDS)
        elif wanted == Status.IN_PROGRESS and task.status in (Status.READY, Status.PENDING) and actor.is_agent:
            claims.start(**who)
        elif wanted == Status.CANCELLED:
            transitions.cancel(**who)
        elif wanted == Status.FAILED:
            transitions.fail(**who)
        elif wanted == Status.DONE and actor.is_agent and task.status != Status.REVIEW:
            transitions.finish(**who)
        elif wanted and wanted != task.status and not (wanted == Status.READY and task.status == Status.PENDING):
            board.move(**who, column=_column(wanted))
    task.refresh_from_db(fields=["status", "version", "manual_block"])
    if task.item_status_id != status.pk:
        task.item_status = status
        task.save(update_fields=["item_status"])


def _core_for(category: str) -> str:
    return {
        Category.NEW: Status.READY,
        Category.IN_PROGRESS: Status.IN_PROGRESS,
        Category.DONE: Status.DONE,
        Category.CLOSED: Status.DONE,
    }.get(Category(category), "")


def _column(status: str) -> Any:
    return COLUMN_OF[Status(status)]


@transaction.atomic
def delete(*, project: Project, pk: int, actor: Actor) -> None:
    """Delete a task nobody holds. Raises `not_found`, `conflict` for a claimed one."""
    task = locked_task(project_id=project.pk, task_id=pk)
    if task.lease_token is not None:
        holder = task.assigned_agent.name if task.assigned_agent else "somebody"
        raise conflict(f"{task.public_id} is claimed by {holder}.", suggestion="Have it released first.")
    waiting = list(task.dependents.values_list("pk", flat=True))
    activity.record(
        kind="task.deleted",
        project=project,
        actor=actor,
        subject_id=task.public_id,
        before={"subject": task.subject, "ref": task.ref, "status": task.status},
    )
    task.delete()
    if waiting:
        readiness.refresh(task_ids=waiting, actor=actor)
