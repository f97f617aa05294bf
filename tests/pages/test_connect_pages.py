"""Connect, keys and the gateway: a client that calls lights its page up, keys say what they may, calls are listed."""

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcpbridge.models import ApiKey, ToolCall
from tests.pages.conftest import LogIn
from workflow.models import Membership, Project
from workflow.services import projects


def text_of(response: Any) -> str:
    content: str = response.content.decode()
    return content


def snippet(page: str, name: str) -> str:
    found = re.search(rf'id="snippet-{name}"[^>]*><code>(.*?)</code>', page, re.DOTALL)
    assert found is not None
    return unescape(found[1])


def shown_id(page: str) -> str:
    """What the agent ids of one showing of the connect page end with."""
    found = re.search(r"/connect/light/([0-9a-f]{6})", page)
    assert found is not None
    return found[1]


def a_call(project: Project | None, agent: str, **more: Any) -> ToolCall:
    fields = {
        "trace_id": "a1b2c3",
        "worker": "w",
        "transport": "http",
        "tool": "get_kanban_board",
        "effect": "READ_ONLY",
    }
    return ToolCall.objects.create(
        project=project, agent_name=agent, **{**fields, "outcome": "ok", "duration_ms": 12.4, **more}
    )


# --- connect ---------------------------------------------------------------------------------------------------------


def test_the_light_waits_for_the_ids_of_this_page_and_tells_their_last_call(mia: Client, project: Project) -> None:
    page = text_of(mia.get("/connect/"))
    light = f"/connect/light/{shown_id(page)}"
    assert 'hx-ws:connect="/ws/shop/"' in page
    assert "Waiting for the first call" in page
    a_call(project, "cursor-000000")
    assert "Waiting for the first call" in text_of(mia.get(light))
    name = json.loads(snippet(page, "cursor"))["mcpServers"]["devflow"]["headers"]["X-Agent-Id"]
    a_call(project, name)
    a_call(project, name, tool="claim_task")
    lit = text_of(mia.get(light))
    assert lit.count("is connected") == 1
    assert name in lit and "claim_task" in lit and "in <span" in lit
    assert "data-again" not in lit
    assert "<html" not in lit


def test_the_light_tells_what_a_first_call_was_refused_for(mia: Client, project: Project) -> None:
    page = text_of(mia.get("/connect/"))
    key, _ = ApiKey.objects.issue(name="k", scopes=["read"], owner_id=get_user_model().objects.get(username="mia").pk)
    a_call(None, f"curl-{shown_id(page)}", key=key, outcome="invalid_input", error="Say which project: <b>shop</b>.")
    lit = text_of(mia.get(f"/connect/light/{shown_id(page)}"))
    assert "Say which project: &lt;b&gt;" in lit


def test_the_light_shows_nobody_elses_calls_and_no_old_ones(mia: Client, project: Project, log_in: LogIn) -> None:
    unique = shown_id(text_of(mia.get("/connect/")))
    a_call(project, f"curl-{unique}", at=timezone.now() - timedelta(days=2))
    assert "Waiting" in text_of(mia.get(f"/connect/light/{unique}"))
    a_call(project, f"curl-{unique}")
    assert "is connected" in text_of(mia.get(f"/connect/light/{unique}"))
    stranger = log_in(projects.create(slug="other", name="Other"), name="sid")
    assert "Waiting" in text_of(stranger.get(f"/connect/light/{unique}"))


@pytest.mark.parametrize("unique", ["zzzzzz", "abc", "0000000", "%27or"])
def test_an_odd_id_has_no_light(mia: Client, unique: str) -> None:
    assert mia.get(f"/connect/light/{unique}").status_code == 404


def test_without_a_login_there_is_no_light(client: Client, db: None) -> None:
    assert client.get("/connect/light/000000").status_code == 302


def test_a_key_for_a_project_has_the_light_watch_that_project(mia: Client, project: Project) -> None:
    other = projects.create(slug="annex", name="Annex")
    Membership.objects.create(user=get_user_model().objects.get(username="mia"), project=other)
    assert 'hx-ws:connect="/ws/shop/"' in text_of(mia.post("/connect/", {"project": "shop"}))
    assert 'hx-ws:connect="/ws/annex/"' in text_of(mia.post("/connect/", {"project": "annex"}))


def test_somebody_without_a_project_can_connect_too(log_in: LogIn) -> None:
    page = text_of(log_in(name="nobody").get("/connect/"))
    assert "hx-ws:connect" not in page
    assert "Waiting for the first call" in page


# --- keys ------------------------------------------------------------------------------------------------------------


def test_the_list_of_keys_tells_scopes_project_expiry_and_last_use(mia: Client, project: Project) -> None:
    owner = get_user_model().objects.get(username="mia")
    ApiKey.objects.issue(name="old", scopes=["read"], owner_id=owner.pk, expires_in=timedelta(days=-1))
    key, raw = ApiKey.objects.issue(
        name="ci", scopes=["read", "write"], project_id=project.pk, owner_id=owner.pk, expires_in=timedelta(days=3)
    )
    gone, _ = ApiKey.objects.issue(name="gone", scopes=["read"], owner_id=owner.pk)
    gone.revoke()
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=timezone.now() - timedelta(hours=3))
    page = text_of(mia.get("/keys/"))
    assert raw not in page
    row = next(part for part in page.split("<tr") if "ci</span>" in part)
    for words in ("read, write", "Shop", f"{timezone.now() + timedelta(days=3):%Y-%m-%d}", "3 h ago", "Revoke it"):
        assert words in row, words
    assert "expired" in page and "revoked" in page and page.count("Revoke it") == 1


def test_an_administrator_sees_whose_key_it_is(log_in: LogIn, mia: Client) -> None:
    ApiKey.objects.issue(name="hers", scopes=["read"], owner_id=get_user_model().objects.get(username="mia").pk)
    assert "of mia" in text_of(log_in(name="root", is_superuser=True).get("/keys/"))
    assert "of mia" not in text_of(mia.get("/keys/"))


# --- gateway ---------------------------------------------------------------------------------------------------------


def test_recent_calls_are_listed_with_who_what_when_how_long_and_the_trace(mia: Client, project: Project) -> None:
    a_call(project, "ada")
    a_call(
        project,
        "ben",
        tool="claim_task",
        outcome="not_found",
        error="Phase 9 <i>was not found</i>.",
        trace_id="fe" * 16,
    )
    page = text_of(mia.get("/gateway/"))
    for words in ("claim_task", "ben", "not found", "fe" * 16, "12 ms", "just now", "Shop", "Phase 9 &lt;i&gt;"):
        assert words in page, words
    assert page.index("claim_task") < page.index("get_kanban_board")
    failed = text_of(mia.get("/gateway/?outcome=failed"))
    assert "claim_task" in failed and "get_kanban_board" not in failed
    partial = text_of(mia.get("/gateway/?part=calls", headers={"HX-Request": "true"}))
    assert "claim_task" in partial and "<html" not in partial


def test_recent_calls_of_other_projects_are_not_shown(mia: Client) -> None:
    a_call(projects.create(slug="other", name="Other"), "sid", tool="secret_tool")
    assert "secret_tool" not in text_of(mia.get("/gateway/"))


def test_older_calls_are_a_click_away(mia: Client, project: Project) -> None:
    for number in range(60):
        a_call(project, f"agent-{number}")
    page = text_of(mia.get("/gateway/"))
    older = re.search(r'href="(\?before=\d+)"', page)
    assert older is not None
    assert page.count('id="call-') == 50
    rest = text_of(mia.get(f"/gateway/{older[1]}"))
    assert rest.count('id="call-') == 10
    assert "Newest" in rest
    assert "no older calls" in text_of(mia.get("/gateway/?before=1"))
    assert mia.get("/gateway/?before=x'--").status_code == 200


@pytest.mark.parametrize("path", ["/connect/", "/keys/", "/gateway/"])
def test_the_number_of_queries_does_not_grow_with_rows(mia: Client, project: Project, path: str) -> None:
    owner = get_user_model().objects.get(username="mia")

    def fill(rows: int) -> None:
        for number in range(rows):
            a_call(project, f"agent-{number}")
            ApiKey.objects.issue(name="k", scopes=["read"], project_id=project.pk, owner_id=owner.pk)

    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert mia.get(path).status_code == 200
        return len(seen)

    fill(2)
    mia.get(path)
    few = queries()
    fill(20)
    assert queries() == few <= 12
