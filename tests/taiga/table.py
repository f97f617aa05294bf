"""The one table the contract of the agile tools is tested from: how each tool is called, and every way it is refused.

`TOOLS` says for each tool what a good call is. `WRONG` says for each property which values its schema refuses, `NOT`
which it lets through and the project refuses. The tests multiply them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.taiga.conftest import Scene

Arguments = dict[str, Any]
Make = Callable[[Scene], Arguments]
UNKNOWN = 999_999


@dataclass(frozen=True)
class Row:
    """One tool. `good` are calls that succeed, whole first. `names`: the kind of item its `id` names."""

    good: tuple[Make, ...]
    names: str = ""
    writes: bool = False
    is_update: bool = False
    needs_project: bool = True


FILTERS: Arguments = {
    "query": "of",
    "tags": ["a", "b"],
    "match": "all",
    "unassigned": True,
    "modifiedSince": "2020-02-29T12:00:00Z",
    "includeDetails": True,
    "offset": 0,
    "limit": 200,
}


def _filters(kind: str, **more: Callable[[Scene], Any]) -> Make:
    return lambda scene: {
        **FILTERS,
        "projectId": scene.project,
        "statusIds": scene.statuses[kind][:2],
        "assigneeIds": [scene.member],
        **{name: of(scene) for name, of in more.items()},
    }


def _lists(kind: str, **more: Callable[[Scene], Any]) -> Row:
    return Row(good=(_filters(kind, **more), lambda scene: {}))


def _searches(kind: str, **more: Callable[[Scene], Any]) -> Row:
    return Row(good=(_filters(kind, **more), lambda scene: {"query": "of"}))


def _gets(kind: str) -> Row:
    return Row(
        good=(
            lambda scene: {"id": scene.ids[kind], "includeComments": True, "projectId": scene.project},
            lambda scene: {"ref": scene.refs[kind]},
        ),
        names=kind,
    )


def _deletes(kind: str) -> Row:
    return Row(good=(lambda scene: {"id": scene.ids[kind], "projectId": scene.project},), names=kind, writes=True)


def _common(scene: Scene, kind: str) -> Arguments:
    return {
        "description": "All of it.",
        "statusId": scene.statuses[kind][1],
        "assignedToId": scene.member,
        "tags": ["red", "green"],
    }


def _epic(scene: Scene) -> Arguments:
    return {**_common(scene, "epic"), "color": "#4da6ff"}


def _story(scene: Scene) -> Arguments:
    return {
        **_common(scene, "user_story"),
        "epicId": scene.ids["epic"],
        "sprintId": scene.sprint,
        "points": {scene.role: 3},
        "dueDate": "2028-02-29",
        **scene.local(priority="highest"),
    }


def _task(scene: Scene) -> Arguments:
    common = _common(scene, "task")
    del common["statusId"]
    return {**common, **scene.local(priority="lowest")}


def _issue(scene: Scene) -> Arguments:
    return {**_common(scene, "issue"), "typeId": scene.type_id, "severity": "critical", "priority": "high"}


def _creates(fields: Make, **needed: Callable[[Scene], Any]) -> Row:
    def least(scene: Scene) -> Arguments:
        return {"subject": "New", **{name: of(scene) for name, of in needed.items()}}

    return Row(
        good=(lambda scene: {**least(scene), **fields(scene), "projectId": scene.project}, least),
        writes=True,
    )


def _updates(kind: str, fields: Make) -> Row:
    def whole(scene: Scene) -> Arguments:
        made = {
            **fields(scene),
            "id": scene.ids[kind],
            "subject": "Changed",
            "blocked": {"isBlocked": True, "reason": "Waiting for an answer."},
            "version": version_of(scene, kind),
            "comment": "Changed as agreed.",
            "projectId": scene.project,
        }
        if kind == "task":
            made["statusId"] = scene.statuses["task"][0]
        return made

    return Row(
        good=(whole, lambda scene: {"ref": scene.refs[kind], "comment": "Only this."}),
        names=kind,
        writes=True,
        is_update=True,
    )


def version_of(scene: Scene, kind: str) -> int:
    version: int = scene.data(f"get_{kind}", id=scene.ids[kind])["version"]
    return version


TOOLS: Mapping[str, Row] = {
    "list_projects": Row(
        good=(lambda scene: {"query": "sho", "offset": 0, "limit": 1}, lambda scene: {}), needs_project=False
    ),
    "set_active_project": Row(
        good=(lambda scene: {"projectId": scene.project}, lambda scene: {"projectSlug": scene.slug}),
        writes=True,
        needs_project=False,
    ),
    "get_project": Row(
        good=(lambda scene: {"projectId": scene.project}, lambda scene: {"projectSlug": scene.slug}),
        needs_project=False,
    ),
    "list_epics": _lists("epic"),
    "get_epic": _gets("epic"),
    "create_epic": _creates(_epic),
    "update_epic": _updates("epic", _epic),
    "delete_epic": _deletes("epic"),
    "list_user_stories": _lists(
        "user_story",
        epicId=lambda scene: scene.ids["epic"],
        sprintId=lambda scene: scene.sprint,
        statusCategory=lambda scene: "new",
        isBlocked=lambda scene: False,
    ),
    "get_user_story": _gets("user_story"),
    "create_user_story": _creates(_story),
    "update_user_story": _updates("user_story", _story),
    "delete_user_story": _deletes("user_story"),
    "list_tasks": _lists("task", userStoryId=lambda scene: scene.ids["user_story"], isBlocked=lambda scene: False),
    "get_task": _gets("task"),
    "create_task": _creates(_task, userStoryId=lambda scene: scene.ids["user_story"]),
    "update_task": _updates("task", _task),
    "delete_task": _deletes("task"),
    "list_issues": _lists(
        "issue",
        severity=lambda scene: ["normal", "major"],
        priority=lambda scene: ["normal"],
        typeIds=lambda scene: [scene.type_id],
    ),
    "get_issue": _gets("issue"),
    "create_issue": _creates(_issue),
    "update_issue": _updates("issue", _issue),
    "delete_issue": _deletes("issue"),
    "search_user_stories": _searches(
        "user_story",
        epicId=lambda scene: scene.ids["epic"],
        sprintId=lambda scene: scene.sprint,
        statusCategory=lambda scene: "new",
        isBlocked=lambda scene: False,
    ),
    "search_epics": _searches("epic"),
    "search_tasks": _searches("task", userStoryId=lambda scene: scene.ids["user_story"], isBlocked=lambda scene: False),
    "search_issues": _searches(
        "issue",
        severity=lambda scene: ["normal"],
        priority=lambda scene: ["normal"],
        typeIds=lambda scene: [scene.type_id],
    ),
    "get_statuses": Row(
        good=(lambda scene: {"entityType": "user_story", "projectId": scene.project}, lambda scene: {})
    ),
    "get_members": Row(
        good=(
            lambda scene: {
                "query": "a",
                "roleId": scene.role_id,
                "includeInactive": True,
                "offset": 0,
                "limit": 10,
                "projectId": scene.project,
            },
            lambda scene: {},
        )
    ),
    "batch_update_user_stories": Row(
        good=(
            lambda scene: {
                "items": [
                    {
                        "id": scene.ids["user_story"],
                        "version": version_of(scene, "user_story"),
                        "fields": {"subject": "By batch", "comment": "All at once."},
                    }
                ],
                "projectId": scene.project,
            },
            lambda scene: {"items": [{"ref": scene.refs["user_story"], "fields": {"tags": []}}]},
        ),
        writes=True,
    ),
    "summarize_user_story": Row(
        good=(
            lambda scene: {"id": scene.ids["user_story"], "projectId": scene.project},
            lambda scene: {"ref": scene.refs["user_story"]},
        ),
        names="user_story",
    ),
}

_ID = (0, -1, 1.5, "1", True, [], 2**53)
_IDS = ("1", [0], ["1"], [None], 5, [1] * 201)
_FLAG = ("true", 1, 0)
_WORDS = (5, [], "a\0b")
_TEXT = (*_WORDS, "x" * 100_001)
_PRIORITIES = ("urgent", "", 1, {})

WRONG: Mapping[str, tuple[Any, ...]] = {
    "projectId": _ID,
    "projectSlug": ("", "no such slug", 5, "x" * 256),
    "id": _ID,
    "ref": (*_ID, 2**31),
    "offset": (-1, "0", 1.5, 1_000_001),
    "limit": (0, 201, -1, "50", 1.5, True),
    "query": (*_WORDS, "x" * 201),
    "tags": (["x"] * 33, ["x" * 41], [""], [" "], ["a,b"], [5], "a"),
    "match": ("some", "", 1),
    "statusIds": _IDS,
    "assigneeIds": _IDS,
    "unassigned": _FLAG,
    "modifiedSince": ("yesterday", "", 5, "20260101"),
    "includeDetails": _FLAG,
    "includeComments": _FLAG,
    "includeInactive": _FLAG,
    "epicId": _ID,
    "sprintId": _ID,
    "userStoryId": _ID,
    "statusCategory": ("closing", "", 1),
    "isBlocked": _FLAG,
    "severity": ("awful", "", 1),
    "priority": _PRIORITIES,
    "typeIds": _IDS,
    "typeId": _ID,
    "subject": ("", "   ", "x" * 201, 5, "a\0b"),
    "description": _TEXT,
    "color": ("blue", "#12345", "#12345g", "#1234567", 5),
    "statusId": _ID,
    "assignedToId": _ID,
    "points": ([], 3, {"back": -1}, {"back": 1001}, {"back": "3"}),
    "dueDate": ("2026-1-1", "tomorrow", "", "2026-01-01T00:00:00Z", 5),
    "blocked": (True, {}, {"isBlocked": 1}, {"isBlocked": True, "reason": "x" * 501}, {"isBlocked": True, "by": 1}),
    "version": (*_ID, 2**31),
    "comment": ("", "  ", 5, "x" * 100_001),
    "entityType": ("sprint", "", 1),
    "roleId": _ID,
    "items": ([], [{}], [{"id": 1}], {}, [{"id": 1, "fields": {"subject": ""}}]),
}
"""Values the published schema refuses, for every property there is; null comes on top."""

NULLABLE = frozenset({"epicId", "sprintId", "assignedToId", "dueDate"})
"""Where null takes a value away; lists only narrow, so there these are not nullable."""


@dataclass(frozen=True)
class Not:
    """Arguments the schema allows and the project refuses: the words of the refusal, and the field they are about."""

    tools: tuple[str, ...]
    change: Make
    message: str
    field: str
    local_only: bool = False


def _of(kinds: tuple[str, ...], *verbs: str) -> tuple[str, ...]:
    return tuple(f"{verb}_{kind}" for verb in verbs for kind in kinds)


_STATUS_KINDS = ("epic", "user_story", "issue")
_LISTS = ("list_epics", "list_user_stories", "list_tasks", "list_issues", "search_epics", "search_tasks")
_STORY = _of(("user_story",), "create", "update")

REFUSED: tuple[Not, ...] = (
    Not(
        (*_of(_STATUS_KINDS, "create", "update"), "update_task"),
        lambda scene: {"statusId": UNKNOWN}, "Invalid statusId", "statusId",
    ),
    Not(
        (*_of(("epic", "issue"), "create", "update"), "update_task"),
        lambda scene: {"statusId": scene.statuses["user_story"][0]}, "Invalid statusId", "statusId",
    ),
    Not(_STORY, lambda scene: {"statusId": scene.statuses["issue"][0]}, "Invalid statusId", "statusId"),
    Not(_STORY, lambda scene: {"statusId": scene.foreign_statuses["user_story"][0]}, "Invalid statusId", "statusId"),
    Not(
        ("update_task",),
        lambda scene: {"statusId": scene.foreign_statuses["task"][0]}, "Invalid statusId", "statusId",
    ),
    Not(_LISTS, lambda scene: {"statusIds": [UNKNOWN]}, "Invalid statusId", "statusIds"),
    Not(
        (*_of(_STATUS_KINDS, "create", "update"), "create_task", "update_task"),
        lambda scene: {"assignedToId": UNKNOWN}, "Invalid assignedToId", "assignedToId",
    ),
    Not(_STORY, lambda scene: {"epicId": UNKNOWN}, "Invalid epicId", "epicId"),
    Not(_STORY, lambda scene: {"epicId": scene.foreign["epic"]}, "Invalid epicId", "epicId"),
    Not(_STORY, lambda scene: {"sprintId": UNKNOWN}, "Invalid sprintId", "sprintId"),
    Not(_STORY, lambda scene: {"points": {"nobody": 1}}, "points: there is no estimating role nobody", "points"),
    Not(_STORY, lambda scene: {"dueDate": "2026-02-30"}, "dueDate: No such date", "dueDate"),
    Not(("create_task",), lambda scene: {"userStoryId": UNKNOWN}, "Invalid userStoryId", "userStoryId"),
    Not(
        ("create_task",),
        lambda scene: {"userStoryId": scene.foreign["user_story"]}, "Invalid userStoryId", "userStoryId",
    ),
    Not(_of(("issue",), "create", "update"), lambda scene: {"typeId": UNKNOWN}, "Invalid typeId", "typeId"),
    Not(_LISTS, lambda scene: {"modifiedSince": "2026-02-30"}, "modifiedSince: No such date", "modifiedSince"),
    Not(
        tuple(name for name, row in TOOLS.items() if row.names and not name.startswith("delete_")),
        lambda scene: {"id": scene.ids["epic"], "ref": 1}, "ref: Give id or ref, not both", "ref",
    ),
    Not(
        ("set_active_project", "get_project"),
        lambda scene: {"projectId": scene.project, "projectSlug": scene.slug},
        "projectSlug: Give projectId or projectSlug, not both", "projectSlug",
    ),
)  # fmt: skip
