"""/api/v1/memories/: lists, questions, changes, and who may do which."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from devflow.actors import Actor
from mcpbridge.models import ApiKey
from memory.models import Memory
from tests.memory.scenes import CACHE, NAMES, RETRY, fresh, indexed, saved
from tests.pages.conftest import LogIn
from tests.workflow.scenes import joined
from workflow.models import Project

pytestmark = pytest.mark.django_db

URL = "/api/v1/memories/"
JSON = "application/json"


def with_key(*scopes: str, **more: Any) -> Client:
    return Client(headers={"X-API-Key": ApiKey.objects.issue(name="api", scopes=list(scopes), **more)[1]})


@pytest.fixture
def member(project: Project, log_in: LogIn) -> Client:
    return log_in(project, name="max")


def contents(response: Any) -> list[str]:
    assert response.status_code == 200, response.content
    return [row["content"] for row in response.json()["results"]]


def test_a_list_is_newest_first_and_a_row_is_shown_as_in_the_list(project: Project, ada: Actor, member: Client) -> None:
    for text in (CACHE, RETRY):
        saved(project, ada, text, tags=["a"], metadata={"task_id": "task-3"})
    page = member.get(URL).json()
    assert [row["content"] for row in page["results"]] == [RETRY, CACHE]
    row = page["results"][0]
    assert (row["project"], row["agent"], row["task"], row["trust"], row["score"]) == (
        "shop", "ada", "task-3", "agent", None,
    )  # fmt: skip
    assert member.get(f"{URL}{row['id']}/").json() == row
    assert member.get(f"{URL}{row['id'].removeprefix('memory-')}/").json() == row


def test_lists_are_narrowed_by_category_tag_author_and_time(
    project: Project, ada: Actor, mia: Actor, member: Client
) -> None:
    saved(project, ada, CACHE, category="decision", tags=["auth"])
    old = saved(project, mia, RETRY, category="error_fix")
    saved(project, mia, NAMES, category="convention", supersedes=[old.pk])
    assert contents(member.get(URL, {"category": "warning"})) == [RETRY]
    assert contents(member.get(URL, {"tag": "auth"})) == [CACHE]
    assert contents(member.get(URL, {"created_by": "mia"})) == [NAMES, RETRY]
    assert contents(member.get(URL, {"superseded": "true"})) == [RETRY]
    assert contents(member.get(URL, {"since": "2999-01-01T00:00:00Z"})) == []
    assert contents(member.get(URL, {"search": "cents"})) == [NAMES]
    assert member.get(URL, {"category": "gossip"}).status_code == 422
    assert member.get(URL, {"since": "soon"}).status_code == 422


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_question_is_answered_best_first_with_scores(
    project: Project, ada: Actor, member: Client, is_indexed: bool
) -> None:
    for text in (CACHE, RETRY, NAMES):
        saved(project, ada, text, tags=[text[:4]])
    if is_indexed:
        indexed()
    page = member.get(URL, {"q": "payment provider times out", "limit": "2"}).json()
    assert page["results"][0]["content"] == RETRY
    assert page["results"][0]["score"] > 0.5
    assert page["degraded"] is not is_indexed
    assert bool(page["reason"]) is not is_indexed
    assert contents(member.get(URL, {"q": "payment provider tokens", "tag": CACHE[:4], "project": "shop"})) == [CACHE]
    assert member.get(URL, {"q": " "}).status_code == 422
    assert member.get(URL, {"q": "x", "project": "nowhere"}).status_code == 404


def test_a_member_writes_edits_and_deletes(project: Project, member: Client) -> None:
    body = {"project": "shop", "content": CACHE, "category": "learning", "tags": ["auth"], "metadata": {"a": 1}}
    made = member.post(URL, body, content_type=JSON)
    assert made.status_code == 201, made.content
    row = made.json()
    assert (row["category"], row["original_category"], row["trust"], row["created_by"]) == (
        "pattern", "learning", "person", "max",
    )  # fmt: skip
    newer = member.post(URL, {**body, "content": RETRY, "supersedes": row["id"]}, content_type=JSON).json()
    assert member.get(f"{URL}{row['id']}/").json()["superseded_by"] == newer["id"]
    path = f"{URL}{newer['id']}/"
    changes = {"pinned": True, "expires_at": "2999-01-01T00:00:00Z", "version": 1}
    changed = member.patch(path, changes, content_type=JSON).json()
    assert (changed["pinned"], changed["expires_at"], changed["version"]) == (True, "2999-01-01T00:00:00Z", 2)
    assert member.patch(path, {"expires_at": None}, content_type=JSON).json()["expires_at"] is None
    assert member.patch(path, {"content": NAMES, "version": 1}, content_type=JSON).status_code == 409
    assert member.delete(path).status_code == 204
    assert member.delete(path).status_code == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"content": ""},
        {"content": "  "},
        {"content": "x" * 100_001},
        {"content": "a\x00"},
        {"category": "gossip"},
        {"tags": ["t"] * 51},
        {"tags": ["a,b"]},
        {"metadata": []},
        {"supersedes": "task-1"},
        {"expires_at": "soon"},
        {"surprise": 1},
        {"trust": "person"},
    ],
)
def test_bad_input_changes_nothing(project: Project, ada: Actor, member: Client, wrong: dict[str, Any]) -> None:
    memory = saved(project, ada)
    body = {"project": "shop", "content": CACHE, "category": "pattern"}
    expected = 413 if len(wrong.get("content", "")) > 100_000 else 422
    assert member.post(URL, {**body, **wrong}, content_type=JSON).status_code == expected
    assert member.patch(f"{URL}{memory.pk}/", wrong, content_type=JSON).status_code == expected
    assert (Memory.objects.count(), fresh(memory).version) == (1, 1)


def test_others_memories_answer_as_unknown_ones_do(project: Project, other: Project, member: Client) -> None:
    theirs = saved(other, joined(other, "eve"))
    assert contents(member.get(URL)) == []
    assert contents(member.get(URL, {"q": CACHE})) == []
    for path in (f"{URL}{theirs.public_id}/", f"{URL}memory-999/"):
        assert member.get(path).status_code == 404
        assert member.patch(path, {"pinned": True}, content_type=JSON).status_code == 404
        assert member.delete(path).status_code == 404
    body = {"project": "other", "content": NAMES, "category": "pattern"}
    assert member.post(URL, body, content_type=JSON).status_code == 404
    body = {"project": "shop", "content": NAMES, "category": "pattern", "supersedes": theirs.public_id}
    assert member.post(URL, body, content_type=JSON).status_code == 404
    assert fresh(theirs).version == 1


def test_keys_act_by_their_scopes_projects_and_toolsets(project: Project, other: Project, ada: Actor) -> None:
    memory = saved(project, ada)
    body = {"project": "shop", "content": NAMES, "category": "pattern"}
    reader = with_key("read", project_id=project.pk)
    assert contents(reader.get(URL)) == [CACHE]
    assert reader.post(URL, body, content_type=JSON).status_code == 403
    assert reader.delete(f"{URL}{memory.pk}/").status_code == 403
    assert with_key("read", toolsets=["workflow"]).get(URL).status_code == 403
    assert contents(with_key("read", "write", project_id=other.pk).get(URL)) == []
    made = with_key("read", "write", project_id=project.pk).post(URL, body, content_type=JSON)
    assert (made.status_code, made.json()["trust"]) == (201, "agent")
    assert Client().get(URL).status_code == 401


def test_viewers_read_and_change_nothing(project: Project, ada: Actor, log_in: LogIn) -> None:
    memory = saved(project, ada)
    viewer = log_in(project, name="vic", role="viewer")
    assert contents(viewer.get(URL)) == [CACHE]
    body = {"project": "shop", "content": NAMES, "category": "pattern"}
    assert viewer.post(URL, body, content_type=JSON).status_code == 403
    assert viewer.patch(f"{URL}{memory.pk}/", {"pinned": True}, content_type=JSON).status_code == 403
    assert viewer.delete(f"{URL}{memory.pk}/").status_code == 403


def test_the_number_of_queries_does_not_grow_with_the_rows(project: Project, ada: Actor, member: Client) -> None:
    def queries(**asked: str) -> int:
        with CaptureQueriesContext(connection) as seen:
            assert member.get(URL, {**asked, "limit": "200"}).status_code == 200
        return len(seen)

    saved(project, ada, CACHE)
    few, asked = queries(), queries(q="tokens")
    for number in range(20):
        saved(project, ada, f"{CACHE} {number}")
    assert queries() == few <= 9
    assert queries(q="tokens") == asked <= 16
