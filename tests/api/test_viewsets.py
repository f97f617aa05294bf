"""/api/v1/: every list and row, who may see and change it, and what it costs."""

import base64
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from devflow import actors
from mcpbridge import access
from mcpbridge.models import ApiKey, ToolCall
from workflow.models import Agent, Dependency, Event, Gate, Membership, Message, Project, Task
from workflow.services import agents, claims, gates, messages, projects, tasks, transitions

pytestmark = pytest.mark.django_db

KINDS = (
    *("projects", "memberships", "phases", "tasks", "dependencies", "agents", "messages", "gates", "events"),
    *("keys", "calls"),
)
JSON = "application/json"


@pytest.fixture(autouse=True)
def nobody_is_remembered() -> None:
    access.keyring.forget()


def fill(project: Project, rows: int, *, start: int = 0) -> None:
    """`rows` of everything a list of the API shows."""
    users = get_user_model()
    for number in range(start, start + rows):
        name = f"{project.slug}-agent-{number}"
        agent = agents.contact(project_id=project.pk, name=name, session="", client="test", transport="rest")
        actor = actors.agent(agent_id=agent.pk, name=agent.name)
        make = {"project_id": project.pk, "phase_number": 1, "actor": actor, "tags": ["t"]}
        first = tasks.create(description=f"first {number}", **make)
        tasks.create(description=f"second {number}", blocked_by=[first.pk], **make)
        gates.set_gate(project_id=project.pk, name=f"gate-{number}", actor=actor, task_id=first.pk)
        messages.send(project_id=project.pk, to=agent.name, body="hello", actor=actors.SYSTEM, task_id=first.pk)
        user = users.objects.create_user(f"{project.slug}-user-{number}")
        projects.set_member(project_id=project.pk, user_id=user.pk, role="viewer", actor=actors.SYSTEM)
        key, _ = ApiKey.objects.issue(name="k", scopes=["read"], project_id=project.pk, owner_id=user.pk)
        ToolCall.objects.create(
            trace_id="t", worker="w", key=key, project=project, transport="rest", tool="x", effect="", outcome="ok",
            duration_ms=1,
        )  # fmt: skip


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
    user = get_user_model().objects.create_user(name, password="a long enough one", **more)
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
def boss(ours: Project) -> Client:
    return logged_in("root", is_superuser=True, is_staff=True)


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["code"] == code
    assert body["suggestion"] and body["trace_id"]
    return body


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_and_a_row_are_shown_to_those_who_may_see_them(boss: Client, kind: str) -> None:
    page = boss.get(f"/api/v1/{kind}/").json()
    rows = page["results"]
    assert rows
    assert {"next", "previous", "results"} <= page.keys()
    row = rows[0]
    assert boss.get(f"/api/v1/{kind}/{row.get('id', row.get('slug'))}/").json() == row
    assert boss.get(f"/api/v1/{kind}").status_code == 200


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("keys", "calls")])
def test_rows_of_others_answer_as_unknown_ones_do(ours: Project, theirs: Project, boss: Client, kind: str) -> None:
    all_rows = boss.get(f"/api/v1/{kind}/?limit=200").json()["results"]
    foreign = [row for row in all_rows if row.get("project", row.get("slug")) == "theirs"]
    assert foreign
    for client in (logged_in("mia", ours), with_key("read", "write", "admin", project_id=ours.pk)):
        seen = client.get(f"/api/v1/{kind}/?limit=200").json()["results"]
        assert {row.get("project", row.get("slug")) for row in seen} == {"ours"}
        name = foreign[0].get("id", foreign[0].get("slug"))
        problem(client.get(f"/api/v1/{kind}/{name}/"), 404, "not_found")


def test_keys_and_calls_of_others_are_not_shown(ours: Project, theirs: Project, member: Client) -> None:
    assert member.get("/api/v1/keys/").json()["results"] == []
    other = ApiKey.objects.filter(project=theirs).first()
    assert other is not None
    problem(member.get(f"/api/v1/keys/{other.pk}/"), 404, "not_found")
    problem(member.post(f"/api/v1/keys/{other.pk}/revoke/"), 404, "not_found")
    calls = member.get("/api/v1/calls/").json()["results"]
    assert {call["project"] for call in calls} == {"ours"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_queries_of_a_list_does_not_grow_with_its_rows(ours: Project, boss: Client, kind: str) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert boss.get(f"/api/v1/{kind}/?limit=200").status_code == 200
        return len(seen)

    few = queries()
    fill(ours, 27, start=3)
    many = queries()
    assert many == few <= 9


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "limit=-1", "offset=-1", "offset=x", "limit=²", "offset=1000001"]
)
def test_a_bad_page_is_refused(boss: Client, query: str) -> None:
    problem(boss.get(f"/api/v1/tasks/?{query}"), 422, "invalid_input")


def test_pages_walk_through_all_rows_once(boss: Client) -> None:
    first = boss.get("/api/v1/tasks/?limit=4").json()
    second = boss.get("/api/v1/tasks/?limit=4&offset=4").json()
    assert first["count"] == 6
    assert len({row["id"] for row in first["results"] + second["results"]}) == 6


def test_the_event_feed_is_read_by_its_cursor_while_it_grows(ours: Project, boss: Client) -> None:
    page = boss.get("/api/v1/events/?limit=5").json()
    seen = [row["id"] for row in page["results"]]
    tasks.create(project_id=ours.pk, phase_number=1, description="new", actor=actors.SYSTEM)
    while page["next"]:
        page = boss.get(page["next"]).json()
        seen += [row["id"] for row in page["results"]]
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == len(set(seen)) == Event.objects.filter(pk__lte=seen[0]).count()
    problem(boss.get("/api/v1/events/?cursor=nonsense"), 404, "not_found")
    problem(boss.get("/api/v1/events/?limit=500"), 422, "invalid_input")


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("project=ours", 6), ("project=theirs", 0), ("phase=1", 6), ("phase=2", 0), ("status=ready", 3),
        ("status=pending", 3), ("blocked=true", 3), ("blocked=false", 3), ("tag=t", 6), ("tag=u", 0),
        ("priority=medium", 6), ("priority=high", 0), ("agent=nobody", 0), ("search=second", 3), ("ordering=-ref", 6),
    ],
)  # fmt: skip
def test_tasks_are_narrowed(boss: Client, query: str, count: int) -> None:
    assert boss.get(f"/api/v1/tasks/?{query}").json()["count"] == count


@pytest.mark.parametrize(
    "query", ["status=nope", "phase=x", "priority=urgent", "search=%00", "project=%00", "phase=99999999999999999999"]
)
def test_a_bad_filter_is_refused_or_finds_nothing(boss: Client, query: str) -> None:
    problem(boss.get(f"/api/v1/tasks/?{query}"), 422, "invalid_input")


def test_a_task_never_shows_its_lease_token(ours: Project, boss: Client) -> None:
    agent = Agent.objects.first()
    assert agent is not None
    claims.claim(project_id=ours.pk, phase_number=1, actor=actors.agent(agent_id=agent.pk, name=agent.name))
    held = Task.objects.get(lease_token__isnull=False)
    body = boss.get(f"/api/v1/tasks/task-{held.pk}/").content.decode()
    assert held.lease_token is not None
    assert held.lease_token not in body
    assert '"status":"in_progress"' in body


def test_the_browsable_api_answers_a_browser(boss: Client) -> None:
    response = boss.get("/api/v1/tasks/", headers={"Accept": "text/html"})
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/html")
    root = boss.get("/api/v1/", headers={"Accept": JSON}).json()
    assert set(KINDS) <= root.keys()


# --- doors ----------------------------------------------------------------------------------------------------------


def test_without_key_or_login_every_list_is_401(client: Client) -> None:
    for kind in KINDS:
        response = client.get(f"/api/v1/{kind}/", headers={"Accept": "image/png"})
        problem(response, 401, "unauthenticated")
        assert response.headers["WWW-Authenticate"] == 'Bearer realm="devflow"'


def test_a_login_needs_the_csrf_token_and_a_key_does_not(ours: Project) -> None:
    strict = Client(enforce_csrf_checks=True)
    user = get_user_model().objects.create_user("kim", password="x")
    Membership.objects.create(user=user, project=ours)
    strict.force_login(user)
    body = {"project": "ours", "phase": 1, "description": "from a form"}
    problem(strict.post("/api/v1/tasks/", body, JSON), 403, "forbidden")
    keyed = Client(enforce_csrf_checks=True)
    key = ApiKey.objects.issue(name="k", scopes=["write"])[1]
    assert keyed.post("/api/v1/tasks/", body, JSON, headers={"X-API-Key": key}).status_code == 201


def test_a_bad_key_is_refused_even_beside_a_login(member: Client) -> None:
    problem(member.get("/api/v1/tasks/", headers={"X-API-Key": "bad"}), 401, "unauthenticated")


def test_a_key_reads_with_read_and_writes_with_write(ours: Project) -> None:
    body = {"project": "ours", "phase": 1, "description": "x"}
    reader, writer = with_key("read"), with_key("write")
    assert reader.get("/api/v1/tasks/").status_code == 200
    problem(reader.post("/api/v1/tasks/", body, JSON), 403, "forbidden")
    problem(writer.get("/api/v1/tasks/"), 403, "forbidden")
    assert writer.post("/api/v1/tasks/", body, JSON).status_code == 201
    problem(writer.post("/api/v1/projects/", {"slug": "new"}, JSON), 403, "forbidden")


def test_a_viewer_reads_and_changes_nothing(ours: Project) -> None:
    viewer = logged_in("vic", ours, "viewer")
    before = Event.objects.count()
    task = Task.objects.filter(project=ours).first()
    assert task is not None
    assert viewer.get(f"/api/v1/tasks/{task.pk}/").status_code == 200
    for path, body in (
        ("tasks/", {"project": "ours", "phase": 1, "description": "x"}),
        (f"tasks/{task.pk}/cancel/", {}),
        (f"tasks/{task.pk}/notes/", {"body": "x"}),
        ("messages/", {"project": "ours", "to": "*", "body": "x"}),
        ("gates/", {"project": "ours", "name": "g"}),
    ):
        problem(viewer.post(f"/api/v1/{path}", body, JSON), 403, "forbidden")
    problem(viewer.patch("/api/v1/projects/ours/", {"name": "Mine"}, JSON), 403, "forbidden")
    assert Event.objects.count() == before


# --- writing --------------------------------------------------------------------------------------------------------


def test_a_task_is_made_changed_and_called_off(member: Client) -> None:
    made = member.post(
        "/api/v1/tasks/",
        {"project": "ours", "phase": 2, "description": "Build it\n\nwell", "priority": "high", "tags": ["a"]},
        JSON,
    )
    assert made.status_code == 201, made.content
    body = made.json()
    assert (body["subject"], body["phase"], body["priority"], body["created_by"]) == ("Build it", 2, "high", "mia")
    path = f"/api/v1/tasks/{body['id']}/"
    changed = member.patch(path, {"subject": "Build it better", "version": body["version"]}, JSON)
    assert changed.json()["subject"] == "Build it better"
    problem(member.patch(path, {"subject": "late", "version": body["version"]}, JSON), 409, "conflict")
    held = member.patch(path, {"manual_block": "wait for legal"}, JSON).json()
    assert (held["manual_block"], held["status"]) == ("wait for legal", "pending")
    assert member.post(f"{path}notes/", {"body": "hm"}, JSON).status_code == 201
    assert member.get(f"{path}notes/").json()["results"][0]["body"] == "hm"
    assert member.delete(path).status_code == 204
    assert member.get(path).json()["status"] == "cancelled"
    kinds = set(Event.objects.filter(task=int(body["id"].removeprefix("task-"))).values_list("kind", flat=True))
    assert {"task.created", "task.edited", "task.blocked", "task.noted", "task.cancelled"} <= kinds


def test_a_review_is_decided_and_a_failed_task_retried(ours: Project, member: Client) -> None:
    projects.configure(project_id=ours.pk, actor=actors.SYSTEM, require_review=True)
    agent = Agent.objects.filter(project=ours).first()
    assert agent is not None
    actor = actors.agent(agent_id=agent.pk, name=agent.name)
    for end in (transitions.finish, transitions.fail):
        claimed = claims.claim(project_id=ours.pk, phase_number=1, actor=actor).task
        assert claimed is not None
        end(project_id=ours.pk, task_id=claimed.pk, actor=actor)
        path = f"/api/v1/tasks/{claimed.pk}"
        if end is transitions.finish:
            problem(member.post(f"{path}/review/", {"decision": "reject"}, JSON), 422, "invalid_input")
            assert member.post(f"{path}/review/", {"decision": "approve"}, JSON).json()["status"] == "done"
            problem(member.post(f"{path}/review/", {"decision": "approve"}, JSON), 409, "conflict")
        else:
            assert member.post(f"{path}/retry/", {}, JSON).json()["status"] == "ready"


def test_a_key_writes_as_the_agent_it_names(ours: Project) -> None:
    client = with_key("read", "write")
    body = {"project": "ours", "phase": 1, "description": "x"}
    made = client.post("/api/v1/tasks/", body, JSON, headers={"X-Agent-Id": "builder-9"}).json()
    assert made["created_by"] == "builder-9"
    assert Agent.objects.filter(project=ours, name="builder-9").exists()
    problem(client.post("/api/v1/tasks/", body, JSON, headers={"X-Agent-Id": "a" * 101}), 422, "invalid_input")


@pytest.mark.parametrize(
    "body",
    [
        {}, [], "\"x\"", {"project": "ours"}, {"project": "ours", "phase": 1, "description": ""},
        {"project": "ours", "phase": 1, "description": "a\x00"},
        {"project": "ours", "phase": 1, "description": "\ud800"},
        {"project": "ours", "phase": 1, "description": "x", "unknown": 1},
        {"project": "ours", "phase": 10**30, "description": "x"},
        {"project": "ours", "phase": 1, "description": "x", "blocked_by": ["nine"]},
        {"project": "ours", "phase": 1, "description": "x", "metadata": {"a": "\x00"}},
        {"project": "ours", "phase": 1, "description": "x", "metadata": {"a": "\udc00"}},
        {"project": "ours", "phase": 1, "description": "x", "metadata": {"\ude00": 1}},
        {"project": "ours", "phase": 1, "description": "x", "metadata": {"a": 2**64}},
        {"project": "ours", "phase": 1, "description": "x", "priority": "\udc00"},
        {"project": "ours", "phase": 1, "description": "x", "metadata": []},
        {"project": "ours", "phase": 1, "description": "x", "tags": ["x" * 65]},
    ],
)  # fmt: skip
def test_a_bad_task_is_refused_and_changes_nothing(member: Client, body: Any) -> None:
    before = Task.objects.count()
    problem(member.post("/api/v1/tasks/", body, JSON), 422, "invalid_input")
    assert Task.objects.count() == before


def test_a_text_too_long_to_store_is_413_as_it_is_for_tools(member: Client) -> None:
    body = {"project": "ours", "phase": 1, "description": "x" * 100_001}
    problem(member.post("/api/v1/tasks/", body, JSON), 413, "too_large")


def test_metadata_may_hold_any_text_a_person_can_write(member: Client) -> None:
    metadata = {"mood": "\N{GRINNING FACE}", "a": "\\u0000"}
    body = {"project": "ours", "phase": 1, "description": "x", "metadata": metadata}
    made = member.post("/api/v1/tasks/", body, JSON)
    assert made.status_code == 201, made.content
    assert made.json()["metadata"] == metadata


def test_nesting_that_would_exhaust_the_stack_is_refused(member: Client) -> None:
    problem(member.post("/api/v1/tasks/", "[" * 100_000, JSON), 400, "invalid_input")


@pytest.mark.parametrize("cursor", ["p=abc", "p=\x00", "p=1.5", "p=" + "9" * 30])
def test_a_cursor_that_is_not_ours_is_refused(member: Client, cursor: str) -> None:
    sent = base64.b64encode(cursor.encode()).decode()
    problem(member.get("/api/v1/events/", {"cursor": sent}), 422, "invalid_input")


@pytest.mark.parametrize("since", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_moment_outside_the_calendar_is_refused(member: Client, since: str) -> None:
    problem(member.get("/api/v1/events/", {"since": since}), 422, "invalid_input")


def test_malformed_json_is_400_and_forms_are_415(member: Client) -> None:
    problem(member.post("/api/v1/tasks/", "{", JSON), 400, "invalid_input")
    problem(member.post("/api/v1/tasks/", {"project": "ours"}), 415, "invalid_input")


def test_a_foreign_project_cannot_be_written_to(theirs: Project, member: Client) -> None:
    foreign = Task.objects.filter(project=theirs).first()
    assert foreign is not None
    before = Event.objects.count()
    body = {"project": "theirs", "phase": 1, "description": "x"}
    problem(member.post("/api/v1/tasks/", body, JSON), 404, "not_found")
    problem(member.patch(f"/api/v1/tasks/{foreign.pk}/", {"subject": "mine"}, JSON), 404, "not_found")
    problem(member.post(f"/api/v1/tasks/{foreign.pk}/cancel/", {}, JSON), 404, "not_found")
    own = Task.objects.exclude(project=theirs).first()
    assert own is not None
    problem(
        member.post("/api/v1/dependencies/", {"task": str(own.pk), "blocker": str(foreign.pk)}, JSON), 404, "not_found"
    )
    assert Event.objects.count() == before


def test_dependencies_are_added_and_removed_and_a_cycle_is_refused(ours: Project, member: Client) -> None:
    first, second = Task.objects.filter(project=ours).order_by("pk")[:2]
    problem(
        member.post("/api/v1/dependencies/", {"task": first.public_id, "blocker": second.public_id}, JSON),
        409, "conflict",
    )  # fmt: skip
    link = Dependency.objects.get(task=second)
    assert member.delete(f"/api/v1/dependencies/{link.pk}/").status_code == 204
    second.refresh_from_db()
    assert second.status == "ready"
    made = member.post("/api/v1/dependencies/", {"task": first.public_id, "blocker": second.public_id}, JSON)
    assert (made.status_code, made.json()["blocker"]) == (201, second.public_id)


def test_messages_gates_agents_and_members_are_written_through_their_services(ours: Project, boss: Client) -> None:
    agent = Agent.objects.filter(project=ours).first()
    assert agent is not None
    sent = boss.post("/api/v1/messages/", {"project": "ours", "to": agent.name, "body": "hi"}, JSON)
    assert sent.status_code == 201
    acked = boss.post(f"/api/v1/messages/{sent.json()[0]['id']}/ack/")
    assert acked.json()["acknowledged_at"]
    gate = boss.post("/api/v1/gates/", {"project": "ours", "name": "analysis-done", "reason": "looked"}, JSON).json()
    assert (gate["is_set"], gate["actor_name"]) == (True, "root")
    stale = {"project": "ours", "name": "analysis-done", "is_set": False, "expected_version": gate["version"] + 1}
    problem(boss.post("/api/v1/gates/", stale, JSON), 409, "conflict")
    assert boss.post(f"/api/v1/agents/{agent.pk}/retire/").json()["status"] == "offline"
    member = boss.post("/api/v1/memberships/", {"project": "ours", "user": "root", "role": "member"}, JSON).json()
    changed = boss.patch(f"/api/v1/memberships/{member['id']}/", {"role": "viewer"}, JSON).json()
    assert changed["role"] == "viewer"
    assert Gate.objects.count() == 4
    assert Message.objects.filter(sender_name="root").count() == 1


def test_projects_and_phases_are_made_and_changed_by_admins(boss: Client, member: Client) -> None:
    problem(member.post("/api/v1/projects/", {"slug": "mine"}, JSON), 403, "forbidden")
    made = boss.post("/api/v1/projects/", {"slug": "fresh", "template": "bugfix"}, JSON)
    assert made.status_code == 201
    problem(boss.post("/api/v1/projects/", {"slug": "fresh"}, JSON), 409, "conflict")
    limits = boss.patch("/api/v1/projects/fresh/", {"column_limits": {"in_progress": 2}}, JSON).json()
    assert limits["column_limits"] == {"in_progress": 2}
    problem(boss.patch("/api/v1/projects/fresh/", {"column_limits": {"done": 2}}, JSON), 422, "invalid_input")
    body = {"project": "fresh", "number": 9, "name": "Ship", "done_definitions": ["It is out"]}
    phase = boss.post("/api/v1/phases/", body, JSON).json()
    assert phase["done_definitions"] == ["It is out"]
    problem(boss.post("/api/v1/phases/", body, JSON), 422, "invalid_input")
    changed = boss.patch(f"/api/v1/phases/{phase['id']}/", {"wip_limit": 3}, JSON).json()
    assert (changed["wip_limit"], changed["done_definitions"]) == (3, ["It is out"])
    problem(boss.delete(f"/api/v1/phases/{phase['id']}/"), 405, "invalid_input")


# --- keys -----------------------------------------------------------------------------------------------------------


def test_a_key_is_shown_once_and_ends_when_it_is_revoked(member: Client) -> None:
    made = member.post("/api/v1/keys/", {"name": "ci", "scopes": ["read"], "project": "ours"}, JSON)
    assert made.status_code == 201
    body = made.json()
    fresh = Client(headers={"X-API-Key": body["key"]})
    assert fresh.get("/api/v1/tasks/").status_code == 200
    again = member.get(f"/api/v1/keys/{body['id']}/").json()
    assert "key" not in again
    assert "digest" not in again
    for _ in range(2):
        assert member.post(f"/api/v1/keys/{body['id']}/revoke/").json()["revoked_at"]
    problem(fresh.get("/api/v1/tasks/"), 401, "unauthenticated")


def test_nobody_gives_a_scope_or_a_project_they_do_not_have(theirs: Project, member: Client, ours: Project) -> None:
    problem(member.post("/api/v1/keys/", {"name": "x", "scopes": ["admin"]}, JSON), 403, "forbidden")
    problem(member.post("/api/v1/keys/", {"name": "x", "project": "theirs"}, JSON), 404, "not_found")
    problem(member.post("/api/v1/keys/", {"name": "x", "scopes": ["fly"]}, JSON), 422, "invalid_input")
    writer = with_key("read", "write")
    problem(writer.get("/api/v1/keys/"), 403, "forbidden")
    problem(writer.post("/api/v1/keys/", {"name": "x"}, JSON), 403, "forbidden")
    bound = with_key("admin", project_id=ours.pk)
    made = bound.post("/api/v1/keys/", {"name": "child"}, JSON).json()
    assert made["project"] == "ours"


def test_the_log_of_calls_cannot_be_written(boss: Client) -> None:
    call = ToolCall.objects.first()
    assert call is not None
    for method in ("put", "patch", "delete", "post"):
        path = "/api/v1/calls/" if method == "post" else f"/api/v1/calls/{call.pk}/"
        problem(getattr(boss, method)(path, {}, JSON), 405, "invalid_input")


def test_a_key_restricted_to_toolsets_reaches_only_their_rows(ours: Project) -> None:
    client = with_key("read", "write", toolsets=["agents"])
    assert client.get("/api/v1/agents/").status_code == 200
    for path in ("tasks", "phases", "events", "gates", "dependencies", "projects", "memberships"):
        problem(client.get(f"/api/v1/{path}/"), 403, "forbidden")
    body = {"project": "ours", "phase": 1, "description": "x"}
    problem(client.post("/api/v1/tasks/", body, JSON), 403, "forbidden")


def test_an_agent_cannot_retire_another_without_the_scope_admin(ours: Project) -> None:
    other = Agent.objects.filter(project=ours).first()
    assert other is not None
    problem(with_key("read", "write").post(f"/api/v1/agents/{other.pk}/retire/"), 403, "forbidden")
    other.refresh_from_db()
    assert other.retired_at is None
