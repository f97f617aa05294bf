"""A Taiga project's export file becomes a project, and a project becomes such a file."""

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from devflow.actors import SYSTEM
from devflow.errors import DevFlowError
from tests.running import devflow
from workflow.models import (
    Comment,
    Epic,
    Issue,
    IssueType,
    ItemStatus,
    Membership,
    Note,
    Project,
    Sprint,
    Task,
    UserStory,
)
from workflow.services import projects
from workflow.taiga import dump, importing, importing_file

pytestmark = pytest.mark.django_db
Json = dict[str, Any]
WHEN = "2025-03-01T10:00:00+0000"


def words(*names: str, closed: str = "Done") -> list[Json]:
    return [
        {
            "name": name,
            "slug": name.lower().replace(" ", "-"),
            "order": at,
            "is_closed": name == closed,
            "color": "#70728F",
        }
        for at, name in enumerate(names, 1)
    ]


def common(ref: int, subject: str, status: str, **more: Any) -> Json:
    return {
        "ref": ref,
        "subject": subject,
        "description": f"What {subject} is about.",
        "status": status,
        "owner": "ann@example.com",
        "assigned_to": None,
        "created_date": WHEN,
        "modified_date": WHEN,
        "version": 3,
        "is_blocked": False,
        "blocked_note": "",
        "tags": ["shop"],
        "history": [],
        "attachments": [],
        **more,
    }


@pytest.fixture
def export() -> Json:
    """A small export with everything that is read of one."""
    said = {"type": 1, "comment": "Looks good.", "created_at": WHEN, "user": ["bob@example.com", "Bob"]}
    return {
        "name": "Shop",
        "slug": "team-shop",
        "description": "A shop.",
        "is_private": True,
        "tags": None,
        "points": [{"name": "?", "value": None, "order": 1}, {"name": "5", "value": 5.0, "order": 2}],
        "roles": [{"name": "Back", "slug": "back", "order": 1, "computable": True, "permissions": []}],
        "memberships": [{"user": "ann@example.com", "email": "ann@example.com", "role": "Back", "is_admin": True}],
        "milestones": [
            {
                "name": "Sprint 1",
                "slug": "sprint-1",
                "estimated_start": "2025-03-01",
                "estimated_finish": "2025-03-14",
                "closed": False,
            }
        ],
        "epic_statuses": words("New", "Done"),
        "us_statuses": words("New", "In progress", "Done"),
        "task_statuses": words("New", "In progress", "Done"),
        "issue_statuses": words("New", "Done"),
        "issue_types": [{"name": "Bug", "order": 1, "color": "#E44057"}],
        "severities": [{"name": name, "order": at} for at, name in enumerate(("Minor", "Critical"), 1)],
        "priorities": [{"name": name, "order": at} for at, name in enumerate(("Low", "High"), 1)],
        "epics": [common(1, "Checkout", "New", color="#4DA6FF", related_user_stories=[{"user_story": 2, "order": 1}])],
        "user_stories": [
            common(
                *(2, "Pay by card", "In progress"),
                milestone="Sprint 1",
                role_points=[{"role": "Back", "points": "5"}],
                due_date="2025-03-10",
                assigned_to="ann@example.com",
                history=[said, {"type": 1, "comment": "", "created_at": WHEN}],
            )
        ],
        "tasks": [
            common(3, "Call the bank", "Done", user_story=2, finished_date=WHEN, history=[said]),
            common(4, "Loose end", "New", user_story=None, is_blocked=True, blocked_note="waits for legal"),
        ],
        "issues": [common(5, "Wrong total", "New", type="Bug", severity="Critical", priority="High", milestone=None)],
        "wiki_pages": [{"slug": "home", "content": "..."}],
        "timeline": [],
    }


def read(export: Json) -> dump.Dump:
    return dump.read(io.BytesIO(json.dumps(export).encode()))


@pytest.fixture
def project() -> Project:
    made = projects.create(slug="shop", name="Shop")
    ann = get_user_model()._default_manager.create(username="ann", email="ann@example.com")
    Membership.objects.create(project=made, user=ann, role=Membership.Role.MEMBER)
    return made


def bring(export: Json, project: Project, **more: Any) -> importing.Imported:
    return importing_file.bring(read(export), into=project, actor=SYSTEM, **more)


def test_an_export_becomes_what_it_holds(export: Json, project: Project) -> None:
    found = bring(export, project)
    assert (found.made, found.changed, found.same, found.comments) == (5, 0, 0, 2)
    epic, story, issue = Epic.objects.get(), UserStory.objects.get(), Issue.objects.get()
    assert (epic.ref, epic.subject, epic.color.lower(), epic.status.name) == (1, "Checkout", "#4da6ff", "New")
    assert (story.epic, story.status.category, story.points, str(story.due_on)) == (
        epic,
        "in_progress",
        {"back": 5.0},
        "2025-03-10",
    )
    assert story.sprint == Sprint.objects.get(slug="sprint-1")
    assert story.assigned_to is not None and story.assigned_to.username == "ann"
    done, loose = Task.objects.order_by("ref")
    assert (done.ref, done.status, done.user_story, done.completed_at is not None) == (3, "done", story, True)
    assert (loose.status, loose.manual_block, loose.user_story) == ("pending", "waits for legal", None)
    assert (issue.severity, issue.priority, issue.type) == ("critical", "high", IssueType.objects.get(slug="bug"))
    assert Comment.objects.get().body == Note.objects.get().body == "Looks good."
    project.refresh_from_db()
    assert project.next_ref == 6
    assert read(export).left_out == {"wiki pages": 1}


def test_repeated_it_makes_nothing_twice_and_brings_what_changed(export: Json, project: Project) -> None:
    bring(export, project)
    again = bring(export, project)
    assert (again.made, again.changed, again.same) == (0, 0, 5)
    later = copy.deepcopy(export)
    later["issues"][0] |= {"subject": "Wrong sum", "version": 4}
    later["epics"].append(common(6, "Returns", "New"))
    changed = bring(later, project)
    assert (changed.made, changed.changed, changed.same) == (1, 1, 4)
    assert Issue.objects.get().subject == "Wrong sum"
    assert (Comment.objects.count(), Note.objects.count()) == (1, 1)


def test_cut_short_it_goes_on_where_it_stopped(export: Json, project: Project, monkeypatch: Any) -> None:
    monkeypatch.setattr(importing_file, "PER_PAGE", 1)
    told: list[tuple[int, int]] = []

    def stop(done: int, total: int, _what: str) -> None:
        told.append((done, total))
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring(export, project, report=stop)
    assert told == [(1, 5), (2, 5), (3, 5)]
    found = bring(export, project)
    assert (found.made, found.same) == (2, 3)
    assert (Epic.objects.count(), UserStory.objects.count(), Task.objects.count(), Issue.objects.count()) == (
        1,
        1,
        2,
        1,
    )


def test_a_project_written_and_read_again_is_the_same(export: Json, project: Project) -> None:
    bring(export, project)
    written = dump.write(project)
    other = projects.create(slug="other", name="Other")
    found = importing_file.bring(read(written), into=other, actor=SYSTEM)
    assert (found.made, found.comments) == (5, 2)
    again = dump.write(other)
    for part in (
        "epics",
        "user_stories",
        "tasks",
        "issues",
        "milestones",
        "us_statuses",
        "points",
        "roles",
        "issue_types",
    ):
        strip = {"created_at", "created_date", "version", "backlog_order", "us_order", "taskboard_order", "epics_order"}
        strip |= {"assigned_to", "owner", "order"}  # nobody of it is a member of the other project

        def bare(rows: list[Json], strip: set[str] = strip) -> list[Json]:
            return [{name: value for name, value in row.items() if name not in strip} for row in rows]

        mine = {json.dumps(row, sort_keys=True) for row in bare(written[part])}
        theirs = {json.dumps(row, sort_keys=True) for row in bare(again[part])}
        assert mine <= theirs, part


BROKEN: list[tuple[str, Callable[[Json], object]]] = [
    ("no tasks", lambda found: found.pop("tasks")),
    ("no name", lambda found: found.pop("name")),
    ("an item without a number", lambda found: found["tasks"][0].pop("ref")),
    ("a list that is none", lambda found: found.update(epics={"a": 1})),
    ("a date that is none", lambda found: found["milestones"][0].update(estimated_start="soon")),
    ("an item's date that is none", lambda found: found["epics"][0].update(created_date="soon")),
]


@pytest.mark.parametrize(("what", "spoil"), BROKEN, ids=[what for what, _ in BROKEN])
def test_what_is_no_export_is_refused(
    export: Json, project: Project, what: str, spoil: Callable[[Json], object]
) -> None:
    spoil(export)
    with pytest.raises(DevFlowError) as refused:
        bring(export, project)
    assert refused.value.code == "invalid_input", what


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"null", b"\xff", b'"text"'])
def test_a_file_that_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(DevFlowError) as refused:
        dump.read(io.BytesIO(raw))
    assert refused.value.code == "invalid_input"


def test_three_thousand_items_come_with_progress_and_once(export: Json, project: Project) -> None:
    export["user_stories"] = [common(ref, f"Story {ref}", "New", role_points=[]) for ref in range(10, 1010)]
    export["tasks"] = [common(ref, f"Task {ref}", "New", user_story=ref - 1000) for ref in range(1010, 2010)]
    export["issues"] = [
        common(ref, f"Issue {ref}", "New", type="Bug", severity="Minor", priority="Low") for ref in range(2010, 3010)
    ]
    export["epics"] = []
    told: list[int] = []
    found = bring(export, project, report=lambda done, _total, _what: told.append(done))
    assert found.made == 3000 and told[-1] == 3000 and len(told) >= 30
    assert Task.objects.filter(user_story__isnull=False).count() == 1000
    with CaptureQueriesContext(connection) as queries:
        again = bring(export, project)
    assert (again.made, again.same) == (0, 3000)
    assert len(queries) < 600
    assert ItemStatus.objects.filter(project=project, kind="task", slug="new").count() == 1


def test_the_command_loads_a_file_and_writes_it_back(export: Json, tmp_path: Path) -> None:
    home, file, back = tmp_path / "home", tmp_path / "export.json", tmp_path / "back.json"
    file.write_text(json.dumps(export), encoding="utf-8")
    loaded = devflow(home, "taiga", "load", "shop", str(file), "--json")
    assert loaded.returncode == 0, loaded.stderr
    assert json.loads(loaded.stdout)["made"] == 5
    written = devflow(home, "taiga", "dump", "shop", "--to", str(back))
    assert written.returncode == 0, written.stderr
    assert {row["subject"] for row in json.loads(back.read_text(encoding="utf-8"))["tasks"]} == {
        "Call the bank",
        "Loose end",
    }
    missing = devflow(home, "taiga", "load", "shop", str(tmp_path / "none.json"))
    assert missing.returncode == 1 and "cannot be read" in missing.stderr
