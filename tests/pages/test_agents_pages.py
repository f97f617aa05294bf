"""The agents' pages, home and activity: who is at work and how, what needs a person, and what happened."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from devflow import actors
from devflow.actors import Actor
from mcpbridge.models import ToolCall
from tests.pages.conftest import LogIn
from workflow.models import Agent, Event, Message, Project, Status, Task
from workflow.services import agents, claims, messages, projects, tasks, transitions

GOOD = [[f"call-{number}", 1, 1] for number in range(10)]
POOR = [["same", 0, 1] for _ in range(10)]


def text_of(response: Any) -> str:
    content: str = response.content.decode()
    return unescape(content)


def words_of(response: Any) -> str:
    """The page without its tags, in one line."""
    return " ".join(re.sub(r"<[^>]+>", "", text_of(response)).split())


def an_agent(project: Project, name: str = "ada") -> Actor:
    agent = agents.contact(project_id=project.pk, name=name, session="", client="", transport="http")
    return actors.agent(agent_id=agent.pk, name=agent.name)


def ada(project: Project) -> Agent:
    return Agent.objects.get(project=project, name="ada")


def at_work(project: Project, name: str = "ada", *, seen: list[Any] = GOOD) -> Task:
    """A task of its own that the agent holds, and calls it was seen to make."""
    actor = an_agent(project, name)
    task = tasks.create(project_id=project.pk, phase_number=2, description=f"Work of {name}", actor=actor)
    claims.start(project_id=project.pk, task_id=task.pk, actor=actor)
    Agent.objects.filter(project=project, name=name).update(observations=seen, client="claude-code")
    return task


# --- the list -------------------------------------------------------------------------------------------------------


def test_the_list_tells_who_is_at_work_on_what_and_how(mia: Client, project: Project) -> None:
    task = at_work(project)
    an_agent(project, "ben")
    Agent.objects.filter(name="ben").update(last_seen=timezone.now() - timedelta(minutes=20), last_action="get tasks")
    at_work(project, "cleo", seen=POOR)
    page = words_of(mia.get("/agents/"))
    assert "2 working · 0 idle · 1 stale" in page
    assert f"ada claude-code · #{task.ref} Work of ada, lease" in page
    assert "success: 10 of 10 calls failed" in page
    assert "get tasks · 20 min ago" in page
    partial = text_of(mia.get("/agents/?project=shop", headers={"HX-Request": "true"}))
    assert partial.lstrip().startswith('<p class="tally-line')
    assert "<html" not in partial
    assert "<form" not in partial


def test_a_retired_agent_is_shown_to_those_who_ask(mia: Client, project: Project) -> None:
    mia.post(f"/agents/{ada(project).pk}/retire")
    page = text_of(mia.get("/agents/"))
    assert "/agents/1/" not in page
    assert "Show those retired" in page
    assert re.search(r'<span class="chip ">retired</span>', text_of(mia.get("/agents/?retired=yes")))


def test_a_message_goes_to_all_to_a_phase_or_to_one(mia: Client, project: Project) -> None:
    at_work(project, "ada")
    an_agent(project, "ben")

    def heard(to: str) -> set[str]:
        Message.objects.all().delete()
        said = mia.post("/agents/messages", {"to": to, "text": "Stop\r\nplease"}, follow=True)
        names = set(Message.objects.values_list("recipient__name", flat=True))
        assert f"Sent to {len(names)} agent" in text_of(said)
        assert set(Message.objects.values_list("body", flat=True)) == {"Stop\nplease"}
        return names

    assert heard("*") == {"ada", "ben"}
    assert heard("phase:2") == {"ada"}
    assert heard("ben") == {"ben"}


@pytest.mark.parametrize(
    "wrong", [{"to": "nobody"}, {"to": "phase:3"}, {"to": "phase:x"}, {"to": ""}, {"text": "  "}, {"text": "a\0"}]
)
def test_a_message_nobody_would_get_is_refused_and_its_text_given_back(
    mia: Client, project: Project, wrong: dict[str, str]
) -> None:
    refused = mia.post("/agents/messages", {"to": "*", "text": "Precious words"} | wrong)
    assert refused.status_code in (404, 409, 422)
    assert "text" in wrong or "Precious words</textarea>" in text_of(refused)
    assert not Message.objects.exists()


# --- one agent ------------------------------------------------------------------------------------------------------


def test_an_agents_page_tells_its_work_its_coherence_and_its_calls(mia: Client, project: Project) -> None:
    task = at_work(project, seen=[*GOOD[:5], ["call-0", 0, 0]])
    ToolCall.objects.create(
        trace_id="t", worker="w", agent_name="ada", project=project, transport="rest", tool="search_knowledge",
        effect="READ_ONLY", outcome="timeout", duration_ms=3, arguments={"query": "tokens"}, error="Too slow",
    )  # fmt: skip
    page = words_of(mia.get(f"/agents/{ada(project).pk}/"))
    assert f"#{task.ref} Work of ada" in page
    for seen in ("1 of 6 calls repeated another", "1 of 6 calls failed", "1 of 6 calls went elsewhere"):
        assert seen in page
    assert "search_knowledge timeout" in page
    assert "Too slow" in page
    assert "ada claimed" in page


def test_an_agent_seen_too_little_has_no_score_and_the_page_says_so(mia: Client, project: Project) -> None:
    assert "0 of its calls were seen; there is a score from 5 on" in words_of(mia.get(f"/agents/{ada(project).pk}/"))


def test_the_inbox_tells_what_was_acknowledged(mia: Client, project: Project) -> None:
    agent = ada(project)
    for body in ("First **word**", "Second"):
        messages.send(project_id=project.pk, to="ada", body=body, actor=actors.person(user_id=1, name="kim"))
    messages.acknowledge(agent_id=agent.pk, message_ids=[Message.objects.order_by("pk")[0].pk])
    page = text_of(mia.get(f"/agents/{agent.pk}/"))
    assert "1 not acknowledged" in page
    assert "First <strong>word</strong>" in page
    inbox = page[page.index('id="inbox"') :]
    assert inbox.index(">unread<") < inbox.index(">acknowledged<")


def test_a_long_inbox_is_shown_in_parts(mia: Client, project: Project) -> None:
    agent = ada(project)
    for number in range(40):
        messages.send(project_id=project.pk, to="ada", body=f"word {number}.", actor=actors.SYSTEM)
    assert "word 3." not in text_of(mia.get(f"/agents/{agent.pk}/"))
    assert "word 3." in text_of(mia.get(f"/agents/{agent.pk}/?inbox=all"))


def test_a_person_writes_to_an_agent_releases_its_lease_and_retires_it(mia: Client, project: Project) -> None:
    task, agent = at_work(project), ada(project)
    assert "Sent. ada reads it" in text_of(mia.post(f"/agents/{agent.pk}/message", {"text": "Hello"}, follow=True))
    mia.post(f"/agents/{agent.pk}/release", {"task": task.public_id})
    task.refresh_from_db()
    assert (task.status, task.assigned_agent) == (Status.READY, None)
    assert "was taken back from you by mia" in Message.objects.filter(recipient=agent).latest("pk").body
    assert mia.post(f"/agents/{agent.pk}/release", {"task": task.public_id}).status_code == 422

    claims.start(project_id=project.pk, task_id=task.pk, actor=an_agent(project))
    said = words_of(mia.post(f"/agents/{agent.pk}/retire", follow=True))
    assert "ada is retired. It comes back with its next call." in said
    task.refresh_from_db()
    assert task.status == Status.READY
    mia.post(f"/agents/{agent.pk}/retire")
    assert Event.objects.filter(kind="agent.retired").count() == 1
    refused = mia.post(f"/agents/{agent.pk}/message", {"text": "Anybody there?"})
    assert refused.status_code == 409
    assert "is retired and reads no messages" in text_of(refused)


@pytest.mark.parametrize("task", ["", "x", "task-1", "task-99999", "9" * 30])
def test_a_lease_an_agent_does_not_hold_is_not_released(mia: Client, project: Project, task: str) -> None:
    at_work(project, "ben")
    events = Event.objects.count()
    assert mia.post(f"/agents/{ada(project).pk}/release", {"task": task}).status_code == 422
    assert Event.objects.count() == events


def test_a_viewer_reads_of_agents_and_changes_nothing(log_in: LogIn, project: Project) -> None:
    viewer = log_in(project, name="vic", role="viewer")
    task, agent = at_work(project), ada(project)
    events = Event.objects.count()
    for path in ("/agents/", f"/agents/{agent.pk}/", "/", "/activity/"):
        page = text_of(viewer.get(path))
        main = page[page.index('<main class="page"') :]
        assert 'method="post"' not in main, path
        assert "ada" in main
    body = {"text": "x", "to": "*", "task": task.public_id}
    for path in ("messages", f"{agent.pk}/message", f"{agent.pk}/release", f"{agent.pk}/retire"):
        assert viewer.post(f"/agents/{path}", body).status_code == 403
    assert (Event.objects.count(), Message.objects.count()) == (events, 0)


def test_the_agents_of_another_project_do_not_exist(log_in: LogIn, project: Project) -> None:
    stranger = log_in(projects.create(slug="other", name="Other"), name="sid")
    agent = ada(project)
    assert stranger.get(f"/agents/{agent.pk}/").status_code == 404
    for action in ("message", "release", "retire"):
        assert stranger.post(f"/agents/{agent.pk}/{action}", {"text": "x"}).status_code == 404
    refused = stranger.post("/agents/messages", {"to": "ada", "text": "x"})
    assert refused.status_code == 404
    assert not Message.objects.exists()
    assert stranger.post("/agents/messages?project=shop", {"to": "*", "text": "x"}).status_code == 404


def test_what_is_no_action_on_an_agent_is_not_found(mia: Client, project: Project) -> None:
    assert mia.post(f"/agents/{ada(project).pk}/explode").status_code == 404
    assert mia.get(f"/agents/{ada(project).pk}/retire").status_code == 405


# --- home -----------------------------------------------------------------------------------------------------------


def test_home_says_what_needs_a_person_first(mia: Client, project: Project) -> None:
    projects.configure(project_id=project.pk, actor=actors.SYSTEM, require_review=True)
    handed = at_work(project, "ben")
    transitions.finish(project_id=project.pk, task_id=handed.pk, actor=an_agent(project, "ben"))
    given_up = at_work(project, "cleo")
    waits = tasks.create(
        project_id=project.pk, phase_number=2, description="Waits", actor=actors.SYSTEM, blocked_by=[given_up.pk]
    )
    transitions.fail(project_id=project.pk, task_id=given_up.pk, actor=an_agent(project, "cleo"))
    lost = at_work(project, "dora", seen=POOR)
    page = words_of(mia.get("/"))
    assert "Needs you first" in page
    assert f"review #{handed.ref} Work of ben waits for your decision · ben" in page
    assert f"failed #{given_up.ref} Work of cleo gave up · cleo" in page
    assert f"stuck #{waits.ref} Waits" in page
    assert re.search(rf"guardian dora loses its thread on #{lost.ref} Work of dora coherence 0\.\d+ · success", page)
    assert "Needs you 4" in page
    partial = text_of(mia.get("/?project=shop", headers={"HX-Request": "true"}))
    assert "<html" not in partial
    assert "loses its thread" in partial


def test_home_is_calm_where_nothing_needs_a_person(mia: Client, project: Project) -> None:
    at_work(project)
    page = words_of(mia.get("/"))
    assert "Needs you first" not in page
    assert "Nothing waits for a person." in page


# --- activity -------------------------------------------------------------------------------------------------------


def shown(response: Any) -> list[str]:
    return re.findall(r'id="event-(\d+)"', text_of(response))


def test_the_activity_is_narrowed_in_the_address(mia: Client, project: Project) -> None:
    task = at_work(project)
    mia.post(f"/tasks/{task.pk}/note", {"text": "by a person"})
    mia.post("/agents/messages", {"to": "*", "text": "hello"})

    def kinds(query: str) -> set[tuple[str, str]]:
        pks = [int(one) for one in shown(mia.get(f"/activity/?{query}"))]
        return set(Event.objects.filter(pk__in=pks).values_list("kind", "actor_name"))

    assert kinds("kind=task.noted") == {("task.noted", "mia")}
    assert kinds("kind=message") == {("message.sent", "mia")}
    assert {actor for _, actor in kinds("actor=agent")} == {"ada"}
    assert {actor for _, actor in kinds("actor=person")} == {"mia"}
    assert {actor for _, actor in kinds("actor=@mia")} == {"mia"}
    assert kinds("agent=ada&kind=task.claimed") == {("task.claimed", "ada")}
    assert kinds(f"task=task-{task.pk}&actor=person") == {("task.noted", "mia")}
    assert kinds("actor=@nobody") == set()
    assert "Nothing like that has happened" in text_of(mia.get("/activity/?actor=@nobody"))


@pytest.mark.parametrize(
    "query",
    ["kind=nonsense", "actor=x", "agent=%00", "task=x", "before=x", "before=-1", "task=" + "9" * 40, "kind=task.%25",
     "before=" + "9" * 40, "after=x"],
)  # fmt: skip
def test_an_address_that_means_nothing_is_harmless(mia: Client, project: Project, query: str) -> None:
    assert mia.get(f"/activity/?{query}").status_code == 200


def test_the_activity_goes_on_page_by_page_without_gap_or_repetition(mia: Client, project: Project) -> None:
    task = at_work(project)
    for number in range(120):
        tasks.add_note(project_id=project.pk, task_id=task.pk, body=f"n{number}", actor=actors.SYSTEM)
    seen: list[str] = []
    address = "/activity/?kind=task.noted"
    for _ in range(10):
        page = mia.get(address)
        seen += shown(page)
        older = re.search(r'href="(\?[^"]*before=\d+[^"]*)"|href="/activity/(\?[^"]*before=\d+)"', text_of(page))
        if older is None:
            break
        address = f"/activity/{older[1] or older[2]}"
    assert len(seen) == len(set(seen)) == 120
    assert [int(one) for one in seen] == sorted((int(one) for one in seen), reverse=True)


def test_what_is_new_is_counted_by_the_same_filters(mia: Client, project: Project) -> None:
    task = at_work(project)
    page = text_of(mia.get("/activity/?kind=task.noted"))
    partial = re.search(r'data-partial="([^"]*)"', page)
    assert partial is not None
    ask = {"HX-Request": "true"}
    assert text_of(mia.get(partial[1], headers=ask)).strip() == ""
    for number in range(3):
        tasks.add_note(project_id=project.pk, task_id=task.pk, body=f"n{number}", actor=actors.SYSTEM)
    transitions.cancel(project_id=project.pk, task_id=task.pk, actor=actors.SYSTEM)
    news = text_of(mia.get(partial[1], headers=ask))
    assert "3 new" in words_of(mia.get(partial[1], headers=ask))
    assert "kind=task.noted" in news


@pytest.mark.parametrize("path", ["/agents/", "/agents/{agent}/", "/", "/activity/"])
def test_the_number_of_queries_does_not_grow_with_what_is_shown(mia: Client, project: Project, path: str) -> None:
    agent = ada(project)
    address = path.format(agent=agent.pk)

    def fill(start: int, rows: int) -> None:
        for number in range(start, start + rows):
            at_work(project, f"agent-{number}", seen=POOR)
            task = at_work(project)
            messages.send(project_id=project.pk, to="ada", body="x", actor=actors.SYSTEM, task_id=task.pk)
            given_up = at_work(project)
            transitions.fail(project_id=project.pk, task_id=given_up.pk, actor=an_agent(project))

    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert mia.get(address).status_code == 200
        return len(seen)

    fill(0, 2)
    mia.get(address)
    few = queries()
    fill(2, 12)
    assert queries() == few <= 22
