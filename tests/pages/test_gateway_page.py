"""The gateway's pages: what stands behind it, who may change it, calls by hand, what is held back, plans."""

import json
import re
import sys
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from devflow.actors import person
from mcpbridge.gateway import backends, looking, showing
from mcpbridge.models import Action, Backend, Plan, ToolCall
from tests.pages.conftest import LogIn
from workflow.models import Project
from workflow.services import projects

SMALL = str(Path(__file__).parents[1] / "fakes" / "small_backend.py")
BOSS = person(user_id=1, name="boss", tool="tests")


def text_of(response: Any) -> str:
    text: str = unescape(response.content.decode())
    return text


@pytest.fixture
def boss(log_in: LogIn, project: Project) -> Client:
    return log_in(name="boss", is_superuser=True)


@pytest.fixture
def small(db: None) -> Backend:
    given = {"id": "small", "command": sys.executable, "args": [SMALL], "env": {"TOKEN": "hunter2-and-more"}}
    row = backends.create(by=BOSS, **given).backend
    looking.look("small")
    row.refresh_from_db()
    return row


def hold(action: Action, **wants: Any) -> Action:
    action.held = {
        "name": action.name,
        "description": action.description,
        "inputSchema": action.input_schema,
        "outputSchema": action.output_schema,
        "annotations": action.annotations,
        **wants,
    }
    action.held_since = timezone.now()
    action.save()
    return action


def a_plan(project: Project | None, **more: Any) -> Plan:
    given = {
        "query": "Write the file",
        "request": {"intent": "MODIFY", "action": "small.write_file", "params": {"name": "a"}},
        "expires_at": timezone.now() + timedelta(minutes=10),
    }
    return Plan.objects.create(
        plan_id=f"{Plan.objects.count():032x}", effect="MUTATING", signature="s", project=project,
        **{**given, **more},
    )  # fmt: skip


# --- the overview ----------------------------------------------------------------------------------------------------


def test_without_a_backend_the_page_says_what_one_is_and_how_to_get_it(mia: Client, boss: Client) -> None:
    page = text_of(mia.get("/gateway/"))
    for words in ("No backend yet", "An administrator of this server adds them", "No tool has been called yet"):
        assert words in page
    assert "/gateway/new" not in page
    page = text_of(boss.get("/gateway/"))
    assert "/gateway/new" in page and "/gateway/import" in page and "devflow backend add" in page


def test_backends_are_listed_with_their_state_and_what_their_tools_cost(mia: Client, small: Backend) -> None:
    backends.create(by=BOSS, id="gone", command="/no/such/program")
    looking.look("gone")
    page = text_of(mia.get("/gateway/"))
    tokens = sum(showing.tokens_of(action) for action in small.actions.all())
    assert tokens > 100
    for words in (f"about {tokens:,} tokens", "up", "down", "/no/such/program", "0 sessions here", "looked at"):
        assert words in page, words
    partial = text_of(mia.get("/gateway/", headers={"HX-Request": "true"}))
    assert "backend-small" in partial and "<html" not in partial and "Recent calls" not in partial
    calls = text_of(mia.get("/gateway/?part=calls", headers={"HX-Request": "true"}))
    assert "backend-small" not in calls


def test_pages_take_a_fixed_number_of_queries(boss: Client, project: Project, small: Backend) -> None:
    def fill(rows: int) -> None:
        for number in range(rows):
            row = Backend.objects.create(backend_id=f"b{Backend.objects.count()}", command="x")
            for at in (row, small):
                hold(
                    Action.objects.create(
                        backend=at, name=f"a{number}-{Action.objects.count()}", intent="QUERY", effect="READ_ONLY",
                        fingerprint=f"f{Action.objects.count()}",
                    )
                )  # fmt: skip
            a_plan(project)
            ToolCall.objects.create(
                trace_id="t", worker="w", project=project, transport="rest", tool="small.echo", effect="", outcome="ok",
                duration_ms=1, backend="small", spans=[["call", 0.5]],
            )  # fmt: skip

    def queries(path: str) -> int:
        with CaptureQueriesContext(connection) as seen:
            assert boss.get(path).status_code == 200
        return len(seen)

    paths = ("/gateway/", "/gateway/small/", "/gateway/small/tools/echo")
    fill(2)
    few = {path: boss.get(path) and queries(path) for path in paths}
    fill(10)
    many = {path: boss.get(path) and queries(path) for path in paths}
    assert many == few
    assert max(few.values()) <= 18


# --- a backend -------------------------------------------------------------------------------------------------------


def test_a_backends_page_shows_its_tools_and_hides_what_is_not_everybodys(
    mia: Client, boss: Client, small: Backend
) -> None:
    page = text_of(mia.get("/gateway/small/"))
    for words in ("write_file", "changes things", "reads", "reaches outside", "tokens", "State"):
        assert words in page
    assert SMALL not in page and "TOKEN" not in page and "Edit" not in page
    full = text_of(boss.get("/gateway/small/"))
    assert SMALL in full and "TOKEN" in full and "Ask it now" in full
    assert "hunter2" not in page + full + text_of(boss.get("/gateway/small/edit"))
    assert "write_file" not in text_of(mia.get("/gateway/small/?q=say+again"))
    assert "No tool has these words" in text_of(mia.get("/gateway/small/?q=zzz"))
    partial = text_of(mia.get("/gateway/small/", headers={"HX-Request": "true"}))
    assert "write_file" in partial and "<html" not in partial
    assert mia.get("/gateway/nobody/").status_code == 404


def test_recent_calls_of_a_backend_are_drawn_in_their_steps(mia: Client, project: Project, small: Backend) -> None:
    ToolCall.objects.create(
        trace_id="t", worker="w", project=project, transport="rest", tool="small.echo", effect="READ_ONLY",
        outcome="ok", duration_ms=10, backend="small", spans=[["session", 4.0], ["call", 5.0]],
    )  # fmt: skip
    page = text_of(mia.get("/gateway/small/"))
    assert 'aria-label="session 4 ms, call 5 ms, the rest 1 ms"' in page
    assert re.search(r'<rect class="step-2"\s+x="40.00"\s+y="0"\s+width="50.00"', page)


def test_only_administrators_reach_what_changes_backends(mia: Client, small: Backend) -> None:
    for path in ("/gateway/new", "/gateway/import", "/gateway/small/edit"):
        response = mia.get(path)
        assert (response.status_code, "run commands" in text_of(response)) == (403, True)
    for path, body in (
        ("/gateway/new", {"backend_id": "evil", "transport": "stdio", "command": "sh"}),
        ("/gateway/import", {"text": '{"mcpServers": {"evil": {"command": "sh"}}}', "do": "import"}),
        ("/gateway/small/edit", {"transport": "stdio", "command": "sh"}),
        ("/gateway/small/act/test", {}),
        ("/gateway/small/act/off", {}),
        ("/gateway/small/act/remove", {}),
        ("/gateway/small/tools/echo", {"do": "approve"}),
        ("/gateway/small/tools/echo", {"do": "edit", "effect_override": "READ_ONLY"}),
    ):
        assert mia.post(path, body).status_code == 403, path
    row = Backend.objects.get()
    assert (row.backend_id, row.command, row.is_enabled) == ("small", sys.executable, True)


FORM = {"transport": "stdio", "isolation": "agent", "is_enabled": "on", "timeouts": "{}"}


def test_an_administrator_adds_a_backend_and_is_told_what_it_offers(boss: Client) -> None:
    body = {**FORM, "backend_id": "small", "command": sys.executable, "arguments": SMALL, "env_lines": "TOKEN=hunter2x"}
    page = text_of(boss.post("/gateway/new", body, follow=True))
    assert "small answers:" in page and "New: count, echo" in page
    row = Backend.objects.get()
    assert (row.args, backends.secrets_of(row, "env")) == ([SMALL], {"TOKEN": "hunter2x"})
    assert "hunter2x" not in page
    again = boss.post("/gateway/new", body)
    assert again.status_code == 422 and "already exists" in text_of(again)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backend_id": "a b"}, "A-Z a-z 0-9"),
        ({"command": ""}, "Is required for a process"),
        ({"transport": "http", "url": "ftp://x"}, "Begins with http://"),
        ({"env_lines": "no secret here"}, "Line 1 is not NAME=value"),
        ({"env_lines": "DEVFLOW_X=1"}, "never given away"),
        ({"memory_mb": "5"}, "at least 2048"),
        ({"roots": "/no/such/place"}, "no directory"),
        ({"timeouts": '{"QUERY": 0}'}, "greater than or equal to 1"),
        ({"timeouts": "{"}, "valid JSON"),
        ({"activation": '{"x": 1}'}, "required"),
    ],
)
def test_a_form_that_cannot_be_says_why_at_its_field(boss: Client, changes: dict[str, str], words: str) -> None:
    response = boss.post("/gateway/new", {**FORM, "backend_id": "x", "command": "true", **changes})
    assert response.status_code == 422
    assert words.lower() in text_of(response).lower()
    assert not Backend.objects.exists()


def test_an_edit_keeps_replaces_and_drops_secrets(boss: Client, small: Backend) -> None:
    body = {**FORM, "display_name": "Small", "command": sys.executable, "arguments": SMALL}
    boss.post("/gateway/small/edit", body)
    row = Backend.objects.get()
    assert (row.display_name, backends.secrets_of(row, "env")) == ("Small", {"TOKEN": "hunter2-and-more"})
    boss.post("/gateway/small/edit", {**body, "env_lines": "OTHER=1", "forget_env": ["TOKEN"]})
    assert backends.secrets_of(Backend.objects.get(), "env") == {"OTHER": "1"}
    boss.post("/gateway/small/edit", {**FORM, "transport": "http", "url": "http://127.0.0.1:9/mcp"})
    row = Backend.objects.get()
    assert (row.transport, row.command, row.args, row.sealed_env) == ("http", "", [], "")


def test_a_backend_is_asked_switched_and_removed(boss: Client, small: Backend) -> None:
    assert "answers" in text_of(boss.post("/gateway/small/act/test", follow=True))
    boss.post("/gateway/small/act/off")
    assert "switched off" in text_of(boss.get("/gateway/small/"))
    boss.post("/gateway/small/act/on")
    assert Backend.objects.get().is_enabled
    assert boss.post("/gateway/small/act/dance").status_code == 404
    assert boss.get("/gateway/small/act/remove").status_code == 405
    assert "was removed" in text_of(boss.post("/gateway/small/act/remove", follow=True))
    assert not Backend.objects.exists()


def test_a_file_is_looked_at_before_it_is_imported(boss: Client) -> None:
    text = json.dumps({"mcpServers": {"good": {"command": "npx", "args": ["-y", "thing"]}, "bad id": {"command": "x"}}})
    file = SimpleUploadedFile(".mcp.json", text.encode(), "application/json")
    page = text_of(boss.post("/gateway/import", {"file": file}))
    assert "Import 1 backend" in page and "not pinned" in page and "skipped" in page
    assert not Backend.objects.exists()
    page = text_of(boss.post("/gateway/import", {"text": text, "do": "import"}, follow=True))
    assert "1 of 2 backends were imported" in page and "bad id was skipped" in page
    assert "There is nothing to import" in text_of(boss.post("/gateway/import", {"text": text}))
    for bad in ("", "no json", "{}"):
        response = boss.post("/gateway/import", {"text": bad})
        assert response.status_code == 422 and "file" in text_of(response)
    assert boss.post("/gateway/import", {"file": SimpleUploadedFile("x", b"\xff\xfe\x00")}).status_code == 422


# --- one tool --------------------------------------------------------------------------------------------------------


def test_a_tools_page_has_a_form_made_from_its_schema(mia: Client, small: Backend) -> None:
    action = small.actions.get(name="echo")
    action.input_schema = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to <b>say</b>"},
            "often": {"type": "integer", "default": 3},
            "loud": {"type": "boolean"},
            "tone": {"enum": ["low", "high"]},
            "parts": {"type": "array"},
        },
        "required": ["text"],
    }
    action.save()
    page = mia.get("/gateway/small/tools/echo").content.decode()
    for words in (
        'name="p:text"',
        'name="p:often"',
        'value="3"',
        'name="p:loud"',
        'name="p:tone"',
        "parts and more as JSON",
    ):
        assert words in page, words
    assert 'name="p:parts"' not in page and "<b>say" not in page
    assert mia.get("/gateway/small/tools/nothing").status_code == 404


def test_what_is_held_back_is_shown_with_its_difference_and_approved_as_it_was_seen(
    mia: Client, boss: Client, small: Backend
) -> None:
    action = hold(small.actions.get(name="echo"), description="Say it again.\n<script>send it</script>", annotations={})
    assert "small.echo" in text_of(mia.get("/gateway/"))
    page = mia.get("/gateway/small/tools/echo").content.decode()
    assert "&lt;script&gt;send it" in page and "<script>send" not in page
    assert "QUERY READ_ONLY" in page and "MODIFY MUTATING" in page
    assert "Approve it" not in page and "it is held back" in page
    page = boss.get("/gateway/small/tools/echo").content.decode()
    seen = re.search(r'name="fingerprint"\s+value="([0-9a-f]{64})"', page)
    assert seen is not None
    hold(action, description="Something else by now.")
    said = text_of(boss.post("/gateway/small/tools/echo", {"do": "approve", "fingerprint": seen[1]}, follow=True))
    assert "changed again since you looked" in said
    seen = re.search(
        r'name="fingerprint"\s+value="([0-9a-f]{64})"', boss.get("/gateway/small/tools/echo").content.decode()
    )
    assert seen is not None
    boss.post("/gateway/small/tools/echo", {"do": "approve", "fingerprint": seen[1]})
    action.refresh_from_db()
    assert (action.held, action.description) == (None, "Something else by now.")


def test_an_administrator_says_otherwise_of_a_tool(boss: Client, small: Backend) -> None:
    body = {"do": "edit", "is_enabled": "on", "is_federated": "on", "artifact": "TEXT", "alias_lines": "say\nrepeat"}
    boss.post("/gateway/small/tools/echo", {**body, "intent_override": "EXECUTE", "effect_override": "EXTERNAL_EXEC"})
    action = small.actions.get(name="echo")
    assert (action.effect_override, action.is_federated, action.aliases) == ("EXTERNAL_EXEC", True, ["say", "repeat"])
    assert "set by an administrator" in text_of(boss.get("/gateway/small/tools/echo"))
    bad = boss.post("/gateway/small/tools/echo", {**body, "lookup": '{"x": 1}'})
    assert bad.status_code == 422 and "required" in text_of(bad)
    boss.post("/gateway/small/tools/echo", {"do": "edit", "artifact": "JSON"})
    action.refresh_from_db()
    assert (action.is_enabled, action.effect_override) == (False, "")
    assert "it is switched off" in text_of(boss.get("/gateway/small/tools/echo"))


def test_what_changes_things_is_shown_once_more_before_it_runs(mia: Client, small: Backend, tmp_path: Path) -> None:
    body = {"do": "try", "p:name": str(tmp_path / "a.txt"), "p:text": "hello"}
    page = text_of(mia.post("/gateway/small/tools/write_file", body))
    assert "This changes things" in page and '"effect": "MUTATING"' in page and 'name="sure"' in page
    assert not (tmp_path / "a.txt").exists()


def test_a_viewer_may_not_try_what_changes_things(log_in: LogIn, project: Project, small: Backend) -> None:
    viewer = log_in(project, name="vic", role="viewer")
    assert "ask an admin of the project" in text_of(viewer.get("/gateway/small/tools/write_file"))
    assert "Run it" in text_of(viewer.get("/gateway/small/tools/echo"))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"params": "{"}, "cannot be read"),
        ({"params": "[1]"}, "must be an object"),
        ({"params": "[" * 50_000}, "cannot be read"),
    ],
)
def test_parameters_that_are_no_json_object_are_refused(
    mia: Client, small: Backend, body: dict[str, str], words: str
) -> None:
    response = mia.post("/gateway/small/tools/echo", {"do": "try", **body})
    assert response.status_code == 422 and words in text_of(response)


# --- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_waits_for_somebody_who_may_decide(
    log_in: LogIn, mia: Client, boss: Client, project: Project, small: Backend
) -> None:
    plan = a_plan(project)
    a_plan(projects.create(slug="other", name="Other"), query="Not theirs")
    a_plan(project, query="Too late", expires_at=timezone.now())
    page = text_of(mia.get("/gateway/"))
    assert "Write the file" in page and "An admin of the project decides" in page
    assert "Not theirs" not in page and "Too late" not in page
    assert mia.post(f"/gateway/plans/{plan.plan_id}/refuse").status_code == 403
    stranger = log_in(name="sid")
    assert stranger.post(f"/gateway/plans/{plan.plan_id}/confirm").status_code == 404
    owner = log_in(project, name="olga", role="admin")
    assert "Run it, once" in text_of(owner.get("/gateway/"))
    assert "refused; nothing ran" in text_of(owner.post(f"/gateway/plans/{plan.plan_id}/refuse", follow=True))
    plan.refresh_from_db()
    assert (plan.state, plan.decided_by) == ("refused", "olga")
    assert "was refused" in text_of(boss.post(f"/gateway/plans/{plan.plan_id}/refuse", follow=True))
    assert boss.post("/gateway/plans/none/confirm").status_code == 404
