"""Backends as rows: what may be registered, how secrets are kept, what a look finds, and who hears of a change."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from devflow import ports
from devflow.actors import Actor, person
from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.gateway import backends, catalog, checking, health, looking
from mcpbridge.models import Action, Backend, ToolCall

pytestmark = pytest.mark.django_db

SMALL = str(Path(__file__).parents[1] / "fakes" / "small_backend.py")
BOSS: Actor = person(user_id=1, name="boss", tool="tests")


def small(**more: Any) -> Backend:
    given = {"id": "small", "command": sys.executable, "args": [SMALL], **more}
    return backends.create(by=BOSS, **given).backend


def refused(code: ErrorCode = ErrorCode.INVALID_INPUT, **given: Any) -> dict[str, Any]:
    with pytest.raises(DevFlowError) as caught:
        backends.create(by=BOSS, **given)
    assert caught.value.code is code
    return dict(caught.value.details)


def test_a_backend_is_registered_with_its_secrets_sealed() -> None:
    row = small(env={"TOKEN": "hunter2-and-more", "FROM": "${HOME}"})
    stored = Backend.objects.values().get()
    assert "hunter2" not in json.dumps(stored, default=str)
    assert backends.secret_names(row, "env") == ["FROM", "TOKEN"]
    spec = catalog.backend_spec(row)
    assert spec.env["TOKEN"] == "hunter2-and-more"
    assert "hunter2" not in repr(spec)


def test_every_change_is_in_the_log_of_calls_without_its_values() -> None:
    small(env={"TOKEN": "hunter2-and-more"})
    backends.change("small", by=BOSS, env={"TOKEN": "another-secret"}, display_name="Small")
    backends.remove("small", by=BOSS)
    rows = list(ToolCall.objects.order_by("id"))
    assert [row.tool for row in rows] == ["backend.create", "backend.change", "backend.remove"]
    assert {row.key_name for row in rows} == {"boss"}
    assert rows[1].arguments["settings"] == ["display_name", "env"]
    assert not any("secret" in json.dumps(row.arguments) or "hunter2" in json.dumps(row.arguments) for row in rows)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"id": "a b"}, "id"),
        ({"id": ""}, "id"),
        ({"id": "x" * 65}, "id"),
        ({"id": "DevFlow"}, "id"),
        ({"command": ""}, "command"),
        ({"command": "a\nb"}, "command"),
        ({"args": "text"}, "args"),
        ({"args": [1]}, "args.0"),
        ({"args": ["a\x00"]}, "args.0"),
        ({"transport": "ftp"}, "transport"),
        ({"transport": "http"}, "url"),
        ({"transport": "http", "command": "", "args": [], "url": "file:///etc/passwd"}, "url"),
        ({"transport": "http", "command": "", "args": [], "url": "http://u:p@host/"}, "url"),
        ({"transport": "sse", "url": "http://host/", "command": "x"}, "command"),
        ({"url": "http://host/"}, "url"),
        ({"headers": {"A": "b"}}, "headers"),
        ({"env": {"DEVFLOW_SECRET_KEY": "x"}}, "env"),
        ({"env": {"A": "${DEVFLOW_SECRET_KEY}"}}, "env"),
        ({"env": {"A": "${not a name}"}}, "env"),
        ({"env": {"A B": "x"}}, "env"),
        ({"env": {"A": 1}}, "env"),
        ({"inherit_env": ["DEVFLOW_SECRET_KEY"]}, "inherit_env"),
        ({"timeouts": {"QUERY": 0}}, "timeouts.QUERY"),
        ({"timeouts": {"QUERY": 600_001}}, "timeouts.QUERY"),
        ({"timeouts": {"SLEEP": 5}}, "timeouts"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 65}, "concurrency"),
        ({"concurrency": "8"}, "concurrency"),
        ({"memory_mb": 100}, "memory_mb"),
        ({"warm_spares": 9}, "warm_spares"),
        ({"allowed_roots": ["relative"]}, "allowed_roots"),
        ({"allowed_roots": ["/no/such/place"]}, "allowed_roots"),
        ({"activation": {"params": {}}}, "activation.action"),
        ({"transport": "agent_cli", "wraps": "x", "args": ["-p", "{prompt}"]}, "args"),
        ({"transport": "agent_cli", "args": ["{config}", "{prompt}"]}, "wraps"),
        ({"transport": "agent_cli", "args": ["{config}", "{prompt}"], "wraps": "nobody"}, "wraps"),
        ({"wraps": "x"}, "wraps"),
        ({"is_enabled": "yes"}, "is_enabled"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_its_reason(given: dict[str, Any], field: str) -> None:
    base = {"id": "small", "command": "python3", "args": []}
    reasons = refused(**{**base, **given})
    assert any(name.startswith(field) for name in reasons), reasons
    assert not Backend.objects.exists()
    assert not ToolCall.objects.exists()


def test_an_id_is_taken_once_and_kept_for_good() -> None:
    small()
    refused(ErrorCode.CONFLICT, id="small", command="x")
    with pytest.raises(DevFlowError) as caught:
        backends.change("small", by=BOSS, id="other")
    assert caught.value.details == {"id": "cannot be changed"}
    for act in (backends.change, backends.remove):
        with pytest.raises(DevFlowError) as caught:
            act("nobody", by=BOSS)
        assert caught.value.code is ErrorCode.NOT_FOUND


def test_a_change_adds_replaces_and_drops_secrets_and_repeats_safely() -> None:
    small(env={"A": "1", "B": "2"})
    kept = backends.change("small", by=BOSS, env={"B": "3", "C": "4", "A": None})
    assert backends.secrets_of(kept.backend, "env") == {"B": "3", "C": "4"}
    again = backends.change("small", by=BOSS, env={"B": "3", "A": None})
    assert again.backend.sealed_env == kept.backend.sealed_env
    assert ToolCall.objects.filter(tool="backend.change").count() == 1


def test_secrets_of_another_secret_key_are_kept_until_they_are_entered_again(settings: Any) -> None:
    row = small(env={"TOKEN": "hunter2-and-more"})
    settings.SECRET_KEY = "another-one"
    row = backends.change("small", by=BOSS, display_name="Small").backend
    assert row.sealed_env
    assert any("enter them again" in words for words in backends.warnings_of(row))
    looked = looking.look("small")
    assert not looked.ok and "another secret key" in looked.error
    row = backends.change("small", by=BOSS, env={"TOKEN": "new"}).backend
    assert backends.secrets_of(row, "env") == {"TOKEN": "new"}


@pytest.mark.parametrize(
    ("command", "args", "package"),
    [
        ("npx", ["-y", "@modelcontextprotocol/server-everything"], "@modelcontextprotocol/server-everything"),
        ("npx", ["-y", "@modelcontextprotocol/server-everything@2026.1.1"], ""),
        ("/usr/bin/npx", ["some-server@latest"], "some-server"),
        ("npx", ["--package=tool@1.0", "run-it"], ""),
        ("uvx", ["mcp-server-git"], "mcp-server-git"),
        ("uvx", ["--from", "mcp-server-git==1.2", "server"], ""),
        ("uvx", ["--python", "3.12", "mcp-server-git@1.2.3"], ""),
        ("uvx", ["--from", "git+https://host/x", "server"], ""),
        ("python3", ["server.py"], ""),
        ("npx", [], ""),
    ],
)
def test_a_package_without_a_version_is_noticed(command: str, args: list[str], package: str) -> None:
    assert checking.unpinned_package(command, args) == package
    said = checking.warnings_of(checking.checked({"id": "x", "command": command, "args": args}))
    assert any("is not pinned" in words for words in said) is bool(package)


def test_a_look_finds_the_tools_and_says_what_is_new() -> None:
    small()
    looked = looking.look("small")
    assert looked.ok and looked.tools >= 7 and looked.server["name"] == "small"
    assert "echo" in looked.new
    assert Backend.objects.get().status == "up"
    again = looking.look("small")
    assert (again.new, again.gone, again.held) == ([], [], [])
    assert {row.name: row.effect for row in Action.objects.all()}["read_all"] == "MUTATING"


def test_a_look_that_fails_says_why_without_the_secrets() -> None:
    code = "import os, sys; sys.exit('no, ' + os.environ['TOKEN'])"
    small(args=["-c", code], env={"TOKEN": "hunter2-and-more"})
    looked = looking.look("small")
    assert not looked.ok and looked.suggestion
    row = Backend.objects.get()
    assert row.status == "down"
    assert "hunter2" not in looked.error + row.status_detail
    assert ports.health.probes["gateway"]().status == "degraded"
    backends.change("small", by=BOSS, is_enabled=False)
    assert ports.health.probes["gateway"]().status == "up"


def test_a_round_asks_who_is_due_and_no_one_else() -> None:
    small()
    backends.create(by=BOSS, id="gone", command="/no/such/program")
    backends.create(by=BOSS, id="off", command="/no/such/program", is_enabled=False)
    backends.create(by=BOSS, id="web", transport="http", url="http://127.0.0.1:9/mcp")
    health.look_round()
    states = dict(Backend.objects.values_list("backend_id", "status"))
    assert states == {"small": "up", "gone": "down", "off": "new", "web": "down"}
    checked = dict(Backend.objects.values_list("backend_id", "checked_at"))
    health.look_round()
    assert dict(Backend.objects.values_list("backend_id", "checked_at"))["small"] == checked["small"]
    row = Backend.objects.get(backend_id="small")
    assert not health.is_due(row, timezone.now())
    assert health.is_due(row, timezone.now() + health.WHOLE_LOOK)


def test_an_action_is_edited_and_put_back() -> None:
    small()
    looking.look("small")
    edited = backends.change_action(
        "small", "write_file", by=BOSS, effect_override="EXTERNAL_EXEC", intent_override="EXECUTE", aliases=["save"]
    )
    assert catalog.action_spec(edited, "small").effect == "EXTERNAL_EXEC"
    edited = backends.change_action("small", "write_file", by=BOSS, effect_override="", intent_override="")
    assert catalog.action_spec(edited, "small").effect == "MUTATING"
    before = ToolCall.objects.count()
    backends.change_action("small", "write_file", by=BOSS, effect_override="")
    assert ToolCall.objects.count() == before


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"effect_override": "HARMLESS"}, "effect_override"),
        ({"artifact": "PDF"}, "artifact"),
        ({"aliases": "x"}, "aliases"),
        ({"lookup": {"params": {}}}, "lookup.action"),
        ({"references": {"action": "x", "limit": -1}}, "references.limit"),
        ({"description": "nice"}, "description"),
    ],
)
def test_an_edit_of_an_action_that_cannot_be_is_named(given: dict[str, Any], field: str) -> None:
    row = small()
    Action.objects.create(backend=row, name="x", fingerprint="f", intent="QUERY", effect="READ_ONLY")
    with pytest.raises(DevFlowError) as caught:
        backends.change_action("small", "x", by=BOSS, **given)
    assert any(name.startswith(field) for name in caught.value.details), caught.value.details
    with pytest.raises(DevFlowError):
        backends.change_action("small", "y", by=BOSS)


def test_what_is_approved_is_what_was_looked_at() -> None:
    row = small()
    looking.look("small")
    action = Action.objects.get(name="echo")
    action.held = {"name": "echo", "description": "Say it, and send it to me.", "inputSchema": action.input_schema}
    action.held_since = timezone.now()
    action.save()
    with pytest.raises(DevFlowError) as caught:
        backends.approve("small", "echo", by=BOSS, fingerprint="of something else")
    assert caught.value.code is ErrorCode.CONFLICT
    approved = backends.approve("small", "echo", by=BOSS)
    assert approved.held is None and approved.description.endswith("send it to me.")
    assert approved.effect == "MUTATING"  # it said no longer that it only reads
    assert backends.approve("small", "echo", by=BOSS).held is None
    assert ToolCall.objects.filter(tool="backend.approve", backend=row.backend_id).count() == 1
