"""/api/v1/ of planning: epics, stories, issues, sprints and their words; who may change them, and what it costs."""

from datetime import date
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from devflow import actors
from mcpbridge import access
from mcpbridge.models import ApiKey
from workflow.models import Epic, ItemStatus, Kind, Membership, Project, Sprint, UserStory
from workflow.services import projects
from workflow.services.agile import items, sprints, work

pytestmark = pytest.mark.django_db

KINDS = ("epics", "stories", "issues", "sprints", "item-statuses", "issue-types")
JSON = "application/json"


@pytest.fixture(autouse=True)
def nobody_is_remembered() -> None:
    access.keyring.forget()


def fill(project: Project, rows: int, *, start: int = 0) -> None:
    """`rows` of everything a list of planning shows."""
    who: dict[str, Any] = {"project": project, "actor": actors.SYSTEM}
    for number in range(start, start + rows):
        sprint = sprints.create(name=f"S{number}", starts_on=date(2027, 1, 1), ends_on=date(2027, 1, 14), **who)
        epic = items.create(Kind.EPIC, fields={"subject": f"Epic {number}"}, **who)
        fields = {"subject": f"Story {number}", "epic_id": epic.pk, "sprint_id": sprint.pk, "tags": ["web"]}
        story = items.create(Kind.USER_STORY, fields=fields, **who)
        work.create(story_id=story.pk, fields={"subject": "Do it"}, **who)
        items.create(Kind.ISSUE, fields={"subject": f"Issue {number}", "severity": "major"}, **who)


@pytest.fixture
def ours() -> Project:
    project = projects.create(slug="ours", name="Ours")
    fill(project, 3)
    return project


@pytest.fixture
def theirs() -> Project:
    project = projects.create(slug="theirs", name="Theirs")
    fill(project, 1)
    return project


def logged_in(name: str, project: Project | None = None, role: str = "member", **more: Any) -> Client:
    user = get_user_model().objects.create_user(name, **more)
    if project is not None:
        Membership.objects.create(user=user, project=project, role=role)
    client = Client()
    client.force_login(user)
    return client


def with_key(*scopes: str, **more: Any) -> Client:
    return Client(headers={"X-API-Key": ApiKey.objects.issue(name="api", scopes=list(scopes), **more)[1]})


@pytest.fixture
def member(ours: Project) -> Client:
    return logged_in("mia", ours)


@pytest.fixture
def admin(ours: Project) -> Client:
    return logged_in("ann", ours, "admin")


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    body: dict[str, Any] = response.json()
    assert body["code"] == code
    return body


def rows(client: Client, path: str) -> list[dict[str, Any]]:
    response = client.get(f"/api/v1/{path}")
    assert response.status_code == 200, response.content
    found: list[dict[str, Any]] = response.json()["results"]
    return found


def post(client: Client, path: str, **body: Any) -> Any:
    return client.post(f"/api/v1/{path}", body, content_type=JSON)


def patch(client: Client, path: str, **body: Any) -> Any:
    return client.patch(f"/api/v1/{path}", body, content_type=JSON)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_shown_to_those_who_see_their_project(
    ours: Project, theirs: Project, member: Client, kind: str
) -> None:
    for client in (member, with_key("read", project_id=ours.pk)):
        found = rows(client, f"{kind}/?limit=200")
        assert found and {row["project"] for row in found} == {"ours"}
        assert client.get(f"/api/v1/{kind}/{found[0]['id']}/").json() == found[0]
    foreign = rows(with_key("read", project_id=theirs.pk), f"{kind}/")[0]["id"]
    problem(member.get(f"/api/v1/{kind}/{foreign}/"), 404, "not_found")
    problem(member.delete(f"/api/v1/{kind}/{foreign}/"), 404, "not_found")
    problem(patch(member, f"{kind}/{foreign}/", name="x"), 404, "not_found")


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_queries_of_a_list_does_not_grow(ours: Project, member: Client, kind: str) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            rows(member, f"{kind}/?limit=200")
        return len(seen)

    few = queries()
    fill(ours, 20, start=3)
    assert queries() == few <= 9


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("epics/?project=ours", 3), ("epics/?project=theirs", 0), ("stories/?tag=web", 3), ("stories/?tag=x", 0),
        ("stories/?search=Story 1", 1), ("stories/?status=new", 3), ("stories/?category=done", 0),
        ("stories/?without_sprint=true", 0), ("stories/?unassigned=true", 3), ("stories/?assigned_to=mia", 0),
        ("stories/?blocked=true", 0), ("stories/?ordering=-ref", 3), ("issues/?severity=major", 3),
        ("issues/?severity=minor", 0), ("issues/?type=bug", 3), ("sprints/?closed=false", 3),
        ("item-statuses/?kind=epic", 4), ("issue-types/?search=bug", 1), ("stories/?priority=normal", 3),
    ],
)  # fmt: skip
def test_lists_are_narrowed(member: Client, query: str, count: int) -> None:
    assert len(rows(member, query)) == count


@pytest.mark.parametrize(
    "query", ["stories/?epic=x", "stories/?priority=huge", "issues/?severity=x", "epics/?search=%00", "epics/?limit=0",
              "stories/?category=x", "item-statuses/?kind=x", "sprints/?closed=maybe", "epics/?ref=0"],
)  # fmt: skip
def test_a_bad_filter_is_refused(member: Client, query: str) -> None:
    response = member.get(f"/api/v1/{query}")
    assert response.status_code in (200, 422)
    if response.status_code == 200:
        assert query == "sprints/?closed=maybe"  # what is no boolean narrows nothing


def test_an_epic_and_its_story_are_made_changed_and_deleted(ours: Project, member: Client) -> None:
    epic = post(member, "epics/", project="ours", subject="Paying", color="#4da6ff", assigned_to="mia").json()
    assert (epic["status"], epic["assigned_to"], epic["version"]) == ("new", "mia", 1)
    assert epic["progress"] == {"total": 0, "completed": 0, "percent": 0}
    sprint = Sprint.objects.filter(project=ours).first()
    assert sprint is not None
    made = post(member, "stories/", project="ours", subject="Pay", epic=epic["id"], sprint=sprint.pk,
                points={"front": 2, "back": 3}, due_on="2027-02-28", priority="high", tags=["a"])  # fmt: skip
    story = made.json()
    assert (made.status_code, story["total_points"], story["epic"], story["created_by"]) == (201, 5, epic["id"], "mia")
    path = f"stories/{story['id']}/"
    changed = patch(member, path, status="done", epic=None, assigned_to=None, version=1).json()
    assert (changed["status"], changed["epic"], changed["version"]) == ("done", None, 2)
    assert changed["closed_at"]
    problem(patch(member, path, subject="Late", version=1), 409, "conflict")
    assert patch(member, path, subject="Now", version=2).json()["subject"] == "Now"
    assert member.delete(f"/api/v1/{path}").status_code == 204
    problem(member.get(f"/api/v1/{path}"), 404, "not_found")
    assert member.delete(f"/api/v1/epics/{epic['id']}/").status_code == 204


WRONG: list[dict[str, Any]] = [
    *({"subject": ""}, {"subject": "x" * 201}, {"subject": "x\0"}, {"status": "nowhere"}, {"status": None}),
    *({"epic": 10**9}, {"epic": "one"}, {"sprint": 10**9}, {"assigned_to": "nobody"}, {"points": {"front": -1}}),
    *({"points": {"nobody": 1}}, {"tags": ["a,b"]}, {"tags": ["t"] * 33}, {"due_on": "2027-02-30"}),
    *({"priority": "huge"}, {"unknown": 1}, {"version": 1}),
]


@pytest.mark.parametrize(
    "body",
    [
        {},
        *({"subject": "x", **wrong} for wrong in WRONG),
    ],
)
def test_a_bad_story_is_refused_naming_the_field(ours: Project, member: Client, body: dict[str, Any]) -> None:
    before = UserStory.objects.count()
    said = problem(post(member, "stories/", project="ours", **body), 422, "invalid_input")
    named = {name.split(".")[0] for name in said["errors"]}
    assert named & ({*body} - {"subject"} or {"subject"}) or named & {"epicId", "sprintId", "subject"}
    assert UserStory.objects.count() == before


def test_what_another_project_has_is_unknown(ours: Project, theirs: Project, member: Client) -> None:
    foreign = Epic.objects.get(project=theirs).pk
    problem(post(member, "stories/", project="ours", subject="x", epic=foreign), 422, "invalid_input")
    problem(post(member, "stories/", project="theirs", subject="x"), 404, "not_found")
    problem(post(member, "sprints/", project="theirs", name="x", starts_on="2027-01-01", ends_on="2027-01-02"), 404,
            "not_found")  # fmt: skip


def test_comments_are_read_and_written(ours: Project, member: Client) -> None:
    for kind in ("epics", "stories", "issues"):
        path = f"{kind}/{rows(member, f'{kind}/')[0]['id']}/comments/"
        assert post(member, path, body="Good").json()["actor_name"] == "mia"
        assert [one["body"] for one in rows(member, path)] == ["Good"]
        problem(post(member, path, body=""), 422, "invalid_input")


def test_sprints_are_made_closed_and_deleted_when_empty(ours: Project, member: Client) -> None:
    days = {"starts_on": "2027-03-01", "ends_on": "2027-03-14"}
    made = post(member, "sprints/", project="ours", name="Spring", **days).json()
    assert (made["slug"], made["is_closed"]) == ("spring", False)
    path = f"sprints/{made['id']}/"
    assert patch(member, path, is_closed=True, name="Spring 1").json()["is_closed"] is True
    problem(patch(member, path, ends_on="2027-02-01"), 422, "invalid_input")
    problem(patch(member, path, slug="x"), 422, "invalid_input")
    assert member.delete(f"/api/v1/{path}").status_code == 204
    held = rows(member, "sprints/")[0]["id"]
    problem(member.delete(f"/api/v1/sprints/{held}/"), 409, "conflict")


def test_words_are_for_admins_and_those_in_use_stay(ours: Project, admin: Client, member: Client) -> None:
    body = {"project": "ours", "kind": "user_story", "name": "On ice", "category": "blocked", "color": "#123abc"}
    problem(post(member, "item-statuses/", **body), 403, "forbidden")
    made = post(admin, "item-statuses/", **body).json()
    assert (made["slug"], made["order"], made["is_closed"]) == ("on-ice", 8, False)
    problem(post(admin, "item-statuses/", **body), 409, "conflict")
    path = f"item-statuses/{made['id']}/"
    assert patch(admin, path, name="Frozen", category="closed").json()["is_closed"] is True
    assert member.delete(f"/api/v1/{path}").status_code == 403
    assert admin.delete(f"/api/v1/{path}").status_code == 204
    used = ItemStatus.objects.get(project=ours, kind="epic", slug="new").pk
    problem(admin.delete(f"/api/v1/item-statuses/{used}/"), 409, "conflict")
    ids = [row["id"] for row in rows(admin, "issue-types/?ordering=order")]
    turned = post(admin, "issue-types/order/", project="ours", ids=ids[::-1]).json()
    assert [row["id"] for row in turned] == ids[::-1]
    problem(post(admin, "issue-types/order/", project="ours", ids=ids[:1]), 422, "invalid_input")
    problem(post(member, "issue-types/order/", project="ours", ids=ids), 403, "forbidden")
    kind = post(admin, "issue-types/", project="ours", name="Idea").json()
    assert admin.delete(f"/api/v1/issue-types/{kind['id']}/").status_code == 204


def test_a_viewer_and_a_reading_key_change_nothing(ours: Project) -> None:
    before = ours.events.count()
    for client in (logged_in("vera", ours, "viewer"), with_key("read", project_id=ours.pk)):
        for kind in KINDS:
            path = f"{kind}/{rows(client, f'{kind}/')[0]['id']}/"
            problem(patch(client, path), 403, "forbidden")
            problem(client.delete(f"/api/v1/{path}"), 403, "forbidden")
        problem(post(client, "epics/", project="ours", subject="x"), 403, "forbidden")
    assert ours.events.count() == before
