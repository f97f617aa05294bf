"""What the fields of a Taiga's project may point to: statuses, types, severities, points, roles, people, sprints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from workflow.models import Category, Severity, Urgency
from workflow.taiga.provider import KindName

Json = dict[str, Any]

STATUSES: Mapping[KindName, str] = {
    "epic": "epic_statuses",
    "user_story": "us_statuses",
    "task": "task_statuses",
    "issue": "issue_statuses",
}
_BY_SLUG = {
    "new": Category.NEW,
    "ready": Category.NEW,
    "in-progress": Category.IN_PROGRESS,
    "ready-for-test": Category.IN_PROGRESS,
    "needs-info": Category.BLOCKED,
    "blocked": Category.BLOCKED,
    "archived": Category.CLOSED,
    "rejected": Category.CLOSED,
    "cancelled": Category.CLOSED,
}
_SEVERITY = {"wishlist": Severity.TRIVIAL, "important": Severity.MAJOR}
_PLAIN = "#8d99ae"


def category(status: Mapping[str, Any]) -> str:
    """What one of Taiga's statuses means: closed by name, else done where it closes, else by its name."""
    known = _BY_SLUG.get(str(status["slug"]))
    if status["is_closed"]:
        return known if known is Category.CLOSED else Category.CLOSED if status.get("is_archived") else Category.DONE
    return Category.OTHER if known in (None, Category.CLOSED) else known


def color_of(row: Mapping[str, Any]) -> str:
    found = row.get("color")
    return found if isinstance(found, str) and len(found) == 7 and found.startswith("#") else _PLAIN


def _ranked(rows: Sequence[Json], names: Mapping[str, str], scale: Sequence[str]) -> dict[str, str]:
    """Our word for each of Taiga's, by its name, else by its place in the order: {its id: our word}."""
    found = {}
    for at, row in enumerate(sorted(rows, key=lambda one: one["order"])):
        name = str(row["name"]).strip().lower()
        ours = name if name in scale else names.get(name)
        found[str(row["id"])] = ours or scale[round(at * (len(scale) - 1) / max(1, len(rows) - 1))]
    return found


@dataclass(frozen=True)
class Attributes:
    """What a project's fields may point to, as it was last read: plain JSON in `kept`, the same in the row."""

    kept: Json

    @classmethod
    def read(cls, project: Json, memberships: Sequence[Json], milestones: Sequence[Json]) -> "Attributes":
        """Of `GET /projects/<id>`, and the lists of memberships and milestones."""
        people = {row["id"]: row for row in project["members"]}
        return cls(
            {
                "name": str(project["name"]),
                "slug": str(project["slug"]),
                "description": str(project["description"] or ""),
                "isPrivate": bool(project["is_private"]),
                "owner": person(project["owner"]),
                "tags": [str(tag) for tag in project.get("tags") or []],
                "statuses": {kind: [status_of(row) for row in project[name]] for kind, name in STATUSES.items()},
                "types": [
                    {"id": row["id"], "name": row["name"], "color": color_of(row)} for row in project["issue_types"]
                ],
                "severities": _ranked(project["severities"], _SEVERITY, Severity.values),
                "priorities": _ranked(project["priorities"], {}, Urgency.values),
                "points": [{"id": row["id"], "name": row["name"], "value": row["value"]} for row in project["points"]],
                "roles": [
                    {"id": row["id"], "name": row["name"], "slug": row["slug"], "estimates": bool(row["computable"])}
                    for row in project["roles"]
                ],
                "members": [_member(row, people) for row in memberships if row["user"] is not None],
                "sprints": [
                    {
                        "id": row["id"],
                        "name": row["name"],
                        "slug": row["slug"],
                        "starts": row["estimated_start"],
                        "ends": row["estimated_finish"],
                        "isClosed": bool(row["closed"]),
                    }
                    for row in milestones
                ],
            }
        )

    @cached_property
    def statuses(self) -> dict[KindName, dict[int, Json]]:
        return {kind: {row["id"]: row for row in rows} for kind, rows in self.kept["statuses"].items()}

    @cached_property
    def values(self) -> dict[int, float | None]:
        """What each of the points is worth."""
        return {row["id"]: row["value"] for row in self.kept["points"]}

    @cached_property
    def estimating(self) -> dict[str, str]:
        """The ids, as texts, of the roles that estimate, and their slugs."""
        return {str(row["id"]): row["slug"] for row in self.kept["roles"] if row["estimates"]}

    def ids(self, name: str) -> set[int]:
        """The ids of `types`, `members` or `sprints`."""
        return {row["id"] for row in self.kept[name]}

    def theirs(self, name: str, ours: str) -> list[int]:
        """Taiga's ids for one of our severities or priorities."""
        return [int(id) for id, word in self.kept[name].items() if word == ours]


def status_of(row: Json) -> Json:
    return {
        "id": row["id"],
        "name": str(row["name"]),
        "slug": str(row["slug"]),
        "order": row["order"],
        "isClosed": bool(row["is_closed"]),
        "category": str(category(row)),
        "color": color_of(row),
    }


def _member(row: Json, people: Mapping[int, Json]) -> Json:
    known = people.get(row["user"], {})
    name = str(row["full_name"] or known.get("username") or "")
    return {
        "id": row["user"],
        "username": str(known.get("username") or row.get("email") or name),
        "fullName": name,
        "roleId": row["role"],
        "roleName": str(row["role_name"]),
        "isAdmin": bool(row["is_admin"]),
        "isActive": bool(row["is_user_active"]),
    }


def person(found: Mapping[str, Any] | None) -> Json | None:
    if found is None:
        return None
    username = str(found["username"])
    return {"id": found["id"], "username": username, "fullName": str(found.get("full_name_display") or username)}
