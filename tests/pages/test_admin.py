"""The admin: every list at a constant cost, actions through services, keys shown once."""

import io
import re
import zipfile
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from devflow import actors
from mcpbridge.models import ApiKey, ToolCall
from tests.pages.conftest import LogIn
from workflow.models import Event, Membership, Phase, Project, Status, Task
from workflow.services import agents, claims, gates, messages, projects, tasks, transitions

LISTS = (
    *("workflow/project", "workflow/phase", "workflow/task", "workflow/agent", "workflow/message", "workflow/gate"),
    *("workflow/event", "mcpbridge/apikey", "mcpbridge/toolcall"),
)


@pytest.fixture
def boss(log_in: LogIn, project: Project) -> Client:
    return log_in(name="boss", is_superuser=True, is_staff=True)


def fill(project: Project, rows: int, *, start: int = 0) -> None:
    for number in range(start, start + rows):
        agent = agents.contact(project_id=project.pk, name=f"a{number}", session="", client="", transport="http")
        actor = actors.agent(agent_id=agent.pk, name=agent.name)
        task = tasks.create(project_id=project.pk, phase_number=1, description="x", actor=actor)
        claims.start(project_id=project.pk, task_id=task.pk, actor=actor)
        gates.set_gate(project_id=project.pk, name=f"g{number}", actor=actor, phase_number=2)
        messages.send(project_id=project.pk, to=agent.name, body="hi", actor=actors.SYSTEM)
        user = get_user_model().objects.create_user(f"u{number}")
        Membership.objects.create(user=user, project=project)
        other = projects.create(slug=f"p{number}", name="p", template=None)
        phase = Phase.objects.create(project=other, number=1, name="one", entry_phase=project.phases.first())
        assert phase.pk
        key, _ = ApiKey.objects.issue(name="k", scopes=["read"], project_id=project.pk, owner_id=user.pk)
        ToolCall.objects.create(
            trace_id="t", worker="w", key=key, project=project, transport="rest", tool="x", effect="", outcome="ok",
            duration_ms=1,
        )  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_the_number_of_queries_of_a_list_does_not_grow_with_its_rows(
    boss: Client, project: Project, name: str, django_assert_max_num_queries: Any
) -> None:
    fill(project, 3)
    boss.get(f"/admin/{name}/")
    with django_assert_max_num_queries(18) as few:
        assert boss.get(f"/admin/{name}/").status_code == 200
    fill(project, 27, start=3)
    with django_assert_max_num_queries(len(few)):
        assert boss.get(f"/admin/{name}/").status_code == 200


@pytest.mark.parametrize("name", LISTS)
def test_every_row_opens_and_can_be_searched(boss: Client, project: Project, name: str) -> None:
    fill(project, 1)
    page = boss.get(f"/admin/{name}/?q=a").content.decode()
    page = boss.get(f"/admin/{name}/").content.decode()
    link = re.search(rf'href="(/admin/{name}/\d+/change/)"', page)
    assert link is not None
    assert boss.get(link[1]).status_code == 200


@pytest.mark.parametrize("name", ["workflow/event", "workflow/message", "mcpbridge/toolcall", "workflow/agent"])
def test_what_happened_cannot_be_changed(boss: Client, project: Project, name: str) -> None:
    fill(project, 1)
    assert boss.get(f"/admin/{name}/add/").status_code == 403
    page = boss.get(f"/admin/{name}/").content.decode()
    link = re.search(rf'href="(/admin/{name}/(\d+)/)change/"', page)
    assert link is not None
    assert boss.post(f"{link[1]}change/", {}).status_code == 403
    assert boss.post(f"{link[1]}delete/", {"post": "yes"}).status_code == 403


def act(boss: Client, name: str, action: str, *ids: int) -> str:
    body = {"action": action, "_selected_action": [str(pk) for pk in ids]}
    return boss.post(f"/admin/{name}/", body, follow=True).content.decode()


def test_tasks_are_released_retried_and_cancelled_through_their_services(boss: Client, project: Project) -> None:
    agent = agents.contact(project_id=project.pk, name="ada", session="", client="", transport="http")
    actor = actors.agent(agent_id=agent.pk, name=agent.name)
    task = claims.claim(project_id=project.pk, phase_number=1, actor=actor).task
    assert task is not None
    page = act(boss, "workflow/task", "release_lease", task.pk)
    assert "1 released" in page
    assert "cannot become ready" in act(boss, "workflow/task", "release_lease", task.pk)
    claims.start(project_id=project.pk, task_id=task.pk, actor=actor)
    transitions.fail(project_id=project.pk, task_id=task.pk, actor=actor)
    act(boss, "workflow/task", "retry_failed", task.pk)
    task.refresh_from_db()
    assert task.status == Status.READY
    act(boss, "workflow/task", "cancel_tasks", task.pk)
    task.refresh_from_db()
    assert task.status == Status.CANCELLED
    kinds = Event.objects.filter(task=task, actor_name="boss", tool="admin").values_list("kind", flat=True)
    assert {"task.released", "task.retried", "task.cancelled"} <= set(kinds)


def test_an_edit_of_a_task_is_an_event_and_keeps_the_rules(boss: Client, project: Project) -> None:
    task = Task.objects.filter(project=project).order_by("pk").first()
    assert task is not None
    body = {
        "subject": "Look again", "description": task.description, "priority": "1", "tags": '["auth"]',
        "manual_block": "wait for the keys", "notes-TOTAL_FORMS": "0", "notes-INITIAL_FORMS": "0",
    }  # fmt: skip
    assert boss.post(f"/admin/workflow/task/{task.pk}/change/", body).status_code == 302
    task.refresh_from_db()
    assert (task.subject, task.priority_name, task.status) == ("Look again", "high", Status.PENDING)
    kinds = set(Event.objects.filter(task=task, actor_name="boss").values_list("kind", flat=True))
    assert {"task.edited", "task.blocked"} <= kinds


def test_a_project_is_made_with_its_phases_and_its_limits_are_checked(boss: Client) -> None:
    body = {
        "slug": "fresh", "name": "Fresh", "description": "", "column_limits": "{}", "template": "bugfix",
        "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0",
    }  # fmt: skip
    assert boss.post("/admin/workflow/project/add/", body).status_code == 302
    made = Project.objects.get(slug="fresh")
    assert made.phases.count() > 1
    assert Event.objects.filter(project=made, kind="project.created", actor_name="boss").exists()
    wrong = boss.post(f"/admin/workflow/project/{made.pk}/change/", {**body, "column_limits": '{"done": 1}'})
    assert "There is no limit for done" in wrong.content.decode()
    body["column_limits"] = '{"ready": 4}'
    assert boss.post(f"/admin/workflow/project/{made.pk}/change/", body).status_code == 302
    made.refresh_from_db()
    assert made.column_limits == {"ready": 4}


def test_phases_travel_as_yaml(boss: Client, project: Project) -> None:
    ids = list(project.phases.values_list("pk", flat=True))
    body = {"action": "export_yaml", "_selected_action": [str(pk) for pk in ids]}
    exported = boss.post("/admin/workflow/phase/", body)
    names = zipfile.ZipFile(io.BytesIO(exported.content)).namelist()
    assert len(names) == len(ids)
    other = projects.create(slug="copy", name="Copy", template=None)
    upload = SimpleUploadedFile("phases.zip", exported.content)
    done = boss.post("/admin/workflow/phase/import/", {"project": other.pk, "archive": upload}, follow=True)
    assert f"{len(ids)} phases imported" in done.content.decode()
    assert list(other.phases.values_list("name", flat=True)) == list(project.phases.values_list("name", flat=True))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.yaml", b"name: X", "is called NN_name.yaml"),
        ("01_x.yaml", b"name: [", "not valid YAML"),
        ("01_x.yaml", b"name: 2024-13-45", "not valid YAML"),
        ("01_x.yaml", b"[" * 5000, "not valid YAML"),
        ("01_x.yaml", b"\xff", "neither YAML text"),
        ("x.zip", b"PK no", "neither YAML text"),
        ("01_x.yaml", b"name: X\ndone_definitions: [a]\nsurprise: 1", "surprise"),
    ],
)
def test_a_bad_import_changes_nothing_and_says_why(
    boss: Client, project: Project, name: str, content: bytes, words: str
) -> None:
    before = Phase.objects.count()
    body = {"project": project.pk, "archive": SimpleUploadedFile(name, content)}
    assert words in boss.post("/admin/workflow/phase/import/", body).content.decode()
    assert Phase.objects.count() == before


def test_a_key_is_made_shown_once_and_revoked(boss: Client, project: Project) -> None:
    body = {"name": "ci", "scopes": ["read", "admin"], "project": project.pk, "expires_in_days": "3"}
    response = boss.post("/admin/mcpbridge/apikey/add/", body)
    assert "no-store" in response.headers["Cache-Control"]
    match = re.search(r"dvf_\w{12}_\w{40}_\w{6}", response.content.decode())
    assert match is not None
    key = ApiKey.objects.get()
    assert Client(headers={"X-API-Key": match[0]}).get("/api/v1/tasks/").status_code == 200
    for path in ("/admin/mcpbridge/apikey/", f"/admin/mcpbridge/apikey/{key.pk}/change/"):
        page = boss.get(path).content.decode()
        assert match[0] not in page
        assert key.digest not in page
    changed = {"name": "ci 2", "scopes": ["read"], "rate_per_minute": "7"}
    assert boss.post(f"/admin/mcpbridge/apikey/{key.pk}/change/", changed).status_code == 302
    key.refresh_from_db()
    assert (key.name, key.scopes, key.rate_per_minute) == ("ci 2", ["read"], 7)
    assert "1 keys revoked" in act(boss, "mcpbridge/apikey", "revoke", key.pk)
    assert Client(headers={"X-API-Key": match[0]}).get("/api/v1/tasks/").status_code == 401
    assert boss.post(f"/admin/mcpbridge/apikey/{key.pk}/delete/", {"post": "yes"}).status_code == 403


def test_agents_are_retired_and_gates_cleared(boss: Client, project: Project) -> None:
    agent = agents.contact(project_id=project.pk, name="ada", session="", client="", transport="http")
    assert "1 retired" in act(boss, "workflow/agent", "retire", agent.pk)
    gate = gates.set_gate(project_id=project.pk, name="analysis-done", actor=actors.SYSTEM)
    assert "1 cleared" in act(boss, "workflow/gate", "clear_gates", gate.pk)
    gate.refresh_from_db()
    assert not gate.is_set


@pytest.mark.parametrize("name", ["workflow/task", "workflow/event", "mcpbridge/toolcall"])
def test_rows_are_exported_as_csv(boss: Client, project: Project, name: str) -> None:
    fill(project, 1)
    page = boss.get(f"/admin/{name}/export/").content.decode()
    fields = re.findall(r'name="([\w-]*resource[\w-]*|[\w]+)" value="on"|name="(\w+)"[^>]*type="checkbox"', page)
    body = {"format": "0", "resource": ""} | {name: "on" for pair in fields for name in pair if name}
    response = boss.post(f"/admin/{name}/export/", body)
    assert response.status_code == 200


def test_who_may_only_look_is_offered_no_action(log_in: LogIn, project: Project) -> None:
    staff = log_in(name="looker", is_staff=True)
    user = get_user_model().objects.get(username="looker")
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_task", "view_apikey"]))
    task = Task.objects.filter(project=project, status=Status.READY).first()
    assert task is not None
    key, _ = ApiKey.objects.issue(name="k", scopes=["read"])
    act(staff, "workflow/task", "cancel_tasks", task.pk)
    act(staff, "mcpbridge/apikey", "revoke", key.pk)
    task.refresh_from_db()
    key.refresh_from_db()
    assert (task.status, key.revoked_at) == (Status.READY, None)


def test_only_a_superuser_makes_or_changes_keys_in_the_admin(log_in: LogIn, project: Project) -> None:
    staff = log_in(name="keeper", is_staff=True)
    codenames = ["view_apikey", "add_apikey", "change_apikey"]
    get_user_model().objects.get(username="keeper").user_permissions.set(
        Permission.objects.filter(codename__in=codenames)
    )
    key, _ = ApiKey.objects.issue(name="k", scopes=["read"])
    body = {"name": "mine", "scopes": ["admin"]}
    assert staff.post("/admin/mcpbridge/apikey/add/", body).status_code == 403
    assert staff.post(f"/admin/mcpbridge/apikey/{key.pk}/change/", body).status_code == 403
    assert "1 keys revoked" in act(staff, "mcpbridge/apikey", "revoke", key.pk)
