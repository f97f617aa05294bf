"""Copying a Taiga into a project here: everything, once, and again only what changed."""

from typing import Any

import pytest

from devflow.actors import SYSTEM
from devflow.errors import DevFlowError, ErrorCode
from tests.fakes import taiga_server as fake
from tests.fakes.taiga_server import TaigaServer
from workflow.models import Comment, Epic, Event, Issue, ItemStatus, Note, Project, Sprint, Task, UserStory
from workflow.services import projects
from workflow.taiga import client, importing_live
from workflow.taiga.importing_live import bring
from workflow.taiga.provider import Filters, Which
from workflow.taiga.remote import RemoteProvider

from .scenes import refused


@pytest.fixture
def near(db: None) -> Project:
    return projects.create(slug="near", name="Near")


@pytest.fixture
def filled(far: RemoteProvider, taiga: TaigaServer) -> RemoteProvider:
    taiga.world.milestone(
        {"project": 2, "name": "One", "estimated_start": "2026-01-01", "estimated_finish": "2026-01-14"}
    )
    epic = far.create("epic", {"subject": "Epic", "color": "#8470ff"})
    slugs = {(row["entityType"], row["slug"]): row["id"] for row in far.statuses(None)}
    story = far.create(
        "user_story",
        {"subject": "Story", "epicId": epic["id"], "sprintId": 1, "points": {"back": 3}, "dueDate": "2027-03-04"},
    )
    for name, slug in (("done", "closed"), ("doing", "in-progress"), ("waiting", "needs-info"), ("new", "new")):
        task = far.create("task", {"subject": name, "userStoryId": story["id"], "tags": ["red"]})
        far.update("task", Which(id=task["id"]), {"statusId": slugs["task", slug]}, comment=f"about {name}")
    far.create("issue", {"subject": "Issue", "severity": "critical", "priority": "high"})
    far.update("user_story", Which(id=story["id"]), {"description": "All of it"}, comment="words")
    return far


def rows() -> dict[str, Any]:
    return {model.__name__: model.objects.count() for model in (Epic, UserStory, Task, Issue, Comment, Note, Sprint)}


def test_everything_arrives_with_its_numbers_states_and_words(
    project: Project, filled: RemoteProvider, near: Project
) -> None:
    told: list[tuple[int, int, str]] = []
    found = bring(project, into=near, actor=SYSTEM, report=lambda *said: told.append(said))
    assert (found.made, found.changed, found.same, found.comments) == (7, 0, 0, 5)
    assert told[-1] == (7, 7, "issues")
    story = UserStory.objects.select_related("epic", "sprint", "status").get(project=near)
    theirs = filled.find("user_story", Filters(), offset=0, limit=1).items[0]
    assert (story.ref, story.subject, story.description) == (theirs["ref"], "Story", "All of it")
    assert (story.epic and story.epic.subject, story.sprint and story.sprint.name) == ("Epic", "One")
    assert (story.points, str(story.due_on), story.created_by) == ({"back": 3.0}, "2027-03-04", "admin")
    assert story.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z") == theirs["createdDate"]
    states = {task.subject: (task.status, task.manual_block) for task in Task.objects.filter(project=near)}
    assert states == {
        "done": ("done", ""),
        "doing": ("in_progress", ""),
        "waiting": ("pending", "Needs Info"),
        "new": ("ready", ""),
    }
    assert set(Task.objects.values_list("user_story", flat=True)) == {story.pk}
    issue = Issue.objects.get(project=near)
    assert (issue.severity, issue.priority, issue.type and issue.type.name) == ("critical", "high", "Bug")
    assert set(Note.objects.values_list("task__subject", "body")) == {(name, f"about {name}") for name in states}
    assert ItemStatus.objects.filter(project=near).count() == 23
    near.refresh_from_db()
    assert near.next_ref == 8
    assert Event.objects.get(project=near, kind="project.imported").after["made"] == 7


def test_again_makes_nothing_twice_and_takes_what_changed(
    project: Project, filled: RemoteProvider, near: Project, taiga: TaigaServer
) -> None:
    bring(project, into=near, actor=SYSTEM)
    before, asked = rows(), len(taiga.requests)
    again = bring(project, into=near, actor=SYSTEM)
    assert (again.made, again.changed, again.same, rows()) == (0, 0, 7, before)
    assert len(taiga.requests) - asked < 16
    filled.update("epic", Which(id=1), {"subject": "Renamed"}, comment="why")
    filled.create("epic", {"subject": "Second"})
    last = bring(project, into=near, actor=SYSTEM)
    assert (last.made, last.changed, last.same, last.comments) == (1, 1, 7 - 1, 1)
    assert sorted(Epic.objects.values_list("subject", flat=True)) == ["Renamed", "Second"]


def test_an_import_that_was_cut_short_goes_on(
    project: Project, filled: RemoteProvider, near: Project, taiga: TaigaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing_live, "PER_PAGE", 2)
    monkeypatch.setattr(client, "READ_SECONDS", 0.2)

    def break_off(done: int, total: int, what: str) -> None:
        if what == "tasks":
            taiga.script(*[fake.reset()] * 3)

    with pytest.raises(DevFlowError, match="Network unreachable"):
        bring(project, into=near, actor=SYSTEM, report=break_off)
    partly = Task.objects.filter(project=near).count()
    assert partly == 2
    found = bring(project, into=near, actor=SYSTEM)
    assert (found.made, found.same) == (7 - 4, 4)
    assert rows()["Task"] == 4


def test_a_task_an_agent_is_at_keeps_its_state(project: Project, filled: RemoteProvider, near: Project) -> None:
    from tests.workflow.scenes import joined
    from workflow.services import claims

    bring(project, into=near, actor=SYSTEM)
    task = Task.objects.get(subject="new")
    held = claims.claim(project_id=near.pk, phase_number=task.phase.number, actor=joined(near, "ada"))
    assert held.task is not None
    far = filled.find("task", Filters(query=task.subject), offset=0, limit=1).items[0]
    closed = next(row["id"] for row in filled.statuses("task") if row["slug"] == "closed")
    filled.update("task", Which(id=far["id"]), {"statusId": closed, "subject": "renamed"})
    bring(project, into=near, actor=SYSTEM)
    task.refresh_from_db()
    assert (task.subject, task.status) == ("renamed", "in_progress")


def test_numbers_that_are_taken_here_are_given_anew(project: Project, filled: RemoteProvider, near: Project) -> None:
    from workflow.services import tasks

    tasks.create(project_id=near.pk, phase_number=1, description="Own", actor=SYSTEM)
    bring(project, into=near, actor=SYSTEM)
    refs = [ref for model in (Epic, UserStory, Task, Issue) for ref in model.objects.values_list("ref", flat=True)]
    assert sorted(refs) == list(range(1, 9))


def test_a_project_that_is_not_connected_has_nothing_to_copy(near: Project) -> None:
    with refused(ErrorCode.NOT_FOUND, "devflow taiga connect"):
        bring(near, into=near, actor=SYSTEM)
