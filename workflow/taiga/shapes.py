"""Objects of the agile tools, made from DevFlow's rows: camelCase, ISO 8601 UTC, integer ids."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from workflow.models import Comment, Epic, Issue, ItemStatus, Membership, Note, Project, Task, UserStory
from workflow.models.agile import WorkItem, shown_status
from workflow.selectors import agile
from workflow.services.agile.work import urgency_of

Object = dict[str, Any]


def moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def person(user: Any) -> Object | None:
    if user is None:
        return None
    return {"id": user.pk, "username": user.get_username(), "fullName": user.get_full_name() or user.get_username()}


def creator(row: WorkItem | Task) -> Object:
    """Who made it: a person with their id, else the name of an agent, whose id is None."""
    made: Any = row
    if made.creator_user_id is not None and made.creator_user is not None:
        found = person(made.creator_user)
        if found is not None:
            return found
    return {"id": None, "username": row.created_by, "fullName": row.created_by}


def status(row: ItemStatus) -> Object:
    return {
        "id": row.pk,
        "name": row.name,
        "slug": row.slug,
        "order": row.order,
        "isClosed": row.is_closed,
        "category": row.category,
        "color": row.color,
    }


def progress(of: agile.Progress) -> Object:
    return {"total": of.total, "completed": of.completed, "percent": of.percent}


def _base(row: Epic | UserStory | Issue | Task, shown: ItemStatus) -> Object:
    return {
        "id": row.pk,
        "ref": row.ref,
        "projectId": row.project_id,
        "subject": row.subject,
        "createdDate": moment(row.created_at),
        "modifiedDate": moment(row.updated_at),
        "createdBy": creator(row),
        "version": row.version,
        "statusId": shown.pk,
        "status": status(shown),
        "assignedTo": person(row.assigned_to),
        "tags": list(row.tags),
    }


def _blocked(row: Epic | UserStory | Issue) -> Object:
    return {"isBlocked": row.is_blocked, "blockedReason": row.blocked_reason}


def epic(row: Epic, *, story_ids: Sequence[int], details: bool) -> Object:
    made = _base(row, row.status) | _blocked(row)
    made |= {"color": row.color, "userStoryIds": list(story_ids), "progress": progress(agile.epic_progress(row))}
    return made | ({"description": row.description} if details else {})


def user_story(row: UserStory, *, task_ids: Sequence[int], details: bool) -> Object:
    made = _base(row, row.status) | _blocked(row)
    made |= {
        "epicId": row.epic_id,
        "sprintId": row.sprint_id,
        "points": {"total": row.total_points, "byRole": dict(row.points)},
        "taskIds": list(task_ids),
        "progress": progress(agile.story_progress(row)),
        "priority": row.priority,
        "dueDate": row.due_on.isoformat() if row.due_on else None,
    }
    return made | ({"description": row.description} if details else {})


def task(row: Task, *, statuses: Sequence[ItemStatus], details: bool) -> Object:
    made = _base(row, shown_status(row, statuses))
    made |= {
        "isBlocked": bool(row.manual_block),
        "blockedReason": row.manual_block,
        "userStoryId": row.user_story_id,
        "priority": urgency_of(row),
        "phaseId": row.phase.number,
        "taskId": row.public_id,
        "boardStatus": row.status,
        "agent": row.assigned_agent.name if row.assigned_agent else None,
        "leaseExpires": moment(row.lease_expires_at) if row.lease_expires_at else None,
    }
    return made | ({"description": row.description} if details else {})


def issue(row: Issue, *, details: bool) -> Object:
    made = _base(row, row.status) | _blocked(row)
    made |= {"typeId": row.type_id, "severity": row.severity, "priority": row.priority, "sprintId": row.sprint_id}
    return made | ({"description": row.description} if details else {})


def comment(row: Comment | Note) -> Object:
    return {
        "id": row.pk,
        "text": row.body,
        "createdDate": moment(row.created_at),
        "createdBy": {"id": None, "username": row.actor_name, "fullName": row.actor_name},
    }


def member(row: Membership) -> Object:
    role = getattr(row, "agile", None)
    return {
        **(person(row.user) or {}),
        "roleId": role.role_id if role else None,
        "roleName": role.role.name if role else row.get_role_display(),
        "isAdmin": row.role == Membership.Role.ADMIN,
        "isActive": row.user.is_active,
    }


def project_line(row: Project) -> Object:
    return {"id": row.pk, "slug": row.slug, "name": row.name}
