"""A real Taiga as a project's provider: its rules, and what it cannot do done here."""

from datetime import UTC, datetime
from typing import Any

import pytest

from devflow.errors import ErrorCode
from tests.fakes.taiga_server import TaigaServer
from workflow.models import Event, Project, RemoteProject
from workflow.taiga import remote as module
from workflow.taiga.provider import Filters, KindName, Which
from workflow.taiga.remote import RemoteProvider

from .scenes import refused


def subjects(far: RemoteProvider, kind: KindName, *, offset: int = 0, limit: int = 50, **filters: Any) -> list[str]:
    return [item["subject"] for item in far.find(kind, Filters(**filters), offset=offset, limit=limit).items]


def story(far: RemoteProvider, subject: str = "One", **fields: Any) -> dict[str, Any]:
    return far.create("user_story", {"subject": subject, **fields})


def status_id(far: RemoteProvider, kind: KindName, slug: str) -> int:
    return next(row["id"] for row in far.statuses(kind) if row["slug"] == slug)


def test_statuses_are_what_their_names_and_taiga_say(far: RemoteProvider) -> None:
    said = {(row["entityType"], row["slug"]): row["category"] for row in far.statuses(None)}
    assert said["user_story", "ready-for-test"] == "in_progress"
    assert said["user_story", "done"] == said["task", "closed"] == "done"
    assert said["user_story", "archived"] == said["issue", "rejected"] == "closed"
    assert said["task", "needs-info"] == "blocked"
    assert said["issue", "postponed"] == "other"


def test_a_stale_version_is_a_conflict_only_where_the_same_field_changed(
    far: RemoteProvider, taiga: TaigaServer
) -> None:
    made = story(far)
    which = Which(id=made["id"])
    far.update("user_story", which, {"subject": "Two"}, version=1)
    moved = far.update("user_story", which, {"dueDate": "2027-01-01"}, version=1)
    assert (moved["subject"], moved["dueDate"], moved["version"]) == ("Two", "2027-01-01", 3)
    with refused(ErrorCode.CONFLICT, "changed meanwhile (version 3, yours is 1)") as caught:
        far.update("user_story", which, {"subject": "Three"}, version=1)
    assert caught.value.details["current"] == far.get("user_story", which)
    with refused(ErrorCode.CONFLICT):
        far.update("user_story", which, {"subject": "Three"}, version=9)
    with refused(ErrorCode.CONFLICT):
        far.update("user_story", which, {"epicId": None}, version=1)
    assert far.update("user_story", which, {"subject": "Four"})["subject"] == "Four"
    assert taiga.count("PATCH") == 3


@pytest.mark.parametrize("kind", ["user_story", "task"])
def test_stories_and_tasks_have_no_priority(far: RemoteProvider, taiga: TaigaServer, kind: KindName) -> None:
    more = {"userStoryId": story(far)["id"]} if kind == "task" else {}
    before = len(taiga.writes)
    with refused(ErrorCode.INVALID_INPUT, "priority: Taiga keeps no priority on"):
        far.create(kind, {"subject": "New", "priority": "high", **more})
    assert len(taiga.writes) == before


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("epic", {"statusId": 2}, "Invalid statusId"),
        ("user_story", {"statusId": 99}, "Invalid statusId"),
        ("user_story", {"epicId": 99}, "Invalid epicId"),
        ("user_story", {"sprintId": 99}, "Invalid sprintId"),
        ("user_story", {"points": {"back": 4}}, "points: 4 is not on this project's scale"),
        ("user_story", {"points": {"cook": 3}}, "points: there is no estimating role cook"),
        ("user_story", {"points": {"stakeholder": 3}}, "points: there is no estimating role stakeholder"),
        ("user_story", {"tags": ["a,b"]}, "tags: a tag of Taiga has no comma"),
        ("task", {"userStoryId": 99}, "Invalid userStoryId"),
        ("issue", {"assignedToId": 99}, "Invalid assignedToId"),
        ("issue", {"typeId": 99}, "Invalid typeId"),
        ("issue", {"severity": "blocker"}, "Invalid severity"),
        ("issue", {"priority": "lowest"}, "Invalid priority"),
        ("issue", {"colour": 1}, "colour: Taiga keeps no such field"),
    ],
)  # fmt: skip
def test_what_the_project_does_not_have_is_refused_before_anything_is_written(
    far: RemoteProvider, taiga: TaigaServer, kind: KindName, fields: dict[str, Any], message: str
) -> None:
    with refused(ErrorCode.INVALID_INPUT, message):
        far.create(kind, {"subject": "New", **fields})
    assert taiga.writes == []


def test_what_taiga_refuses_is_said_in_our_names(far: RemoteProvider, taiga: TaigaServer) -> None:
    far.attributes()
    with refused(ErrorCode.INVALID_INPUT, "subject: Required") as caught:
        far.create("epic", {"subject": ""})
    assert caught.value.details == {"subject": "This field is required."}
    with refused(ErrorCode.INVALID_INPUT, "dueDate: Date has wrong format."):
        far.create("user_story", {"subject": "New", "dueDate": "soon"})


def test_a_storys_epic_is_linked_moved_and_unlinked(far: RemoteProvider, taiga: TaigaServer) -> None:
    first, second = (far.create("epic", {"subject": name})["id"] for name in ("First", "Second"))
    made = story(far, epicId=first)
    which = Which(id=made["id"])
    assert made["epicId"] == first
    assert far.update("user_story", which, {"epicId": second, "subject": "Moved"})["epicId"] == second
    assert [far.get("epic", Which(id=id))["userStoryIds"] for id in (first, second)] == [[], [made["id"]]]
    before = len(taiga.writes)
    assert far.update("user_story", which, {"epicId": second})["epicId"] == second
    assert len(taiga.writes) == before, "it is there already"
    assert far.update("user_story", which, {"epicId": None})["epicId"] is None
    taiga.world.relate(first, {"user_story": made["id"]})
    taiga.world.relate(second, {"user_story": made["id"]})
    assert far.get("user_story", which)["epicId"] == first
    with refused(ErrorCode.CONFLICT, "several epics"):
        far.update("user_story", which, {"epicId": second, "subject": "No"})
    assert far.get("user_story", which)["subject"] == "Moved"


def test_progress_moves_from_a_task_to_its_epic(far: RemoteProvider) -> None:
    epic = far.create("epic", {"subject": "Epic"})["id"]
    first = story(far, epicId=epic)
    story(far, "Bare", epicId=epic)
    tasks = [far.create("task", {"subject": f"T{at}", "userStoryId": first["id"]}) for at in range(2)]
    far.update("task", Which(id=tasks[0]["id"]), {"statusId": status_id(far, "task", "closed")})
    assert far.get("user_story", Which(id=first["id"]))["progress"] == {"total": 2, "completed": 1, "percent": 50}
    whole = far.get("epic", Which(id=epic))
    assert whole["progress"] == {"total": 3, "completed": 1, "percent": 33}
    assert far.find("epic", Filters(), offset=0, limit=5).items[0]["progress"] == whole["progress"]


def test_children_of_many_are_read_in_few_requests(far: RemoteProvider, taiga: TaigaServer) -> None:
    for at in range(12):
        far.create("task", {"subject": f"T{at}", "userStoryId": story(far, f"S{at}")["id"]})
    before = len(taiga.requests)
    page = far.find("user_story", Filters(), offset=0, limit=12)
    assert [len(item["taskIds"]) for item in page.items] == [1] * 12
    assert len(taiga.requests) - before == 3


def test_every_filter_finds_exactly_what_it_names(far: RemoteProvider, taiga: TaigaServer) -> None:
    ada = taiga.world.user("ada", "x", name="Ada")
    taiga.world.join(2, ada, "back")
    sprint = taiga.world.milestone(
        {"project": 2, "name": "One", "estimated_start": "2026-01-01", "estimated_finish": "2026-01-14"}
    )["id"]
    epic = far.create("epic", {"subject": "E"})["id"]
    story(far, "red", tags=["red"], epicId=epic, assignedToId=ada["id"])
    story(far, "both", tags=["red", "blue"], sprintId=sprint, assignedToId=5)
    late = story(far, "done", tags=["blue"], statusId=status_id(far, "user_story", "done"))
    far.update("user_story", Which(id=late["id"]), {"blocked": {"isBlocked": True, "reason": "no"}})
    ready = status_id(far, "user_story", "ready")
    for filters, expected in (
        ({"tags": ("red",)}, ["red", "both"]),
        ({"tags": ("red", "blue")}, ["red", "both", "done"]),
        ({"tags": ("red", "blue"), "match": "all"}, ["both"]),
        ({"epic_id": epic}, ["red"]),
        ({"sprint_id": sprint}, ["both"]),
        ({"assignee_ids": (5,)}, ["both"]),
        ({"assignee_ids": (5, ada["id"])}, ["red", "both"]),
        ({"assignee_ids": (5,), "unassigned": True}, ["both", "done"]),
        ({"unassigned": True}, ["done"]),
        ({"status_category": "done"}, ["done"]),
        ({"status_category": "new"}, ["red", "both"]),
        ({"status_ids": (late["statusId"], ready)}, ["done"]),
        ({"status_ids": (ready,), "status_category": "done"}, []),
        ({"is_blocked": True}, ["done"]),
        ({"is_blocked": False}, ["red", "both"]),
        ({"query": "both"}, ["both"]),
        ({"modified_since": datetime.fromisoformat(late["modifiedDate"])}, ["done"]),
        ({"modified_since": datetime(2100, 1, 1, tzinfo=UTC)}, []),
    ):
        assert subjects(far, "user_story", **filters) == expected, filters
    with refused(ErrorCode.INVALID_INPUT, "Invalid statusId"):
        subjects(far, "user_story", status_ids=(1,))
    for name, severity in (("small", "minor"), ("large", "major"), ("worst", "critical")):
        far.create("issue", {"subject": name, "severity": severity})
    assert subjects(far, "issue", severity=("minor",)) == ["small"]
    assert sorted(subjects(far, "issue", severity=("minor", "major"))) == ["large", "small"]
    assert subjects(far, "issue", severity=("blocker",)) == []


def test_offsets_are_exact_also_where_taiga_gives_shorter_pages(far: RemoteProvider, taiga: TaigaServer) -> None:
    for at in range(11):
        taiga.world.create("tasks", {"project": 2, "subject": str(at)}, taiga.world.users[5])
    every = [str(at) for at in range(11)]
    for most in (None, 4):
        taiga.most_per_page = most
        for offset in (0, 1, 4, 9, 10, 11, 40):
            for limit in (1, 5, 7, 200):
                page = far.find("task", Filters(), offset=offset, limit=limit)
                assert [item["subject"] for item in page.items] == every[offset : offset + limit], (most, offset, limit)
                assert page.total == 11


def test_a_list_that_taiga_cannot_narrow_is_read_within_bounds(
    far: RemoteProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(3):
        story(far, str(at))
    monkeypatch.setattr(module, "MOST_READ", 2)
    with refused(ErrorCode.TOO_LARGE, "Narrow the list"):
        subjects(far, "user_story", is_blocked=False)


def test_others_ids_answer_as_unknown_ids_do(far: RemoteProvider, taiga: TaigaServer) -> None:
    taiga.world.project({"name": "Other"})
    theirs = taiga.world.create("epics", {"project": 3, "subject": "Theirs"}, taiga.world.users[5])
    for id in (theirs["id"], 999):
        for act in (
            lambda id=id: far.get("epic", Which(id=id)),
            lambda id=id: far.update("epic", Which(id=id), {"subject": "Mine"}),
            lambda id=id: far.delete("epic", id),
        ):
            with refused(ErrorCode.NOT_FOUND, f"Epic {id} was not found."):
                act()
    with refused(ErrorCode.INVALID_INPUT, "Invalid epicId"):
        story(far, epicId=theirs["id"])
    assert taiga.writes == []


def test_deleting_twice_is_not_found(far: RemoteProvider) -> None:
    made = far.create("issue", {"subject": "Gone"})
    far.delete("issue", made["id"])
    with refused(ErrorCode.NOT_FOUND):
        far.delete("issue", made["id"])


def test_comments_are_shown_oldest_first(far: RemoteProvider) -> None:
    made = far.create("epic", {"subject": "Talk"})
    for text in ("first", "second"):
        far.update("epic", Which(ref=made["ref"]), {}, comment=text)
    said = far.get("epic", Which(id=made["id"]), comments=True)["comments"]
    assert [(one["text"], one["createdBy"]["username"]) for one in said] == [("first", "admin"), ("second", "admin")]


def test_a_task_may_have_no_story(far: RemoteProvider, taiga: TaigaServer) -> None:
    made = taiga.world.create("tasks", {"project": 2, "subject": "Alone"}, taiga.world.users[5])
    shown = far.get("task", Which(id=made["id"]))
    assert (shown["userStoryId"], shown["priority"], shown["agent"]) == (None, None, None)


def test_attributes_are_kept_and_read_again_for_what_is_unknown(
    project: Project, far: RemoteProvider, taiga: TaigaServer
) -> None:
    far.statuses(None)
    before = len(taiga.requests)
    RemoteProvider(project, far._actor).statuses("task")
    assert len(taiga.requests) == before
    row = {"id": 77, "name": "Parked", "slug": "parked", "order": 9, "is_closed": False, "color": "#123456"}
    taiga.world.values["task-statuses"].append(row | {"project": 2})
    RemoteProject.objects.update(attributes_at=datetime(2026, 1, 1, tzinfo=UTC))
    made = RemoteProvider(project, far._actor).create("task", {"subject": "T", "userStoryId": story(far)["id"]})
    moved = RemoteProvider(project, far._actor).update("task", Which(id=made["id"]), {"statusId": 77})
    assert moved["status"]["category"] == "other"


def test_what_is_written_there_is_logged_here(project: Project, far: RemoteProvider) -> None:
    made = far.create("user_story", {"subject": "Logged"})
    far.update("user_story", Which(id=made["id"]), {"subject": "Renamed"})
    far.delete("user_story", made["id"])
    rows = Event.objects.filter(project=project, kind__startswith="story.").order_by("pk")
    assert [(row.kind, row.after["subject"]) for row in rows] == [
        ("story.created", "Logged"),
        ("story.changed", "Renamed"),
        ("story.deleted", "Renamed"),
    ]
