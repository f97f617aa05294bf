"""What the loopback Taiga keeps, and the rules it keeps it by: those that the recorded answers show.

Not in the recording, from Taiga's public interface: refreshing a token, the list of sprints, taking a story out of an
epic, and the histories of the other kinds.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.fakes import taiga_shapes as shapes

Json = dict[str, Any]
START = datetime(2026, 11, 21, 2, 8, 17, 455000, tzinfo=UTC)
KINDS = {
    "epics": "epic-statuses",
    "userstories": "userstory-statuses",
    "tasks": "task-statuses",
    "issues": "issue-statuses",
}
NAMES = {"epics": "Epic", "userstories": "UserStory", "tasks": "Task", "issues": "Issue"}
HISTORIES = {"epic": "epics", "userstory": "userstories", "task": "tasks", "issue": "issues"}
VALUES = (*KINDS.values(), "priorities", "severities", "issue-types", "points", "roles")
_GREY, _RED, _BLUE, _GREEN = "#70728F", "#E44057", "#5178D3", "#A8E440"
_STATUSES = {
    "userstory-statuses": ("New", "Ready", "In progress", "Ready for test", "Done*", "Archived*"),
    "task-statuses": ("New", "In progress", "Ready for test", "Closed*", "Needs Info"),
    "issue-statuses": ("New", "In progress", "Ready for test", "Closed*", "Needs Info", "Rejected*", "Postponed"),
    "epic-statuses": ("New", "Ready", "In progress", "Ready for test", "Done*"),
}
_POINTS = (None, 0, 0.5, 1, 2, 3, 5, 8, 10, 13, 20, 40)
_ROLES = {"UX": True, "Design": True, "Front": True, "Back": True, "Product Owner": False, "Stakeholder": False}


@dataclass
class Answer(Exception):  # noqa: N818  # raised where a rule is broken
    """An answer: a status, a body, and headers besides the usual ones."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def invalid_pk(name: str, pk: Any) -> Answer:
    return Answer(400, {name: [f"Invalid pk '{pk}' - object does not exist."]})


def slug_of(name: str) -> str:
    return "-".join(name.lower().split())


class World:
    """Everything one Taiga knows. Its clock goes on by a quarter of a second with every write."""

    def __init__(self) -> None:
        self.users: dict[int, Json] = {}
        self.projects: dict[int, Json] = {}
        self.values: dict[str, list[Json]] = {name: [] for name in VALUES}
        self.memberships: list[Json] = []
        self.milestones: list[Json] = []
        self.items: dict[str, dict[int, Json]] = {kind: {} for kind in KINDS}
        self.related: list[Json] = []
        self.logs: dict[tuple[str, int], list[Json]] = {}
        self.now = START
        self.counts: dict[str, int] = {"userstory-statuses": 1, "epic-statuses": 5}
        self._refs: dict[int, int] = {}
        self.user("admin", "123123", id=5, name="Administrator")
        self.counts["projects"] = 0
        self.project({"name": "Recorded", "description": "A recorded project"}, is_bare=True)

    def _next(self, table: str) -> int:
        self.counts[table] = self.counts.get(table, 0) + 1
        return self.counts[table]

    def tick(self) -> str:
        self.now += timedelta(milliseconds=250)
        return self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def order(self) -> int:
        return int(self.now.timestamp() * 1000)

    # People and projects

    def user(self, username: str, password: str, *, name: str, id: int | None = None) -> Json:
        made = {"id": id or 100 + self._next("users"), "username": username, "password": password, "full_name": name}
        self.users[made["id"]] = made | {"email": f"{username}@{username}.com"}
        return self.users[made["id"]]

    def join(self, project: int, user: Json, role: str, *, is_admin: bool = False) -> Json:
        """Make somebody with an account a member."""
        found = next(one for one in self.own("roles", project) if one["slug"] == role)
        return self._membership(self.projects[project], user, found, user["email"], is_admin)

    def _membership(self, project: Json, user: Json | None, role: Json, email: str, is_admin: bool) -> Json:
        made = {"id": self._next("memberships"), "project": project["id"], "user": user, "role": role}
        made |= {"email": email, "is_admin": is_admin}
        self.memberships.append(made)
        if user:
            project["people"].append(made)
        return made

    def own(self, table: str, project: int) -> list[Json]:
        return [row for row in self.values[table] if row["project"] == project]

    def project(self, body: Mapping[str, Any], *, is_bare: bool = False) -> Json:
        """A project with its statuses and all the rest; a bare one has none."""
        if not body.get("name"):
            raise Answer(400, {"name": ["This field is required."]})
        id, at = self._next("projects"), self.tick()
        taken = {row["slug"] for row in self.projects.values()}
        slug = base = f"admin-{slug_of(body['name'])}"
        while slug in taken:
            slug = f"{base}-{len([one for one in taken if one.startswith(base)])}"
        row: Json = {"id": id, "name": body["name"], "slug": slug, "description": body.get("description", "")}
        row |= {"created_date": at, "modified_date": at, "owner": self.users[5], "people": []}
        row |= {"is_private": bool(body.get("is_private"))}
        self.projects[id] = row
        if not is_bare:
            self._fill(id)
        for name, table in (
            *(("epic_status", "epic-statuses"), ("points", "points"), ("us_status", "userstory-statuses")),
            *(("task_status", "task-statuses"), ("priority", "priorities"), ("severity", "severities")),
            *(("issue_status", "issue-statuses"), ("issue_type", "issue-types")),
        ):
            rows = self.own(table, id)
            usual = next((one for one in rows if one["name"] == "Normal"), rows[0] if rows else None)
            row[f"default_{name}"] = usual and usual["id"]
        if not is_bare:
            self.join(id, self.users[5], "product-owner", is_admin=True)
        return row

    def _fill(self, project: int) -> None:
        for table, names in _STATUSES.items():
            for order, name in enumerate(names, 1):
                row = {"id": self._next(table), "name": name.rstrip("*"), "slug": slug_of(name.rstrip("*"))}
                row |= {"order": order, "is_closed": name.endswith("*")}
                if table == "userstory-statuses":
                    row |= {"is_archived": name == "Archived*", "color": _GREY, "wip_limit": None}
                self.values[table].append(row | {"color": (_GREY, _RED, _BLUE, _GREEN)[order % 4], "project": project})
        for table, named in (
            ("priorities", (("Low", 1), ("Normal", 3), ("High", 5))),
            ("severities", (("Wishlist", 1), ("Minor", 2), ("Normal", 3), ("Important", 4), ("Critical", 5))),
            ("issue-types", (("Bug", 1), ("Question", 2), ("Enhancement", 3))),
        ):
            for name, order in named:
                row = {"id": self._next(table), "name": name, "order": order, "color": _RED, "project": project}
                self.values[table].append(row)
        for order, value in enumerate(_POINTS, 1):
            name = "?" if value is None else "1/2" if value == 0.5 else str(value)
            worth = None if value is None else float(value)
            row = {"id": self._next("points"), "name": name, "order": order, "value": worth, "project": project}
            self.values["points"].append(row)
        for order, (name, computable) in enumerate(_ROLES.items(), 1):
            row = {"id": self._next("roles"), "name": name, "slug": slug_of(name), "project": project}
            row |= {
                "order": order * 10,
                "computable": computable,
                "permissions": shapes.PERMISSIONS,
                "members_count": 0,
            }
            self.values["roles"].append(row)

    def invite(self, body: Mapping[str, Any]) -> Json:
        project = self.projects[body["project"]]
        role = next(one for one in self.own("roles", project["id"]) if one["id"] == body["role"])
        return self._membership(project, None, role, body["username"], False)

    def milestone(self, body: Mapping[str, Any]) -> Json:
        at = self.tick()
        made = {"id": self._next("milestones"), "project": body["project"], "name": body["name"]}
        made |= {"slug": slug_of(body["name"]), "estimated_start": body["estimated_start"], "closed": False}
        made |= {"estimated_finish": body["estimated_finish"], "created_date": at, "modified_date": at}
        self.milestones.append(made)
        return made

    # Items

    def find(self, kind: str, id: int, *, message: bool = True) -> Json:
        row = self.items[kind].get(id)
        if row is None:
            raise Answer(404, {"_error_message": f"No {NAMES[kind]} matches the given query." if message else ""})
        return row

    def create(self, kind: str, body: Mapping[str, Any], author: Json) -> Json:
        missing = [name for name in ("project", "subject") if not body.get(name)]
        if missing:
            raise Answer(400, {name: ["This field is required."] for name in missing})
        project = self.projects.get(body["project"])
        if project is None:
            raise invalid_pk("project", body["project"])
        at = self.tick()
        row: Json = {"project": project["id"], "version": 1, "watchers": [], "owner": author["id"], "finished": None}
        row |= {"created_date": at, "modified_date": at, "subject": "", "description": "", "tags": []}
        row |= {"is_blocked": False, "blocked_note": "", "assigned_to": None, "milestone": None, "due_date": None}
        row |= {"user_story": None, "color": "#d3d7cf", "status": self._usual(kind, project), "order": self.order()}
        row |= {"type": project["default_issue_type"], "severity": project["default_severity"]}
        row |= {"priority": project["default_priority"], "points": {}}
        if kind == "userstories":
            roles = [one for one in self.own("roles", project["id"]) if one["computable"]]
            row["points"] = {str(one["id"]): project["default_points"] for one in roles}
        given = self._checked(kind, project, body)
        row["points"] |= given.pop("points", {})
        row |= given
        if kind == "tasks" and row["user_story"]:
            row["milestone"] = self.items["userstories"][row["user_story"]]["milestone"]
        row["id"] = self._next(kind)
        row["ref"] = self._refs[project["id"]] = self._refs.get(project["id"], 0) + 1
        self.items[kind][row["id"]] = row
        self.logs[kind, row["id"]] = []
        self._settle(kind, row)
        return row

    def _usual(self, kind: str, project: Json) -> int:
        name = {"epics": "epic", "userstories": "us", "tasks": "task", "issues": "issue"}[kind]
        found: int = project[f"default_{name}_status"]
        return found

    def _checked(self, kind: str, project: Json, body: Mapping[str, Any]) -> Json:
        """The fields of a body this kind has. Raises the 400 of the field that is wrong."""
        made = {name: body[name] for name in shapes.FIELDS[kind] if name in body}
        tables = {"status": KINDS[kind], "type": "issue-types", "severity": "severities", "priority": "priorities"}
        for name, table in tables.items():
            if name in made and made[name] not in [one["id"] for one in self.own(table, project["id"])]:
                raise invalid_pk(name, made[name])
        if made.get("assigned_to") is not None and made["assigned_to"] not in self.users:
            raise invalid_pk("assigned_to", made["assigned_to"])
        if made.get("user_story") is not None and made["user_story"] not in self.items["userstories"]:
            raise invalid_pk("user_story", made["user_story"])
        if made.get("milestone") is not None and made["milestone"] not in [one["id"] for one in self.milestones]:
            raise invalid_pk("milestone", made["milestone"])
        if "subject" in made and not made["subject"]:
            raise Answer(400, {"subject": ["This field is required."]})
        if "tags" in made:
            made["tags"] = [tag[0] if isinstance(tag, list) else tag for tag in made["tags"] or []]
            if any("," in tag for tag in made["tags"]):
                raise Answer(400, {"tags": ["A tag must not contain a comma."]})
        if made.get("due_date"):
            try:
                datetime.strptime(made["due_date"], "%Y-%m-%d")  # noqa: DTZ007  # a day
            except ValueError:
                raise Answer(400, {"due_date": ["Date has wrong format."]}) from None
        return made

    def patch(self, kind: str, id: int, body: Mapping[str, Any], author: Json) -> Json:
        row = self.find(kind, id)
        version = body.get("version")
        if not isinstance(version, int) or isinstance(version, bool):
            raise Answer(400, {"version": "The version parameter is not valid"})
        given = self._checked(kind, self.projects[row["project"]], body)
        if "points" in given:
            given["points"] = row["points"] | given["points"]
        log = self.logs[kind, id]
        changed = {name for entry in log if entry["version"] > version for name in entry["diff"]}
        if version > row["version"] or (version < row["version"] and changed & given.keys()):
            raise Answer(400, {"version": "The version doesn't match with the current one"})
        diff = {name: [row[name], value] for name, value in given.items() if row[name] != value}
        comment = body.get("comment") or ""
        row |= given
        if row["is_blocked"] is False:
            row["blocked_note"] = ""
        row["version"] += 1
        row["modified_date"] = self.tick()
        values = {}
        if "status" in diff:
            names = {one["id"]: one["name"] for one in self.values[KINDS[kind]]}
            values["status"] = {str(pk): names[pk] for pk in diff["status"]}
            if kind == "userstories":
                row["kanban_order"] = self.order() * 1000
        if comment and author["id"] not in row["watchers"]:
            row["watchers"].append(author["id"])
        entry = {"id": str(uuid.uuid4()), "at": row["modified_date"], "diff": diff, "values": values}
        log.append(entry | {"comment": comment, "version": row["version"], "author": author["id"]})
        self._settle(kind, row)
        return row

    def _settle(self, kind: str, row: Json) -> None:
        """A task is finished by its status, a story by its tasks, or by its status where it has none."""
        row.setdefault("kanban_order", row["order"] * 1000)
        if kind == "tasks":
            is_closed = self.status_of(kind, row)["is_closed"]
            row["finished"] = (row["finished"] or row["modified_date"]) if is_closed else None
            if row["user_story"] in self.items["userstories"]:
                story = self.items["userstories"][row["user_story"]]
                story["finished"] = (story["finished"] or self.tick()) if self.is_closed(story) else None

    def is_closed(self, story: Json) -> bool:
        tasks = [one for one in self.items["tasks"].values() if one["user_story"] == story["id"]]
        if tasks:
            return all(self.status_of("tasks", one)["is_closed"] for one in tasks)
        return bool(self.status_of("userstories", story)["is_closed"])

    def status_of(self, kind: str, row: Json) -> Json:
        return next(one for one in self.values[KINDS[kind]] if one["id"] == row["status"])

    def delete(self, kind: str, id: int) -> None:
        self.find(kind, id, message=False)
        del self.items[kind][id]
        if kind == "userstories":
            self.related = [one for one in self.related if one["user_story"] != id]
            self.items["tasks"] = {pk: one for pk, one in self.items["tasks"].items() if one["user_story"] != id}
        if kind == "epics":
            self.related = [one for one in self.related if one["epic"] != id]

    def relate(self, epic: int, body: Mapping[str, Any]) -> Json:
        self.find("epics", epic)
        story = body.get("user_story")
        if story not in self.items["userstories"]:
            raise invalid_pk("user_story", story)
        if any((one["epic"], one["user_story"]) == (epic, story) for one in self.related):
            raise Answer(400, {"user_story": ["This user story is already related to the epic."]})
        self.tick()
        made = {"epic": epic, "user_story": story, "order": self.order()}
        self.related.append(made)
        return made

    def part(self, epic: int, story: int) -> None:
        rest = [one for one in self.related if (one["epic"], one["user_story"]) != (epic, story)]
        if len(rest) == len(self.related):
            raise Answer(404, {"_error_message": ""})
        self.related = rest

    def kanban(self, body: Mapping[str, Any]) -> list[Json]:
        status = body["status_id"]
        if status not in [one["id"] for one in self.own("userstory-statuses", body["project_id"])]:
            raise invalid_pk("status_id", status)
        made = []
        for order, id in enumerate(body["bulk_userstories"], 1):
            row = self.find("userstories", id)
            row |= {"status": status, "kanban_order": order}
            made.append({"id": id, "swimlane": None, "status": status, "kanban_order": order})
        return made

    # As they go over the wire

    def shown(self, kind: str, row: Json, *, whole: bool = False) -> Json:
        project = self.projects[row["project"]]
        assigned = self.users.get(row["assigned_to"] or 0)
        made = shapes.common(row, project, self.status_of(kind, row), assigned, self.users[row["owner"]])
        made |= _SHOWN[kind](self, row)
        if whole:
            made |= shapes.whole(row)
        return made

    def epics_of(self, story: int) -> list[Json] | None:
        found = [self.items["epics"][one["epic"]] for one in self.related if one["user_story"] == story]
        return [
            {name: epic[name] for name in ("id", "ref", "subject", "color")}
            | {"project": {name: self.projects[epic["project"]][name] for name in ("id", "name", "slug")}}
            for epic in found
        ] or None


def _epic(world: World, row: Json) -> Json:
    stories = [world.items["userstories"][one["user_story"]] for one in world.related if one["epic"] == row["id"]]
    done = sum(world.is_closed(story) for story in stories)
    return {
        "color": row["color"],
        "epics_order": row["order"],
        "client_requirement": False,
        "team_requirement": False,
        "is_closed": world.status_of("epics", row)["is_closed"],
        "user_stories_counts": {"total": len(stories), "progress": float(done) if stories else None},
    }


def _story(world: World, row: Json) -> Json:
    sprint = next((one for one in world.milestones if one["id"] == row["milestone"]), None)
    worth = {one["id"]: one["value"] for one in world.values["points"]}
    values = [worth[point] for point in row["points"].values() if worth[point] is not None]
    return {
        **shapes.due(row),
        "total_comments": sum(bool(entry["comment"]) for entry in world.logs["userstories", row["id"]]),
        "milestone": row["milestone"],
        "milestone_slug": sprint and sprint["slug"],
        "milestone_name": sprint and sprint["name"],
        "is_closed": world.is_closed(row),
        "points": row["points"],
        "backlog_order": row["order"] * 1000,
        "sprint_order": row["order"] * 1000,
        "kanban_order": row["kanban_order"],
        "finish_date": row["finished"],
        "client_requirement": False,
        "team_requirement": False,
        **dict.fromkeys(("generated_from_issue", "generated_from_task", "from_task_ref", "external_reference")),
        "tribe_gig": None,
        "total_points": sum(values) if values else None,
        "comment": "",
        "origin_issue": None,
        "origin_task": None,
        "epics": world.epics_of(row["id"]),
        "epic_order": None,
        "tasks": [],
        "total_attachments": 0,
        "swimlane": None,
        "assigned_users": [row["assigned_to"]] if row["assigned_to"] else [],
    }


def _task(world: World, row: Json) -> Json:
    story = world.items["userstories"].get(row["user_story"] or 0)
    sprint = next((one for one in world.milestones if one["id"] == row["milestone"]), None)
    extra = story and {name: story[name] for name in ("id", "ref", "subject")} | {"epics": world.epics_of(story["id"])}
    return {
        **shapes.due(row),
        "total_comments": sum(bool(entry["comment"]) for entry in world.logs["tasks", row["id"]]),
        "user_story": row["user_story"],
        "milestone": row["milestone"],
        "milestone_slug": sprint and sprint["slug"],
        "finished_date": row["finished"],
        "us_order": row["order"],
        "taskboard_order": row["order"],
        "is_iocaine": False,
        "external_reference": None,
        "is_closed": world.status_of("tasks", row)["is_closed"],
        "user_story_extra_info": extra,
    }


def _issue(world: World, row: Json) -> Json:
    return {
        **shapes.due(row),
        **{name: row[name] for name in ("severity", "priority", "type", "milestone")},
        "finished_date": row["finished"],
        "external_reference": None,
        "is_closed": world.status_of("issues", row)["is_closed"],
    }


_SHOWN: Mapping[str, Callable[[World, Json], Json]] = {
    "epics": _epic,
    "userstories": _story,
    "tasks": _task,
    "issues": _issue,
}
