"""A Taiga project's export file: read into the shapes its API has, and written from a project here.

In the file things are named where the API gives ids: statuses, points and roles by name, people by e-mail address,
stories by their number. Reading gives them ids of their own, so that one way of importing serves both.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any

from devflow.errors import DevFlowError, ErrorCode, invalid
from workflow.models import Comment, Epic, Issue, ItemStatus, Kind, Note, Project, Sprint, Task, UserStory
from workflow.models.agile import shown_status
from workflow.selectors import agile
from workflow.taiga.attributes import STATUSES, Attributes
from workflow.taiga.provider import KINDS, KindName

Json = dict[str, Any]

MAX_BYTES = 256 * 1024 * 1024
MAX_ITEMS = 50_000
LISTS: Mapping[KindName, str] = {"epic": "epics", "user_story": "user_stories", "task": "tasks", "issue": "issues"}


@dataclass(frozen=True)
class Dump:
    """An export as its API would tell it: the attributes, each kind's rows, and the comments of each row."""

    name: str
    slug: str
    description: str
    attributes: Attributes
    rows: Mapping[KindName, list[Json]]
    histories: Mapping[tuple[KindName, int], list[Json]]
    left_out: Mapping[str, int]
    """What the file holds and DevFlow has no place for: kind to count."""

    @property
    def total(self) -> int:
        return sum(len(rows) for rows in self.rows.values())


def read(file: IO[bytes]) -> Dump:
    """Raises `invalid_input` naming what is no export, `too_large` past 256 MiB or 50,000 items."""
    raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise DevFlowError(ErrorCode.TOO_LARGE, f"An export may have {MAX_BYTES // 2**20} MiB at most.")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise invalid(f"The file is no JSON: {exc}", file="not JSON") from None
    try:
        return _dump(found)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise invalid(
            "The file is no export of a Taiga project.", file=f"{type(exc).__name__}: {str(exc)[:200]}"
        ) from None


def _dump(found: Json) -> Dump:
    count = sum(len(found[name]) for name in LISTS.values())
    if count > MAX_ITEMS:
        raise DevFlowError(ErrorCode.TOO_LARGE, f"The export has {count:,} items; at most {MAX_ITEMS:,} are taken.")
    emails = _Numbers()
    for row in found.get("memberships") or []:
        emails.of(row.get("user") or row.get("email"))
    names = {
        part: _Numbers.of_rows(found.get(part) or [])
        for part in (*STATUSES.values(), "points", "roles", "issue_types", "severities", "priorities")
    }
    sprints = _Numbers.of_rows(found.get("milestones") or [])
    attributes = Attributes.read(
        _project(found, names, emails), _memberships(found, names, emails), _sprints(found, sprints)
    )
    epics_of: dict[int, list[int]] = {}
    for epic in found["epics"]:
        for related in epic.get("related_user_stories") or []:
            epics_of.setdefault(related["user_story"], []).append(epic["ref"])
    rows: dict[KindName, list[Json]] = {}
    histories: dict[tuple[KindName, int], list[Json]] = {}
    for kind in KINDS:
        rows[kind] = []
        for row in sorted(found[LISTS[kind]], key=lambda one: one["ref"]):
            rows[kind].append(_row(kind, row, names, sprints, emails, epics_of))
            histories[kind, row["ref"]] = list(_history(row))
    attachments = sum(len(row.get("attachments") or ()) for name in LISTS.values() for row in found[name])
    left_out = {"wiki pages": len(found.get("wiki_pages") or ()), "attachments": attachments}
    return Dump(
        name=str(found["name"]),
        slug=str(found["slug"]),
        description=str(found.get("description") or ""),
        attributes=attributes,
        rows=rows,
        histories=histories,
        left_out={name: count for name, count in left_out.items() if count},
    )


class _Numbers:
    """Ids from 1 for names, in the order they came."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    @classmethod
    def of_rows(cls, rows: list[Json]) -> "_Numbers":
        made = cls()
        for row in rows:
            made.of(row["name"])
        return made

    def of(self, name: str | None) -> int | None:
        return None if name is None else self._ids.setdefault(str(name), len(self._ids) + 1)


def _numbered(rows: list[Json], numbers: _Numbers) -> list[Json]:
    return [{**row, "id": numbers.of(row["name"])} for row in rows]


def _project(found: Json, names: Mapping[str, _Numbers], emails: _Numbers) -> Json:
    lists = {part: _numbered(found.get(part) or [], numbers) for part, numbers in names.items()}
    return {
        **lists,
        "name": found["name"],
        "slug": found["slug"],
        "description": found.get("description"),
        "is_private": found.get("is_private", True),
        "owner": None,
        "tags": found.get("tags"),
        "members": [],
    }


def _memberships(found: Json, names: Mapping[str, _Numbers], emails: _Numbers) -> list[Json]:
    made = []
    for row in found.get("memberships") or []:
        email = row.get("user") or row.get("email")
        made.append(
            {
                "user": emails.of(email),
                "email": email,
                "full_name": "",
                "role": names["roles"].of(row["role"]),
                "role_name": row["role"],
                "is_admin": row.get("is_admin", False),
                "is_user_active": True,
            }
        )
    return made


def _sprints(found: Json, numbers: _Numbers) -> list[Json]:
    return [
        {
            "id": numbers.of(row["name"]),
            "name": row["name"],
            "slug": row["slug"],
            "estimated_start": row["estimated_start"],
            "estimated_finish": row["estimated_finish"],
            "closed": row["closed"],
        }
        for row in found.get("milestones") or []
    ]


def _row(
    kind: KindName,
    row: Json,
    names: Mapping[str, _Numbers],
    sprints: _Numbers,
    emails: _Numbers,
    epics_of: Mapping[int, list[int]],
) -> Json:
    owner, assigned = row.get("owner"), row.get("assigned_to")
    made: Json = {
        "id": row["ref"],
        "ref": row["ref"],
        "project": 1,
        "subject": row["subject"],
        "description": row.get("description"),
        "created_date": row["created_date"],
        "modified_date": row["modified_date"],
        "finish_date": row.get("finish_date"),
        "finished_date": row.get("finished_date"),
        "version": row.get("version") or 1,
        "status": names[STATUSES[kind]].of(row["status"]),
        "status_extra_info": {"name": row["status"]},
        "owner_extra_info": _person(owner, emails),
        "assigned_to_extra_info": _person(assigned, emails),
        "tags": row.get("tags"),
        "is_blocked": row.get("is_blocked", False),
        "blocked_note": row.get("blocked_note"),
        "color": row.get("color"),
        "milestone": sprints.of(row.get("milestone")),
        "due_date": (row.get("due_date") or "")[:10] or None,
        "user_story": row.get("user_story"),
    }
    if kind == "user_story":
        estimates = row.get("role_points") or []
        made["points"] = {str(names["roles"].of(one["role"])): names["points"].of(one["points"]) for one in estimates}
        made["epics"] = [{"id": ref, "project": {"id": 1}} for ref in epics_of.get(row["ref"], [])]
    if kind == "issue":
        made |= {
            "type": names["issue_types"].of(row.get("type")),
            "severity": names["severities"].of(row.get("severity")),
            "priority": names["priorities"].of(row.get("priority")),
        }
    return made


def _person(email: str | None, emails: _Numbers) -> Json | None:
    return None if not email else {"id": emails.of(email), "username": email}


def _history(row: Json) -> Iterator[Json]:
    """The comments of a row, newest first as the API has them."""
    said = [entry for entry in row.get("history") or [] if entry.get("comment")]
    for entry in sorted(said, key=lambda one: str(one["created_at"]), reverse=True):
        who = entry.get("user") or []
        yield {
            "id": f"{row['ref']}/{entry['created_at']}"[:40],
            "comment": entry["comment"],
            "created_at": entry["created_at"],
            "delete_comment_date": entry.get("delete_comment_date"),
            "user": {"pk": None, "username": str(who[0] if who else ""), "name": str(who[1] if len(who) > 1 else "")},
        }


# --- writing --------------------------------------------------------------------------------------------------------


def write(project: Project, *, report: Callable[[int, int, str], None] | None = None) -> Json:
    """A project as an export file has it. Severities and priorities are DevFlow's own five and six."""
    pk = project.pk
    statuses = {kind: list(agile.statuses(pk, Kind(kind))) for kind in KINDS}
    points = {point.value: point.name for point in project.points.all()}
    made: Json = {
        "name": project.name,
        "slug": project.slug,
        "description": project.description,
        "created_date": _stamp(project.created_at),
        "is_private": True,
        "tags": [],
        "points": [{"name": row.name, "value": row.value, "order": row.order} for row in project.points.all()],
        "roles": [
            {"name": row.name, "slug": row.slug, "order": row.order, "computable": row.estimates, "permissions": []}
            for row in project.agile_roles.all()
        ],
        "issue_types": [
            {"name": row.name, "order": row.order, "color": row.color} for row in project.issue_types.all()
        ],
        "severities": _scale(("trivial", "minor", "normal", "major", "critical", "blocker")),
        "priorities": _scale(("lowest", "low", "normal", "high", "highest")),
        "memberships": [_member(row) for row in project.memberships.select_related("user", "agile__role")],
        "milestones": [_sprint(row) for row in project.sprints.order_by("starts_on", "pk")],
        "wiki_pages": [],
    }
    for kind, rows in statuses.items():
        made[STATUSES[kind]] = [_status(row) for row in rows]
    stories_of: dict[int, list[int]] = {}
    stories = list(_rows(UserStory, pk, "epic", "sprint"))
    for story in stories:
        if story.epic_id is not None:
            stories_of.setdefault(story.epic_id, []).append(story.ref)
    said = _comments(pk)
    made["epics"] = [
        _common(row, row.status.name, said)
        | {
            "color": row.color,
            "epics_order": row.position,
            "related_user_stories": [
                {"user_story": ref, "order": order, "source_project_slug": None}
                for order, ref in enumerate(stories_of.get(row.pk, []), 1)
            ],
        }
        for row in _rows(Epic, pk)
    ]
    roles = {row.slug: row.name for row in project.agile_roles.all()}
    made["user_stories"] = [
        _common(row, row.status.name, said)
        | {
            "milestone": row.sprint.name if row.sprint else None,
            "due_date": row.due_on.isoformat() if row.due_on else None,
            "is_closed": row.status.is_closed,
            "finish_date": _stamp(row.closed_at),
            "backlog_order": row.position,
            "role_points": [
                {"role": roles[slug], "points": points[value]}
                for slug, value in row.points.items()
                if slug in roles and value in points
            ],
        }
        for row in stories
    ]
    made["tasks"] = [_task(row, statuses["task"], said) for row in agile.tasks(pk).order_by("ref")]
    made["issues"] = [
        _common(row, row.status.name, said)
        | {
            "type": row.type.name if row.type else None,
            "severity": row.severity,
            "priority": row.priority,
            "milestone": row.sprint.name if row.sprint else None,
            "finished_date": _stamp(row.closed_at),
        }
        for row in _rows(Issue, pk, "type", "sprint")
    ]
    if report is not None:
        total = sum(len(made[name]) for name in LISTS.values())
        report(total, total, "items")
    return made


def _rows(model: Any, project_id: int, *related: str) -> Any:
    found = model.objects.filter(project=project_id).select_related("status", "assigned_to", "creator_user", *related)
    return found.order_by("ref")


def _comments(project_id: int) -> Mapping[tuple[str, int], list[Json]]:
    """The comments on every item, oldest first, by kind and primary key. Two queries."""
    found: dict[tuple[str, int], list[Json]] = {}

    def add(kind: str, pk: int, row: Comment | Note) -> None:
        entry = {"type": 1, "comment": row.body, "created_at": _stamp(row.created_at), "user": [row.actor_name, ""]}
        found.setdefault((kind, pk), []).append(entry)

    for note in Note.objects.filter(task__project=project_id).order_by("pk"):
        add("Task", note.task_id, note)
    for project in ("epic", "story", "issue"):
        rows = Comment.objects.filter(**{f"{project}__project": project_id}).order_by("pk")
        for row in rows:
            pk = row.epic_id or row.story_id or row.issue_id or 0
            add({"epic": "Epic", "story": "UserStory", "issue": "Issue"}[project], pk, row)
    return found


def _common(row: Any, status: str, said: Mapping[tuple[str, int], list[Json]]) -> Json:
    return {
        "ref": row.ref,
        "subject": row.subject,
        "description": row.description,
        "status": status,
        "owner": _address(row.creator_user) or row.created_by or None,
        "assigned_to": _address(row.assigned_to),
        "created_date": _stamp(row.created_at),
        "modified_date": _stamp(row.updated_at),
        "version": row.version,
        "is_blocked": getattr(row, "is_blocked", False),
        "blocked_note": getattr(row, "blocked_reason", ""),
        "tags": list(row.tags),
        "history": said.get((type(row).__name__, row.pk), []),
        "attachments": [],
    }


def _task(row: Task, statuses: list[ItemStatus], said: Mapping[tuple[str, int], list[Json]]) -> Json:
    return _common(row, shown_status(row, statuses).name, said) | {
        "user_story": row.user_story.ref if row.user_story else None,
        "milestone": None,
        "finished_date": _stamp(row.completed_at),
        "is_blocked": bool(row.manual_block),
        "blocked_note": row.manual_block,
        "us_order": row.position,
        "taskboard_order": row.position,
    }


def _status(row: ItemStatus) -> Json:
    return {
        "name": row.name,
        "slug": row.slug,
        "order": row.order,
        "is_closed": row.is_closed,
        "is_archived": row.category == "closed",
        "color": row.color,
    }


def _scale(names: tuple[str, ...]) -> list[Json]:
    return [{"name": name, "order": order, "color": "#8d99ae"} for order, name in enumerate(names, 1)]


def _member(row: Any) -> Json:
    role = getattr(row, "agile", None)
    return {
        "user": _address(row.user),
        "email": _address(row.user),
        "role": role.role.name if role else row.role,
        "is_admin": row.role == "admin",
        "created_at": _stamp(row.created_at),
    }


def _sprint(row: Sprint) -> Json:
    return {
        "name": row.name,
        "slug": row.slug,
        "estimated_start": row.starts_on.isoformat(),
        "estimated_finish": row.ends_on.isoformat(),
        "closed": row.is_closed,
        "created_date": _stamp(row.created_at),
    }


def _address(user: Any) -> str | None:
    return None if user is None else user.email or user.get_username()


def _stamp(at: datetime | None) -> str | None:
    return at.isoformat() if at is not None else None
