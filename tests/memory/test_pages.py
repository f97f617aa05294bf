"""The memories' pages: what they show, to whom, and what people do on them."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from devflow.actors import Actor
from devflow.vectors import search as vectors
from memory.models import Memory, Trust
from memory.services import memories
from tests.memory.scenes import CACHE, NAMES, RETRY, fresh, indexed, saved
from tests.pages.conftest import LogIn
from tests.workflow.scenes import joined, made
from workflow.models import Project

pytestmark = pytest.mark.django_db

FORM = {"content": CACHE, "category": "pattern", "tags": "auth, caching,", "expires_on": ""}


@pytest.fixture
def max_(project: Project, log_in: LogIn) -> Client:
    return log_in(project, name="max")


def text_of(response: Any) -> str:
    content: str = response.content.decode()
    return content


def edit_of(memory: Memory, **changes: Any) -> dict[str, Any]:
    form = {"content": memory.content, "category": memory.category, "tags": ", ".join(memory.tags), "expires_on": ""}
    return {**form, "version": memory.version, **changes}


@pytest.mark.parametrize("path", ["/memories/", "/memories/1/", "/memories/merge/"])
def test_without_a_login_every_page_leads_to_it(client: Client, project: Project, path: str) -> None:
    response = client.get(path)
    assert (response.status_code, response.headers["Location"]) == (302, f"/login/?next={path}")


def test_an_empty_shelf_says_what_to_do(max_: Client, log_in: LogIn) -> None:
    page = text_of(max_.get("/memories/"))
    assert "Nothing is remembered yet" in page
    assert "save_memory" in page
    assert "Ask an administrator" in text_of(log_in(name="nobody").get("/memories/"))


def test_the_pages_have_the_strict_policy_one_heading_and_nothing_inline(
    project: Project, ada: Actor, max_: Client
) -> None:
    one, two = saved(project, ada, CACHE, tags=["auth"]), saved(project, ada, RETRY, metadata={"source_url": "x"})
    for path in (
        "/memories/",
        f"/memories/{one.pk}/",
        f"/memories/{two.pk}/",
        f"/memories/merge/?id={one.pk}&id={two.pk}",
    ):
        response = max_.get(path)
        page = text_of(response)
        assert "unsafe" not in response.headers["Content-Security-Policy"]
        assert response.headers["Cache-Control"] == "private, no-store"
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", page)
        assert page.count("<h1") == 1
        assert re.search(r"<title>\s*\S+.* · DevFlow</title>", page)


def test_cards_are_newest_first_with_who_what_and_when(project: Project, ada: Actor, mia: Actor, max_: Client) -> None:
    old = saved(project, ada, CACHE, tags=["auth"], metadata={"source_url": "https://example.org"})
    saved(project, mia, RETRY, category="error_fix", pinned=True, supersedes=[])
    page = text_of(max_.get("/memories/"))
    assert page.index("payment provider") < page.index("Authentication tokens")
    for words in ("from outside", "pinned", "mia", "ada", "just now", 'href="?tag=auth"', " UTC"):
        assert words in page
    saved(project, ada, NAMES, supersedes=[old.pk])
    assert "Authentication tokens" not in text_of(max_.get("/memories/"))
    history = text_of(max_.get("/memories/?show=superseded"))
    assert "Superseded by" in history
    assert "Money is kept" in history


def test_filters_and_questions_narrow_the_shelf(project: Project, ada: Actor, max_: Client) -> None:
    saved(project, ada, CACHE, tags=["auth"])
    saved(project, ada, RETRY, category="problem")
    saved(project, ada, NAMES, category="convention", expires_at=timezone.now())
    for query, words, is_there in (
        ("category=problem", "payment provider", True),
        ("category=problem", "Authentication tokens", False),
        ("tag=auth", "Authentication tokens", True),
        ("tag=auth", "payment provider", False),
        ("show=expired", "Money is kept", True),
        ("", "Money is kept", False),
        ("show=all", "Money is kept", True),
        ("category=gossip&show=no", "payment provider", True),
        ("before=x", "payment provider", True),
        ("q=nothing-like-it&tag=none", "No memory matches", True),
    ):
        assert (words in text_of(max_.get(f"/memories/?{query}"))) is is_there, query
    indexed()
    page = text_of(max_.get("/memories/", {"q": "what if charging takes too long"}))
    assert page.index("payment provider") < page.index("Authentication tokens")
    assert "by words alone" not in page
    vectors.resting.begin("The vector store does not answer: refused")
    assert "by words alone" in text_of(max_.get("/memories/", {"q": "payment"}))


def test_a_long_shelf_is_read_page_by_page(project: Project, ada: Actor, max_: Client) -> None:
    for number in range(51):
        saved(project, ada, f"Number {number:02} of many", tags=["a b"])
    page = text_of(max_.get("/memories/?tag=a+b"))
    assert "Number 00" not in page
    older = re.search(r'href="(\?before=[^"]+)"', page)
    assert older is not None
    assert "Number 00" in text_of(max_.get(f"/memories/{older[1].replace('&amp;', '&')}"))


def test_a_person_writes_a_memory(project: Project, max_: Client) -> None:
    page = text_of(max_.post("/memories/", {**FORM, "expires_on": "2999-12-31"}, follow=True))
    memory = Memory.objects.get()
    assert f"{memory.public_id} was saved" in page
    assert (memory.trust, memory.created_by, memory.tool, memory.tags) == (
        "person",
        "max",
        "browser",
        ["auth", "caching"],
    )
    assert memory.expires_at is not None
    assert memory.expires_at.isoformat() == "3000-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"content": ""}, "This field is required"),
        ({"content": "  "}, "is to be remembered"),
        ({"category": "gossip"}, "Select a valid choice"),
        ({"tags": "x" * 65}, "64 characters"),
        ({"tags": ",".join(f"t{n}" for n in range(51))}, "50 tags"),
        ({"expires_on": "soon"}, "valid date"),
        ({"expires_on": "9999-12-31"}, "no day after"),
    ],
)
def test_a_form_that_is_refused_keeps_what_was_written(
    project: Project, ada: Actor, max_: Client, wrong: dict[str, str], words: str
) -> None:
    response = max_.post("/memories/", {**FORM, **wrong})
    assert response.status_code == 422
    assert words in text_of(response)
    assert wrong.get("content") is not None or "Authentication tokens" in text_of(response)
    memory = saved(project, ada)
    response = max_.post(f"/memories/{memory.pk}/edit", edit_of(memory, **wrong))
    assert response.status_code == 422
    assert words in text_of(response)
    assert fresh(memory).version == 1


def test_a_memory_shows_where_it_comes_from_and_its_chain(
    project: Project, ada: Actor, mia: Actor, max_: Client
) -> None:
    task = made(project, ada)
    first = saved(
        project, ada, CACHE, category="learning", metadata={"task_id": task.public_id, "evidence": "commit 1a"}
    )
    second = saved(project, ada, f"{CACHE} <script>alert(1)</script>", supersedes=[first.pk], trace_id="abc123")
    third = saved(project, mia, RETRY, supersedes=[second.pk])
    page = text_of(max_.get(f"/memories/{second.pk}/"))
    for words in ("took its place", "was superseded", "abc123", f"/memories/{first.pk}/", f"/memories/{third.pk}/"):
        assert words in page
    assert "<script>alert" not in page
    page = text_of(max_.get(f"/memories/{first.pk}/"))
    for words in (f'href="/tasks/{task.pk}/"', "commit 1a", "learning", "with evidence", "This is history"):
        assert words in page


def test_a_person_edits_and_an_edit_on_an_older_version_keeps_their_text(
    project: Project, ada: Actor, max_: Client
) -> None:
    memory = saved(project, ada, tags=["auth"])
    path = f"/memories/{memory.pk}/edit"
    assert "was changed" in text_of(max_.post(path, edit_of(memory, content="One\r\ntwo"), follow=True))
    assert (fresh(memory).content, fresh(memory).trust) == ("One\ntwo", Trust.PERSON)
    late = max_.post(path, edit_of(memory, content="Written meanwhile"))
    assert late.status_code == 409
    page = text_of(late)
    assert "changed meanwhile" in page
    assert "Written meanwhile" in page
    assert 'name="version" value="2"' in page
    assert fresh(memory).content == "One\ntwo"
    assert max_.post(path, edit_of(memory, content="Written meanwhile", version=2)).status_code == 302
    assert fresh(memory).content == "Written meanwhile"


def test_an_edit_that_leaves_the_day_alone_leaves_the_moment_alone(project: Project, ada: Actor, max_: Client) -> None:
    memory = saved(project, ada, expires_at=datetime(2999, 5, 5, 12, 30, tzinfo=UTC))
    max_.post(f"/memories/{memory.pk}/edit", edit_of(memory, tags="x", expires_on="2999-05-05"))
    assert fresh(memory).expires_at == memory.expires_at
    max_.post(f"/memories/{memory.pk}/edit", edit_of(fresh(memory), expires_on=""))
    assert fresh(memory).expires_at is None


def test_a_person_pins_vouches_expires_and_deletes(project: Project, ada: Actor, max_: Client) -> None:
    memory = saved(project, ada)
    for action, state in (
        ("pin", {"pinned": True}),
        ("pin", {"pinned": True}),
        ("unpin", {"pinned": False}),
        ("vouch", {"trust": "person"}),
    ):
        assert max_.post(f"/memories/{memory.pk}/{action}").status_code == 302
        assert {name: getattr(fresh(memory), name) for name in state} == state
    max_.post(f"/memories/{memory.pk}/expire")
    assert fresh(memory).is_expired()
    assert "was deleted" in text_of(max_.post(f"/memories/{memory.pk}/delete", follow=True))
    assert not Memory.objects.exists()
    assert max_.post(f"/memories/{memory.pk}/delete").status_code == 404
    assert max_.get(f"/memories/{memory.pk}/pin").status_code == 405


def test_memories_are_merged_under_one_text(project: Project, other: Project, ada: Actor, max_: Client) -> None:
    one, two = saved(project, ada, CACHE, tags=["a"]), saved(project, ada, RETRY, tags=["b"])
    path = f"/memories/merge/?id={one.pk}&id={two.pk}"
    page = text_of(max_.get(path))
    assert "Authentication tokens" in page
    assert 'value="a, b"' in page
    assert max_.post(path, {**FORM, "content": ""}).status_code == 422
    page = text_of(max_.post(path, {**FORM, "content": "Both in one"}, follow=True))
    assert "took the place of 2 memories" in page
    merged = Memory.objects.get(content="Both in one")
    assert {fresh(one).superseded_by_id, fresh(two).superseded_by_id} == {merged.pk}
    again = max_.post(path, {**FORM, "content": "Once more"})
    assert again.status_code == 422
    assert f"Supersede {merged.public_id} instead" in text_of(again)
    for wrong in ("", f"?id={one.pk}", f"?id={one.pk}&id={one.pk}", "?id=x&id=y"):
        assert "Tick two" in text_of(max_.get(f"/memories/merge/{wrong}", follow=True))
    theirs = saved(other, joined(other, "eve"))
    assert max_.get(f"/memories/merge/?id={one.pk}&id={theirs.pk}").status_code == 404


def test_memories_that_say_the_same_are_offered_for_merging(project: Project, ada: Actor, max_: Client) -> None:
    one, two = saved(project, ada), saved(project, ada)
    page = text_of(max_.get(f"/memories/{one.pk}/"))
    assert "Says nearly the same" in page
    assert f"/memories/merge/?id={one.pk}&amp;id={two.pk}" in page


def test_viewers_only_read(project: Project, ada: Actor, log_in: LogIn) -> None:
    one, two = saved(project, ada), saved(project, ada, RETRY)
    viewer = log_in(project, name="vic", role="viewer")
    for path in ("/memories/", f"/memories/{one.pk}/"):
        page = text_of(viewer.get(path))
        assert "Authentication tokens" in page
        for words in ("New memory", "Delete", "Merge", "Pin<", "Save changes"):
            assert words not in page
    for action in ("edit", "pin", "vouch", "expire", "delete"):
        assert viewer.post(f"/memories/{one.pk}/{action}", edit_of(one)).status_code == 403
    assert viewer.post("/memories/", FORM).status_code == 403
    assert viewer.post(f"/memories/merge/?id={one.pk}&id={two.pk}", FORM).status_code == 403
    assert Memory.objects.filter(version=1).count() == 2


def test_the_memories_of_another_project_do_not_exist(project: Project, other: Project, max_: Client) -> None:
    theirs = saved(other, joined(other, "eve"))
    assert max_.get(f"/memories/{theirs.pk}/").status_code == 404
    assert max_.post(f"/memories/{theirs.pk}/delete").status_code == 404
    assert max_.get("/memories/?project=other").status_code == 404
    assert "Authentication" not in text_of(max_.get("/memories/?show=all"))


def test_forms_without_their_token_are_refused(project: Project, ada: Actor, max_: Client) -> None:
    memory = saved(project, ada)
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = max_.cookies
    assert strict.post(f"/memories/{memory.pk}/delete").status_code == 403
    memories.delete(project_id=project.pk, memory_id=memory.pk)
