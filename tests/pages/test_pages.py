"""The pages: what they show, to whom, and what they never do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from devflow import actors
from mcpbridge.models import ApiKey
from tests.pages.conftest import LogIn
from workflow.models import Event, Note, Project, Status, Task
from workflow.services import agents, claims, projects, tasks, transitions

PAGES = ("/", "/board/shop/", "/agents/", "/memories/", "/activity/", "/connect/", "/keys/")


def text_of(response: Any) -> str:
    content: str = response.content.decode()
    return content


def an_agent(project: Project, name: str = "ada") -> actors.Actor:
    agent = agents.contact(project_id=project.pk, name=name, session="", client="", transport="http")
    return actors.agent(agent_id=agent.pk, name=agent.name)


@pytest.mark.parametrize("path", [*PAGES, "/board/", "/tasks/1/"])
def test_without_a_login_every_page_leads_to_it(client: Client, project: Project, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 302
    assert response.headers["Location"] == f"/login/?next={path}"


@pytest.mark.parametrize("path", [*PAGES, "/login/", "/nowhere/", "/admin/"])
def test_every_page_has_the_strict_policy_and_nothing_inline(
    mia: Client, client: Client, project: Project, path: str
) -> None:
    response = (client if path == "/login/" else mia).get(path, follow=True)
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    if path != "/admin/":
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", text_of(response))


def test_no_template_holds_an_inline_script_or_style() -> None:
    for path in Path(settings.TEMPLATES[0]["DIRS"][0]).rglob("*.html"):
        found = re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", path.read_text())
        assert found is None, f"{path}: {found}"


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_one_heading_landmarks_and_a_title(mia: Client, path: str) -> None:
    page = text_of(mia.get(path))
    assert page.count("<h1") == 1
    assert '<html lang="en">' in page
    assert 'aria-label="Main"' in page
    assert '<main class="page" id="main"' in page
    assert re.search(r"<title>\s*\S+.* · DevFlow</title>", page)


def test_the_board_shows_the_cards_in_their_columns_with_exact_counts(mia: Client, project: Project) -> None:
    page = text_of(mia.get("/board/shop/"))
    assert "Look around" in page
    assert "blocked by 1" in page
    assert "<span data-total>2</span> tasks" in page
    assert "<b>1</b> blocked" in page
    assert 'hx-ws:connect="/ws/shop/?view=board&amp;"' in page
    partial = text_of(mia.get("/board/shop/", headers={"HX-Request": "true"}))
    assert partial.lstrip().startswith('<div id="board"')
    assert "<html" not in partial


def test_an_empty_board_says_what_to_do_next(log_in: LogIn, db: None) -> None:
    empty = projects.create(slug="empty", name="Empty")
    client = log_in(empty)
    assert "Add a task, or let an agent plan some" in text_of(client.get("/board/empty/"))
    assert "Add the first task" in text_of(client.get("/"))
    assert "No agent has called yet" in text_of(client.get("/agents/"))


def test_somebody_without_a_project_is_told_how_to_get_one(log_in: LogIn) -> None:
    for path in ("/", "/agents/", "/activity/"):
        assert "Ask an administrator" in text_of(log_in(name=f"nobody{len(path)}").get(path))
    boss = log_in(name="boss", is_superuser=True, is_staff=True)
    assert "New project" in text_of(boss.get("/"))


def test_the_pages_of_another_project_do_not_exist(log_in: LogIn, project: Project) -> None:
    stranger = log_in(projects.create(slug="other", name="Other"), name="sid")
    task = Task.objects.filter(project=project).first()
    assert task is not None
    for path in ("/board/shop/", f"/tasks/{task.pk}/", "/?project=shop", "/activity/?project=shop"):
        response = stranger.get(path)
        assert response.status_code == 404
        assert "There is nothing here" in text_of(response)
    assert stranger.post(f"/tasks/{task.pk}/cancel").status_code == 404
    assert "Shop" not in text_of(stranger.get("/"))


def test_a_superuser_sees_every_project(log_in: LogIn, project: Project) -> None:
    assert log_in(name="boss", is_superuser=True).get("/board/shop/").status_code == 200


def test_a_person_adds_a_task_from_the_board(mia: Client, project: Project) -> None:
    body = {"description": "Ship it\n\nsoon", "phase": "2", "priority": "high"}
    response = mia.post("/board/shop/", body, follow=True)
    assert "was added" in text_of(response)
    made = Task.objects.get(subject="Ship it")
    assert (made.phase.number, made.created_by, made.priority_name) == (2, "mia", "high")
    assert Event.objects.filter(task=made, kind="task.created", actor_kind="person").exists()
    bad = mia.post("/board/shop/", {"description": "", "phase": "99", "priority": "high"})
    assert bad.status_code == 422
    assert "This field is required" in text_of(bad)


def test_a_viewer_gets_no_form_and_may_not_post(log_in: LogIn, project: Project) -> None:
    viewer = log_in(project, name="vic", role="viewer")
    assert "New task" not in text_of(viewer.get("/board/shop/"))
    body = {"description": "x", "phase": "1", "priority": "low"}
    assert viewer.post("/board/shop/", body).status_code == 403
    task = Task.objects.filter(project=project).first()
    assert task is not None
    refused = viewer.post(f"/tasks/{task.pk}/cancel")
    assert (refused.status_code, "not change it" in text_of(refused)) == (403, True)
    assert not Task.objects.filter(subject="x").exists()


def test_a_review_is_decided_on_the_page(mia: Client, project: Project) -> None:
    projects.configure(project_id=project.pk, actor=actors.SYSTEM, require_review=True)
    actor = an_agent(project)
    task = claims.claim(project_id=project.pk, phase_number=1, actor=actor).task
    assert task is not None
    transitions.finish(project_id=project.pk, task_id=task.pk, actor=actor, result="**done** <script>x</script>")
    assert "Needs you first" in text_of(mia.get("/"))
    page = text_of(mia.get(f"/tasks/{task.pk}/"))
    assert "Your decision" in page
    assert "<strong>done</strong>" in page
    assert "<script>x" not in page
    refused = mia.post(f"/tasks/{task.pk}/reject", {"text": ""}, follow=True)
    assert "Say what has to change" in text_of(refused)
    mia.post(f"/tasks/{task.pk}/reject", {"text": "more tests"})
    task.refresh_from_db()
    assert (task.status, task.iteration) == (Status.IN_PROGRESS, 2)
    assert Note.objects.filter(task=task, body="more tests", actor_name="mia").exists()


@pytest.mark.parametrize(("action", "status"), [("cancel", "cancelled"), ("release", "ready"), ("note", "in_progress")])
def test_a_person_acts_on_a_task(mia: Client, project: Project, action: str, status: str) -> None:
    task = claims.claim(project_id=project.pk, phase_number=1, actor=an_agent(project)).task
    assert task is not None
    mia.post(f"/tasks/{task.pk}/{action}", {"text": "because"})
    task.refresh_from_db()
    assert task.status == status
    assert mia.get(f"/tasks/{task.pk}/{action}").status_code == 405
    assert mia.post(f"/tasks/{task.pk}/explode").status_code == 404


HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "[data](data:text/html,<script>alert(1)</script>)",
    '<a href="https://x" onclick="x()">x</a>',
    "![pixel](https://evil.example/p.png)",
    "<style>*{display:none}</style>",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_the_text_of_a_task_is_data(mia: Client, project: Project, text: str) -> None:
    task = tasks.create(
        project_id=project.pk, phase_number=1, description=f"Title\n\n{text}", actor=actors.SYSTEM, tags=["<b>"]
    )
    tasks.add_note(project_id=project.pk, task_id=task.pk, body=text, actor=actors.SYSTEM)
    page = text_of(mia.get(f"/tasks/{task.pk}/"))
    assert not re.search(r"<script(?![^>]*src=)|<img|<style|<b>&lt|<a[^>]+(onclick|javascript:|data:)", page)


@pytest.mark.parametrize("path", ["/", "/board/shop/", "/agents/", "/activity/"])
def test_the_number_of_queries_of_a_page_does_not_grow_with_its_rows(mia: Client, project: Project, path: str) -> None:
    def fill(start: int, rows: int) -> None:
        for number in range(start, start + rows):
            actor = an_agent(project, f"agent-{number}")
            waits = tasks.create(project_id=project.pk, phase_number=1, description=f"a{number}", actor=actor)
            tasks.create(project_id=project.pk, phase_number=2, description="b", actor=actor, blocked_by=[waits.pk])
            claims.start(project_id=project.pk, task_id=waits.pk, actor=actor)
            tasks.add_note(project_id=project.pk, task_id=waits.pk, body="n", actor=actor)
            if number % 3 == 0:
                transitions.fail(project_id=project.pk, task_id=waits.pk, actor=actor)

    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert mia.get(path).status_code == 200
        return len(seen)

    fill(0, 3)
    mia.get(path)
    few = queries()
    fill(3, 27)
    assert queries() == few <= 18


# --- login ----------------------------------------------------------------------------------------------------------


def test_a_person_logs_in_and_out(client: Client, db: None) -> None:
    get_user_model().objects.create_user("kim", password="a long enough one")
    wrong = client.post("/login/", {"username": "kim", "password": "x"})
    assert "do not fit together" in text_of(wrong)
    right = client.post("/login/?next=/keys/", {"username": "kim", "password": "a long enough one", "next": "/keys/"})
    assert right.headers["Location"] == "/keys/"
    assert client.get("/login/").status_code == 302
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/").headers["Location"] == "/login/"
    assert client.get("/").status_code == 302


def test_a_login_leads_to_no_other_site(client: Client, db: None) -> None:
    get_user_model().objects.create_user("kim", password="a long enough one")
    body = {"username": "kim", "password": "a long enough one", "next": "https://evil.example/"}
    assert client.post("/login/", body).headers["Location"] == "/"


@pytest.mark.parametrize("vary", ["address", "name"])
def test_the_eleventh_try_in_a_minute_is_429_per_address_and_per_name(client: Client, db: None, vary: str) -> None:
    def attempt(number: int) -> Any:
        name = "kim" if vary == "address" else f"kim{number}"
        address = f"10.0.0.{number}" if vary == "address" else "10.0.0.1"
        return client.post("/login/", {"username": name, "password": "x"}, REMOTE_ADDR=address)

    for number in range(10):
        assert attempt(number).status_code == 200
    limited = attempt(10)
    assert limited.status_code == 429
    assert int(limited.headers["Retry-After"]) > 0
    assert "A little slower" in text_of(limited)


def test_a_form_without_its_token_is_refused_in_words(project: Project) -> None:
    strict = Client(enforce_csrf_checks=True)
    response = strict.post("/login/", {"username": "x", "password": "x"})
    assert response.status_code == 403
    assert "That form has expired" in text_of(response)


# --- connect and keys -----------------------------------------------------------------------------------------------


def snippets_of(page: str) -> dict[str, str]:
    from html import unescape

    found = re.findall(r'id="snippet-([a-z-]+)"[^>]*><code>(.*?)</code>', page, re.DOTALL)
    return {name: unescape(text) for name, text in found}


def test_the_connect_page_has_a_snippet_for_every_client_with_an_agent_id_of_its_own(mia: Client) -> None:
    first, second = (snippets_of(text_of(mia.get("/connect/"))) for _ in range(2))
    assert first.keys() == {
        *("claude-code", "claude-code-stdio", "cursor", "vscode", "windsurf", "opencode", "claude-desktop", "rest"),
    }
    agents_named = [re.search(r"(?:X-Agent-Id|DEVFLOW_AGENT_ID)\W+([\w-]+)", text) for text in first.values()]
    names = {match[1] for match in agents_named if match}
    assert len(names) == len(first)
    assert first["cursor"] != second["cursor"]
    for name in ("cursor", "vscode", "windsurf", "opencode", "claude-desktop"):
        assert "devflow" in next(iter(value for value in json.loads(first[name]).values() if isinstance(value, dict)))
    assert "claude mcp add --transport http devflow http://testserver/mcp" in first["claude-code"]


def test_a_fresh_key_is_shown_once_inside_the_snippets_and_works(mia: Client, project: Project) -> None:
    response = mia.post("/connect/", {"project": "shop"})
    assert response.headers["Cache-Control"] == "no-store"
    shown = snippets_of(text_of(response))
    match = re.search(r"dvf_\w+", shown["rest"])
    assert match is not None
    assert all(match[0] in text for text in shown.values())
    assert match[0] not in text_of(mia.get("/connect/"))
    key = ApiKey.objects.get()
    assert (key.project, key.owner.username if key.owner else "") == (project, "mia")
    assert Client(headers={"X-API-Key": match[0]}).get("/api/v1/tasks/").json()["count"] == 2


def test_the_connect_page_tells_what_each_exposure_costs(mia: Client) -> None:
    page = text_of(mia.get("/connect/"))
    rows = re.findall(r'expose=(\w+)</code>.*?class="num">(\d+)</td><td class="num">(\d+)', page, re.DOTALL)
    costs = {name: (int(tools), int(tokens)) for name, tools, tokens in rows}
    assert costs["search"][0] == 2
    assert costs["direct"][0] > costs["search"][0]
    assert costs["direct"][1] > costs["search"][1] > 50
    assert "An estimate" in page


def test_keys_are_made_shown_once_and_revoked(mia: Client, project: Project) -> None:
    body = {"name": "ci", "scopes": ["read"], "project": "shop", "expires_in_days": "7", "rate_per_minute": "5"}
    page = text_of(mia.post("/keys/", body))
    match = re.search(r"dvf_\w{12}_\w{40}_\w{6}", page)
    assert match is not None
    key = ApiKey.objects.get()
    assert (key.scopes, key.rate_per_minute, key.expires_at is not None) == (["read"], 5, True)
    listed = text_of(mia.get("/keys/"))
    assert match[0] not in listed
    assert key.digest not in listed
    assert key.prefix in listed
    assert "was revoked" in text_of(mia.post(f"/keys/{key.pk}/revoke", follow=True))
    key.refresh_from_db()
    assert key.revoked_at is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""}, {"scopes": []}, {"scopes": ["admin"]}, {"scopes": ["fly"]}, {"project": "other"},
        {"expires_in_days": "soon"}, {"rate_per_minute": "-1"},
    ],
)  # fmt: skip
def test_a_bad_key_form_makes_no_key_and_says_why(mia: Client, wrong: dict[str, Any]) -> None:
    projects.create(slug="other", name="Other")
    response = mia.post("/keys/", {"name": "x", "scopes": ["read"], **wrong})
    assert response.status_code == 422
    assert 'class="note error"' in text_of(response)
    assert not ApiKey.objects.exists()


def test_keys_of_others_cannot_be_revoked(mia: Client) -> None:
    other = get_user_model().objects.create_user("olga")
    key, _ = ApiKey.objects.issue(name="hers", scopes=["read"], owner_id=other.pk)
    assert mia.post(f"/keys/{key.pk}/revoke").status_code == 404
    assert "hers" not in text_of(mia.get("/keys/"))
    key.refresh_from_db()
    assert key.revoked_at is None
