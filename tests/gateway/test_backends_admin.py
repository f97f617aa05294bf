"""Backends, actions and composites in the admin: services write, secrets stay sealed, only superusers change."""

import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from devflow.actors import person
from mcpbridge.gateway import backends, looking
from mcpbridge.models import Action, Backend, ChildProcess, CompositeTool, Plan, ToolCall

pytestmark = pytest.mark.django_db

SMALL = str(Path(__file__).parents[1] / "fakes" / "small_backend.py")
BOSS = person(user_id=1, name="boss", tool="tests")
FORM = {"transport": "stdio", "isolation": "agent", "is_enabled": "on"}


def logged_in(name: str, **more: Any) -> Client:
    user = get_user_model().objects.create_user(name, is_staff=True, **more)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def boss() -> Client:
    return logged_in("root", is_superuser=True)


@pytest.fixture
def small() -> Backend:
    row = backends.create(
        by=BOSS, id="small", command=sys.executable, args=[SMALL], env={"TOKEN": "hunter2-and-more"}
    ).backend
    looking.look("small")
    row.refresh_from_db()
    return row


def test_a_backend_is_made_and_changed_without_showing_its_secrets(boss: Client) -> None:
    body = {**FORM, "backend_id": "small", "command": "true", "env_lines": "TOKEN=hunter2-and-more"}
    made = boss.post("/admin/mcpbridge/backend/add/", body)
    assert made.status_code == 302, made.content.decode()
    row = Backend.objects.get()
    assert backends.secrets_of(row, "env") == {"TOKEN": "hunter2-and-more"}
    page = boss.get(f"/admin/mcpbridge/backend/{row.pk}/change/").content.decode()
    assert "TOKEN" in page and "hunter2" not in page
    boss.post(f"/admin/mcpbridge/backend/{row.pk}/change/", {**FORM, "command": "true", "display_name": "Small"})
    row.refresh_from_db()
    assert (row.display_name, backends.secret_names(row, "env")) == ("Small", ["TOKEN"])
    bad = boss.post(f"/admin/mcpbridge/backend/{row.pk}/change/", {**FORM, "command": ""})
    assert bad.status_code == 200 and "Is required for a process" in bad.content.decode()
    assert boss.post(f"/admin/mcpbridge/backend/{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not Backend.objects.exists()
    assert ToolCall.objects.filter(tool="backend.remove", key_name="root").exists()


def test_backends_are_asked_and_switched_from_the_list(boss: Client, small: Backend) -> None:
    def act(name: str) -> str:
        body = {"action": name, "_selected_action": [small.pk]}
        return boss.post("/admin/mcpbridge/backend/", body, follow=True).content.decode()

    assert "tools." in act("ask")
    act("switch_off")
    assert not Backend.objects.get().is_enabled
    act("switch_on")
    assert Backend.objects.get().is_enabled


def test_a_held_action_is_read_and_approved(boss: Client, small: Backend) -> None:
    action = small.actions.get(name="echo")
    action.held = {"name": "echo", "description": "<b>Send it.</b>", "inputSchema": action.input_schema}
    action.held_since = timezone.now()
    action.save()
    page = boss.get(f"/admin/mcpbridge/action/{action.pk}/change/").content.decode()
    assert "+&lt;b&gt;Send it." in page and "<b>Send" not in page
    boss.post("/admin/mcpbridge/action/", {"action": "approve", "_selected_action": [action.pk]})
    action.refresh_from_db()
    assert action.held is None
    body = {"is_enabled": "on", "artifact": "TEXT", "effect_override": "MUTATING", "alias_lines": "say"}
    assert boss.post(f"/admin/mcpbridge/action/{action.pk}/change/", body).status_code == 302
    action.refresh_from_db()
    assert (action.effect_override, action.artifact, action.aliases) == ("MUTATING", "TEXT", ["say"])


def test_a_composite_that_is_saved_again_is_the_next_version(boss: Client, small: Backend) -> None:
    body = {
        "name": "say_twice",
        "description": "Say it.",
        "input_schema": '{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}',
        "steps": '[{"id": "first", "action": "small.echo", "params": {"text": "{{input.text}}"}}]',
        "is_enabled": "on",
    }
    made = boss.post("/admin/mcpbridge/compositetool/add/", body)
    assert made.status_code == 302, made.content.decode()
    row = CompositeTool.objects.get()
    boss.post(f"/admin/mcpbridge/compositetool/{row.pk}/change/", {**body, "description": "Say it, twice."})
    assert sorted(CompositeTool.objects.values_list("version", flat=True)) == [1, 2]
    bad = boss.post("/admin/mcpbridge/compositetool/add/", {**body, "name": "other", "steps": '[{"id": "x"}]'})
    assert bad.status_code == 200 and "errorlist" in bad.content.decode()
    boss.post("/admin/mcpbridge/compositetool/", {"action": "retire", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert row.retired_at is not None


def test_others_see_what_they_may_and_change_nothing(small: Backend) -> None:
    client = logged_in("sue")
    user = get_user_model().objects.get(username="sue")
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="mcpbridge"))
    page = client.get(f"/admin/mcpbridge/backend/{small.pk}/change/").content.decode()
    assert "small" in page and SMALL not in page and "TOKEN" not in page
    body = {**FORM, "backend_id": "evil", "command": "sh"}
    assert client.post("/admin/mcpbridge/backend/add/", body).status_code == 403
    assert client.post(f"/admin/mcpbridge/backend/{small.pk}/change/", body).status_code == 403
    action = Action.objects.filter(backend=small).first()
    assert action is not None
    assert client.post(f"/admin/mcpbridge/action/{action.pk}/change/", {"artifact": "TEXT"}).status_code == 403
    small.refresh_from_db()
    assert small.command == sys.executable


@pytest.mark.parametrize("kind", ["backend", "action", "compositetool", "plan", "childprocess", "toolcall"])
def test_every_list_and_row_opens(boss: Client, small: Backend, kind: str) -> None:
    composite = CompositeTool.objects.create(name="c", description="d")
    plan = Plan.objects.create(
        plan_id="p", query="q", request={}, effect="MUTATING", signature="s", expires_at=timezone.now()
    )
    child = ChildProcess.objects.create(
        child_id="c", backend=small, kind="session", host="h", pid=1, started_ticks=1, owner_pid=1, owner_ticks=1
    )
    call = ToolCall.objects.filter(backend="small").first()
    rows = {"backend": small, "action": small.actions.first(), "compositetool": composite, "plan": plan}
    row = {**rows, "childprocess": child, "toolcall": call}[kind]
    assert row is not None
    assert boss.get(f"/admin/mcpbridge/{kind}/?q=a").status_code == 200
    assert boss.get(f"/admin/mcpbridge/{kind}/{row.pk}/change/").status_code == 200
