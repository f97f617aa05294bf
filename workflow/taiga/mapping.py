"""Taiga's JSON in the words of the agile tools, and back. Nothing here asks anybody anything.

What comes from Taiga is checked as it is read: an object that lacks what every Taiga gives raises `KeyError`,
`TypeError` or `ValueError`, which `remote` makes one error of.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from devflow.errors import DevFlowError, ErrorCode, invalid
from workflow.models import Severity, Urgency
from workflow.taiga.attributes import Attributes, color_of, person, status_of
from workflow.taiga.provider import KindName
from workflow.taiga.shapes import moment

Json = dict[str, Any]

PATHS: Mapping[KindName, str] = {
    "epic": "/epics",
    "user_story": "/userstories",
    "task": "/tasks",
    "issue": "/issues",
}
HISTORY: Mapping[KindName, str] = {
    "epic": "/history/epic",
    "user_story": "/history/userstory",
    "task": "/history/task",
    "issue": "/history/issue",
}
SPOKEN: Mapping[KindName, str] = {"epic": "epics", "user_story": "user stories", "task": "tasks", "issue": "issues"}

_OURS = {
    "status": "statusId",
    "assigned_to": "assignedToId",
    "user_story": "userStoryId",
    "milestone": "sprintId",
    "epic": "epicId",
    "due_date": "dueDate",
    "type": "typeId",
    "blocked_note": "blocked",
    "is_blocked": "blocked",
}


def cleaned(content: bytes) -> Any:
    """JSON without what texts cannot be kept with: NUL and halves of surrogate pairs. Raises `ValueError`."""
    found = json.loads(content, parse_constant=_refuse)
    lower = content.lower()
    return _clean(found) if b"\\u0000" in lower or b"\\ud" in lower else found


def _refuse(name: str) -> None:
    raise ValueError(name)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "").encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(name): _clean(item) for name, item in value.items()}
    return value


def refusal(status: int, body: Any) -> DevFlowError:
    """What a 4xx answer means: a stale version, or which of our fields it does not like."""
    if not isinstance(body, dict) or not body:
        return invalid(f"Taiga refuses it (HTTP {status})")
    if "version" in body:
        return DevFlowError(
            ErrorCode.CONFLICT,
            "It changed meanwhile.",
            suggestion="Read it again, then repeat your change on what it is now.",
        )
    reasons: dict[str, str] = {}
    for name, said in body.items():
        text = said[0] if isinstance(said, list) and said else said
        reasons[_OURS.get(name, str(name))[:60]] = " ".join(str(text).split())[:300]
    if "_error_message" in reasons or "detail" in reasons:
        said = reasons.get("_error_message") or reasons.get("detail") or f"HTTP {status}"
        return invalid(f"Taiga refuses it: {said}", taiga=said)
    first, reason = next(iter(reasons.items()))
    if "required" in reason or "blank" in reason:
        return invalid(f"{first}: Required", **reasons)
    return invalid(f"Invalid {first}" if "Invalid pk" in reason else f"{first}: {reason}", **reasons)


def _at(text: str) -> str:
    return moment(datetime.fromisoformat(text))


def item(kind: KindName, row: Json, attributes: Attributes, project_id: int) -> Json:
    """An object of the tools without what Taiga keeps elsewhere: children, progress, comments. With the description
    where Taiga gave one."""
    status = attributes.statuses[kind].get(row["status"]) or _unknown_status(row)
    made: Json = {
        "id": row["id"],
        "ref": row["ref"],
        "projectId": project_id,
        "subject": row["subject"],
        "createdDate": _at(row["created_date"]),
        "modifiedDate": _at(row["modified_date"]),
        "createdBy": person(row["owner_extra_info"]) or {"id": None, "username": "", "fullName": ""},
        "version": row["version"],
        "statusId": status["id"],
        "status": status,
        "assignedTo": person(row["assigned_to_extra_info"]),
        "tags": tags(row["tags"]),
        "isBlocked": bool(row["is_blocked"]),
        "blockedReason": str(row["blocked_note"] or ""),
    }
    if "description" in row:
        made["description"] = str(row["description"] or "")
    return made | _OWN[kind](row, attributes)


def _unknown_status(row: Json) -> Json:
    said = row["status_extra_info"] or {}
    name, is_closed = str(said.get("name", "?")), bool(said.get("is_closed"))
    slug = name.lower().replace(" ", "-")
    found = {"id": row["status"], "name": name, "slug": slug, "order": 0, "is_closed": is_closed, "color": None}
    return status_of(found | {"color": said.get("color")})


def _epic(row: Json, _attributes: Attributes) -> Json:
    return {"color": color_of(row)}


def _user_story(row: Json, attributes: Attributes) -> Json:
    by_role = {}
    for role, point in (row["points"] or {}).items():
        value = attributes.values.get(point)
        if role in attributes.estimating and value is not None:
            by_role[attributes.estimating[role]] = float(value)
    return {
        "epicId": next(iter(epics(row)), None),
        "sprintId": row["milestone"],
        "points": {"total": float(sum(by_role.values())), "byRole": by_role},
        "priority": None,
        "dueDate": row["due_date"],
    }


def epics(story: Json) -> list[int]:
    """The ids of a story's epics in its own project, the first one first."""
    return [epic["id"] for epic in story["epics"] or [] if epic["project"]["id"] == story["project"]]


def _task(row: Json, _attributes: Attributes) -> Json:
    return {
        "userStoryId": row["user_story"],
        "priority": None,
        "phaseId": None,
        "taskId": None,
        "boardStatus": None,
        "agent": None,
        "leaseExpires": None,
    }


def _issue(row: Json, attributes: Attributes) -> Json:
    return {
        "typeId": row["type"],
        "severity": attributes.kept["severities"].get(str(row["severity"]), Severity.NORMAL.value),
        "priority": attributes.kept["priorities"].get(str(row["priority"]), Urgency.NORMAL.value),
        "sprintId": row["milestone"],
    }


_OWN = {"epic": _epic, "user_story": _user_story, "task": _task, "issue": _issue}


def tags(found: Sequence[Any] | None) -> list[str]:
    """Names of `[[name, color], ...]`, or of a plain list."""
    return [str(tag[0] if isinstance(tag, list) else tag) for tag in found or []]


def comments(history: Sequence[Json]) -> list[Json]:
    """The comments in a history that is newest first, oldest first. Taiga's ids of them are texts."""
    return [
        {
            "id": str(entry["id"]),
            "text": str(entry["comment"]),
            "createdDate": _at(entry["created_at"]),
            "createdBy": {
                "id": entry["user"].get("pk"),
                "username": str(entry["user"].get("username") or ""),
                "fullName": str(entry["user"].get("name") or ""),
            },
        }
        for entry in reversed(history)
        if entry["comment"] and not entry["delete_comment_date"]
    ]


def written(kind: KindName, fields: Mapping[str, Any], attributes: Attributes) -> Json:
    """The body Taiga takes for the tools' fields, but for a story's epic. Raises `invalid_input`, in the document's
    words, for what names nothing in this project and for what Taiga does not keep."""
    body: Json = {}
    for name, value in fields.items():
        if name in ("subject", "description", "color"):
            body[name] = value
        elif name == "tags":
            body["tags"] = _written_tags(value)
        elif name == "statusId":
            body["status"] = _one_of(name, value, set(attributes.statuses[kind]))
        elif name == "assignedToId":
            body["assigned_to"] = value if value is None else _one_of(name, value, attributes.ids("members"))
        elif name == "sprintId":
            body["milestone"] = value if value is None else _one_of(name, value, attributes.ids("sprints"))
        elif name == "typeId":
            body["type"] = value if value is None else _one_of(name, value, attributes.ids("types"))
        elif name == "userStoryId":
            body["user_story"] = value
        elif name in ("severity", "priority"):
            body[name] = _leveled(kind, name, value, attributes)
        elif name == "points":
            body["points"] = _written_points(value, attributes)
        elif name == "dueDate":
            body["due_date"] = value.isoformat() if isinstance(value, date) else value
        elif name == "blocked":
            body["is_blocked"] = value["isBlocked"]
            body["blocked_note"] = (value.get("reason") or "") if value["isBlocked"] else ""
        elif name != "epicId":
            raise invalid(f"{name}: Taiga keeps no such field on {SPOKEN[kind]}", **{name: "not kept by Taiga"})
    return body


def _one_of(name: str, value: int, known: set[int]) -> int:
    if value not in known:
        listed = ", ".join(map(str, sorted(known)[:50])) or "none there is"
        raise invalid(f"Invalid {name}", **{name: f"one of {listed}"})
    return value


def _leveled(kind: KindName, name: str, value: str, attributes: Attributes) -> int:
    if kind != "issue":
        raise invalid(f"{name}: Taiga keeps no {name} on {SPOKEN[kind]}", **{name: "leave it out, or use a tag"})
    plural = "severities" if name == "severity" else "priorities"
    found = attributes.theirs(plural, value)
    if not found:
        words = ", ".join(dict.fromkeys(attributes.kept[plural].values()))
        raise invalid(f"Invalid {name}", **{name: f"this Taiga project has: {words}"})
    return found[0]


def _written_tags(given: Sequence[str]) -> list[str]:
    clean = list(dict.fromkeys(tag.strip() for tag in given if tag.strip()))
    if any("," in tag for tag in clean):
        raise invalid("tags: a tag of Taiga has no comma", tags="without commas")
    return clean


def _written_points(points: Mapping[str, float | None], attributes: Attributes) -> dict[str, int]:
    """A point for each estimating role; those not named are not estimated any more."""
    if unknown := sorted(set(points) - set(attributes.estimating.values())):
        known = ", ".join(sorted(attributes.estimating.values()))
        raise invalid(f"points: there is no estimating role {unknown[0]}", points=f"some of {known}")
    by_value = {value: id for id, value in reversed(attributes.values.items())}
    made = {}
    for role, slug in attributes.estimating.items():
        value = points.get(slug)
        if value not in by_value:
            scale = ", ".join(f"{known:g}" for known in by_value if known is not None)
            raise invalid(f"points: {value} is not on this project's scale", points=f"one of {scale}")
        made[role] = by_value[value]
    return made
