"""The page of a task and its form: what they show, what a person does there, and what several people do at once."""

import re
from datetime import timedelta
from html import unescape
from html.parser import HTMLParser
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
from workflow.models import Agent, Dependency, Event, Evidence, Message, Note, Project, Status, Task
from workflow.selectors import around
from workflow.services import agents, claims, dependencies, projects, tasks, transitions

LONG = "Ein sehr langer Name " * 9 + "🚀🧪"  # 191 characters
ARABIC = "مرحبا بالعالم"


def text_of(response: Any) -> str:
    content: str = response.content.decode()
    return unescape(content)


def an_agent(project: Project, name: str = "ada") -> Actor:
    agent = agents.contact(project_id=project.pk, name=name, session="", client="", transport="http")
    return actors.agent(agent_id=agent.pk, name=agent.name, tool="claim_task")


def first(project: Project) -> Task:
    return Task.objects.get(project=project, subject="Look around")


def held(project: Project) -> Task:
    task = claims.claim(project_id=project.pk, phase_number=1, actor=an_agent(project)).task
    assert task is not None
    return task


def in_review(project: Project) -> Task:
    projects.configure(project_id=project.pk, actor=actors.SYSTEM, require_review=True)
    task = held(project)
    transitions.finish(project_id=project.pk, task_id=task.pk, actor=an_agent(project), result="It works")
    return task


class Filled(HTMLParser):
    """What a browser would send of the forms on a page, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._choosing = self._writing = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        if tag == "input" and (given.get("type") not in ("checkbox", "radio") or "checked" in given):
            self.fields[name] = value
        elif tag == "textarea":
            self._writing = name
            self.fields[name] = ""
        elif tag == "select":
            self._choosing = name
        elif tag == "option" and ("selected" in given or self._choosing not in self.fields):
            self.fields[self._choosing] = value

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self.fields[self._writing] = self.fields[self._writing].removeprefix("\r").removeprefix("\n")
            self._writing = ""

    def handle_data(self, data: str) -> None:
        if self._writing:
            self.fields[self._writing] += data


def fields_of(response: Any) -> dict[str, str]:
    parser = Filled()
    parser.feed(response.content.decode())
    return {name: value for name, value in parser.fields.items() if name != "csrfmiddlewaretoken"}


class Harm(HTMLParser):
    """Elements and attributes that could do something, or leave the page for somewhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("img", "iframe", "style") or (tag == "script" and "src" not in given):
            self.found.append(tag)
        for name, value in given.items():
            leads = name in ("href", "src", "action", "formaction") and not (value or "").startswith(
                ("/", "#", "http", "?")
            )
            if name.startswith("on") or name == "style" or leads:
                self.found.append(f"{tag} {name}={value}")


def harm_in(page: str) -> list[str]:
    parser = Harm()
    parser.feed(page)
    return parser.found


# --- what it shows --------------------------------------------------------------------------------------------------


def test_a_task_shows_what_it_waits_for_and_what_waits_for_it_two_steps_far(mia: Client, project: Project) -> None:
    actor = an_agent(project)
    one = first(project)
    built = Task.objects.get(subject="Build it")
    shipped = tasks.create(
        project_id=project.pk, phase_number=2, description="Ship", actor=actor, blocked_by=[built.pk]
    )
    page = text_of(mia.get(f"/tasks/{one.pk}/"))
    assert "Is waited for by" in page
    assert "One step further: 1" in page
    drawn = re.search(r'data-graph="(\{.*?\})"></div>', page)
    assert drawn is not None
    assert f'"edges": [[{one.pk}, {built.pk}], [{built.pk}, {shipped.pk}]]' in drawn[1]
    assert f'data-near="task-{one.pk} task-{built.pk} task-{shipped.pk}"' in page


def test_parts_are_listed_with_their_progress(mia: Client, project: Project) -> None:
    actor = an_agent(project)
    epic = tasks.create(project_id=project.pk, phase_number=1, description="Epic", actor=actor)
    parts = [
        tasks.create(project_id=project.pk, phase_number=1, description=f"Part {n}", actor=actor, parent=epic.pk)
        for n in range(3)
    ]
    transitions.finish(project_id=project.pk, task_id=parts[0].pk, actor=actor)
    transitions.cancel(project_id=project.pk, task_id=parts[1].pk, actor=actor)
    page = text_of(mia.get(f"/tasks/{epic.pk}/"))
    assert "1 of 2 done" in page
    assert "Part 2" in page
    assert "Epic" in text_of(mia.get(f"/tasks/{parts[0].pk}/"))


def test_the_calls_of_its_agent_are_those_made_while_it_held_the_task(mia: Client, project: Project) -> None:
    task = held(project)
    start = timezone.now() - timedelta(hours=2)
    Event.objects.filter(task=task, kind="task.claimed").update(at=start)
    claims.release(project_id=project.pk, task_id=task.pk, actor=an_agent(project))
    Event.objects.filter(task=task, kind="task.released").update(at=start + timedelta(hours=1))

    def called(tool: str, after: timedelta, agent: str = "ada", in_project: Project = project) -> None:
        ToolCall.objects.create(
            at=start + after, trace_id="t", worker="w", agent_name=agent, project=in_project, transport="rest",
            tool=tool, effect="READ_ONLY", outcome="ok", duration_ms=3, arguments={"query": "<b>tokens</b>"},
        )  # fmt: skip

    called("search_knowledge", timedelta(minutes=5))
    called("before_it", timedelta(minutes=-5))
    called("after_it", timedelta(minutes=65))
    called("by_another", timedelta(minutes=5), agent="ben")
    called("elsewhere", timedelta(minutes=5), in_project=projects.create(slug="other", name="Other"))
    page = mia.get(f"/tasks/{task.pk}/").content.decode()
    assert "search_knowledge" in page
    assert "&lt;b&gt;tokens" in page
    assert not re.search("before_it|after_it|by_another|elsewhere", page)


def test_the_log_tells_who_held_a_task_when(project: Project) -> None:
    task = held(project)
    transitions.fail(project_id=project.pk, task_id=task.pk, actor=an_agent(project))
    transitions.retry(project_id=project.pk, task_id=task.pk, actor=actors.SYSTEM)
    claims.start(project_id=project.pk, task_id=task.pk, actor=an_agent(project, "ben"))
    spans = around.spans(task)
    assert [(span.agent, span.until is None) for span in spans] == [("ada", False), ("ben", True)]
    assert spans[0].until is not None
    assert spans[1].since is not None
    assert spans[0].until <= spans[1].since


def test_an_agent_sent_back_by_a_review_holds_the_task_again(project: Project) -> None:
    task = in_review(project)
    transitions.review(project_id=project.pk, task_id=task.pk, decision="reject", actor=actors.SYSTEM, feedback="more")
    assert [(span.agent, span.until is None) for span in around.spans(task)] == [("ada", False), ("ada", True)]


def test_the_activity_says_who_did_what_through_which_tool(mia: Client, project: Project) -> None:
    task = held(project)
    mia.post(f"/tasks/{task.pk}/note", {"text": "Mind the gap"})
    page = text_of(mia.get(f"/tasks/{task.pk}/"))
    history = page[page.index('id="history"') :]
    assert re.search(r"<b[^>]*>ada</b> claimed\s*<span[^>]*>through claim task", history)
    assert re.search(r"<b[^>]*>mia</b> wrote a note on\s*<span[^>]*>in the browser", history)
    assert "“Mind the gap”" in history


def test_a_long_activity_goes_on_on_its_own_page(mia: Client, project: Project) -> None:
    task = first(project)
    for number in range(60):
        tasks.add_note(project_id=project.pk, task_id=task.pk, body=f"note {number}.", actor=actors.SYSTEM)
    page = text_of(mia.get(f"/tasks/{task.pk}/"))
    assert "note 59." in page
    assert "note 3." not in page
    assert "note 3." in text_of(mia.get(f"/tasks/{task.pk}/?notes=all"))
    assert f"/activity/?project=shop&task=task-{task.pk}" in page
    listed = text_of(mia.get(f"/activity/?project=shop&task=task-{task.pk}"))
    assert "“note 59.”" in listed
    older = re.search(r'href="\?(task=task-\d+&before=\d+)"|href="[^"]*\?([^"]*before=\d+)"', listed)
    assert older is not None
    assert "“note 3.”" in text_of(mia.get(f"/activity/?{older[1] or older[2]}"))


def test_for_its_own_script_the_page_gives_the_parts_that_change(mia: Client, project: Project) -> None:
    task = first(project)
    partial = text_of(mia.get(f"/tasks/{task.pk}/", headers={"HX-Request": "true"}))
    assert "<html" not in partial
    parts = re.findall(r'id="(part-[a-z]+)"\s+data-part', partial)
    assert {"part-title", "part-decide", "part-checks", "part-notes", "part-facts", "part-history"} <= set(parts)
    whole = text_of(mia.get(f"/tasks/{task.pk}/"))
    assert re.findall(r'id="(part-[a-z]+)"\s+data-part', whole) == parts
    assert "May help" in whole
    assert "May help" not in partial  # asked once for a page, not with every change


def test_the_number_of_queries_does_not_grow_with_what_stands_around_a_task(mia: Client, project: Project) -> None:
    actor = an_agent(project)
    middle = held(project)

    def fill(rows: int) -> None:
        for number in range(rows):
            before = tasks.create(project_id=project.pk, phase_number=1, description=f"b{number}", actor=actor)
            far = tasks.create(project_id=project.pk, phase_number=1, description=f"f{number}", actor=actor)
            after = tasks.create(
                project_id=project.pk, phase_number=2, description=f"a{number}", actor=actor, blocked_by=[middle.pk]
            )
            dependencies.add(project_id=project.pk, task_id=middle.pk, blocked_by=[before.pk], actor=actor)
            dependencies.add(project_id=project.pk, task_id=before.pk, blocked_by=[far.pk], actor=actor)
            tasks.create(project_id=project.pk, phase_number=1, description="c", actor=actor, parent=middle.pk)
            tasks.add_note(project_id=project.pk, task_id=after.pk, body="n", actor=actor)
            tasks.add_note(project_id=project.pk, task_id=middle.pk, body="n", actor=actor)

    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert mia.get(f"/tasks/{middle.pk}/").status_code == 200
        return len(seen)

    fill(2)
    mia.get(f"/tasks/{middle.pk}/")
    few = queries()
    fill(12)
    assert queries() == few <= 32


TABLE = "| " + " | ".join(f"column {n}" for n in range(40)) + " |\n|" + "---|" * 40 + "\n" + ("| x " * 40 + "|\n") * 200


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>", "[click](javascript:alert(1))", "<img src=x onerror=alert(1)>",
        "[a](data:text/html,x)", "[a](vbscript:x)", "[a]( java&#x73;cript:alert(1))", "<svg onload=x>",
    ],
)  # fmt: skip
def test_what_others_wrote_can_do_nothing_wherever_it_is_shown(mia: Client, project: Project, text: str) -> None:
    task = in_review(project)
    who: dict[str, Any] = {"project_id": project.pk, "task_id": task.pk, "actor": an_agent(project)}
    Task.objects.filter(pk=task.pk).update(
        subject=text[:255], description=f"T\n\n{text}", result=text, manual_block=text, tags=[text]
    )
    tasks.add_note(**who, body=text)
    for kind in Evidence.Kind:
        tasks.add_evidence(**who, proofs=[tasks.Proof(1, text, kind)])
        page = mia.get(f"/tasks/{task.pk}/").content.decode()
        assert harm_in(page) == []
    ToolCall.objects.create(
        trace_id="t", worker="w", agent_name="ada", project=project, transport="rest", tool=text, effect="READ_ONLY",
        outcome="ok", duration_ms=3, arguments={text: text}, error=text,
    )  # fmt: skip
    for path in (f"/tasks/{task.pk}/edit/", "/activity/", "/", "/agents/", f"/agents/{Agent.objects.get().pk}/"):
        assert harm_in(mia.get(path).content.decode()) == [], path


def test_a_huge_table_stands_in_a_box_of_its_own(mia: Client, project: Project) -> None:
    task = tasks.create(project_id=project.pk, phase_number=1, description=f"Table\n\n{TABLE}", actor=actors.SYSTEM)
    page = text_of(mia.get(f"/tasks/{task.pk}/"))
    assert '<div class="scroll"><table>' in page
    assert page.count("<tr>") == 201


def test_long_names_emoji_and_right_to_left_names_stand_everywhere(mia: Client, project: Project) -> None:
    actor = an_agent(project, f"{ARABIC}-🚀")
    task = tasks.create(project_id=project.pk, phase_number=1, description=LONG, actor=actor, tags=[ARABIC, "🚀"])
    arabic = tasks.create(project_id=project.pk, phase_number=1, description=ARABIC, actor=actor, blocked_by=[task.pk])
    claims.start(project_id=project.pk, task_id=task.pk, actor=actor)
    for path in (f"/tasks/{task.pk}/", f"/tasks/{arabic.pk}/", "/", "/agents/", "/activity/"):
        page = text_of(mia.get(path))
        assert "Ein sehr langer Name" in page
        assert ARABIC in page
    assert LONG in text_of(mia.get(f"/tasks/{task.pk}/"))
    assert f'<h1 dir="auto">{ARABIC}</h1>' in text_of(mia.get(f"/tasks/{arabic.pk}/"))


# --- what a person does there ---------------------------------------------------------------------------------------


def test_a_person_shows_evidence_for_a_done_definition(mia: Client, project: Project) -> None:
    task = first(project)
    page = text_of(mia.get(f"/tasks/{task.pk}/"))
    assert "0 of " in page
    mia.post(f"/tasks/{task.pk}/evidence", {"definition": "1", "kind": "url", "text": "https://example.com/run/1"})
    made = Evidence.objects.get(task=task)
    assert (made.kind, made.actor_name, made.actor_kind) == ("url", "mia", "person")
    page = text_of(mia.get(f"/tasks/{task.pk}/"))
    assert "1 of " in page
    assert '<a href="https://example.com/run/1"' in page
    mia.post(f"/tasks/{task.pk}/evidence", {"definition": "1", "kind": "text", "text": "Better"})
    assert Evidence.objects.get(task=task).content == "Better"


@pytest.mark.parametrize(
    "wrong", [{"definition": "99"}, {"definition": ""}, {"kind": "rumour"}, {"text": " "}, {"text": "a\0b"}]
)
def test_evidence_that_proves_nothing_is_refused_and_given_back(
    mia: Client, project: Project, wrong: dict[str, str]
) -> None:
    task = first(project)
    body = {"definition": "1", "kind": "text", "text": "I saw it"} | wrong
    refused = mia.post(f"/tasks/{task.pk}/evidence", body)
    assert refused.status_code == 422
    if "text" not in wrong:
        assert "I saw it</textarea>" in text_of(refused)
    assert not Evidence.objects.exists()


def test_a_person_lets_a_task_wait_for_another_and_frees_it(mia: Client, project: Project) -> None:
    task = first(project)
    other = tasks.create(project_id=project.pk, phase_number=1, description="Other", actor=actors.SYSTEM)
    said = text_of(mia.post(f"/tasks/{task.pk}/block", {"blocker": f"#{other.ref}"}, follow=True))
    assert f"It waits for #{other.ref} Other." in said
    task.refresh_from_db()
    assert task.status == Status.PENDING
    mia.post(f"/tasks/{task.pk}/unblock", {"blocker": other.public_id})
    task.refresh_from_db()
    assert task.status == Status.READY
    again = mia.post(f"/tasks/{task.pk}/unblock", {"blocker": other.public_id})
    assert again.status_code == 404
    mia.post(f"/tasks/{task.pk}/block", {"blocker": f"task-{other.pk}"})
    assert Dependency.objects.filter(task=task, blocker=other).exists()


def test_a_circle_is_refused_with_the_names_in_it(mia: Client, project: Project) -> None:
    task, built = first(project), Task.objects.get(subject="Build it")
    refused = mia.post(f"/tasks/{task.pk}/block", {"blocker": f"#{built.ref}"})
    assert refused.status_code == 409
    ring = f"#{task.ref} Look around waits for #{built.ref} Build it waits for #{task.ref} Look around"
    assert ring in text_of(refused)
    assert f'value="#{built.ref}"' in text_of(refused)
    assert mia.post(f"/tasks/{task.pk}/block", {"blocker": f"#{task.ref}"}).status_code == 409


@pytest.mark.parametrize("words", ["", "the other one", "#", "#99999", "task-99999", "9" * 40, "#-1", "١"])
def test_a_blocker_that_is_no_task_is_refused(mia: Client, project: Project, words: str) -> None:
    task = first(project)
    assert mia.post(f"/tasks/{task.pk}/block", {"blocker": words}).status_code in (404, 422)


def test_a_task_of_another_project_is_no_blocker(mia: Client, project: Project) -> None:
    other = projects.create(slug="other", name="Other")
    theirs = tasks.create(project_id=other.pk, phase_number=1, description="Secret plan", actor=actors.SYSTEM)
    for words in (f"task-{theirs.pk}", "#77"):
        refused = mia.post(f"/tasks/{first(project).pk}/block", {"blocker": words})
        assert refused.status_code == 404
        assert "Secret plan" not in text_of(refused)


def test_a_person_writes_to_the_agent_of_a_task(mia: Client, project: Project) -> None:
    task = held(project)
    assert "Write to" in text_of(mia.get(f"/tasks/{task.pk}/"))
    said = text_of(mia.post(f"/tasks/{task.pk}/message", {"to": "ada", "text": "Use the\r\nold key"}, follow=True))
    assert "Sent. ada reads it with its next call." in said
    sent = Message.objects.get()
    assert (sent.recipient.name, sent.sender_kind, sent.sender_name, sent.task, sent.body) == (
        "ada", "person", "mia", task, "Use the\nold key",
    )  # fmt: skip


@pytest.mark.parametrize("to", ["nobody", "", "phase:99", "x" * 300])
def test_a_message_to_nobody_is_refused_and_its_text_given_back(mia: Client, project: Project, to: str) -> None:
    task = held(project)
    refused = mia.post(f"/tasks/{task.pk}/message", {"to": to, "text": "Precious words"})
    assert refused.status_code in (404, 409, 422)
    assert "Precious words</textarea>" in text_of(refused)


def test_releasing_a_task_tells_its_holder(mia: Client, project: Project) -> None:
    task = held(project)
    mia.post(f"/tasks/{task.pk}/release")
    task.refresh_from_db()
    assert (task.status, task.assigned_agent) == (Status.READY, None)
    assert f"{task.public_id} was taken back from you by mia" in Message.objects.get(recipient__name="ada").body
    assert mia.post(f"/tasks/{task.pk}/release").status_code == 409
    assert Message.objects.count() == 1


def test_the_last_move_is_taken_back(mia: Client, project: Project) -> None:
    task = held(project)
    page = text_of(mia.get(f"/tasks/{task.pk}/"))
    assert "Undo “claimed”" in page
    assert "it is ready again" in text_of(mia.post(f"/tasks/{task.pk}/undo", follow=True))
    task.refresh_from_db()
    assert task.status == Status.READY
    assert "Undo “" not in text_of(mia.get(f"/tasks/{task.pk}/"))
    assert mia.post(f"/tasks/{task.pk}/undo").status_code == 409


def test_a_failed_task_is_put_back_to_work(mia: Client, project: Project) -> None:
    task = held(project)
    transitions.fail(project_id=project.pk, task_id=task.pk, actor=an_agent(project), result="No **key**")
    page = text_of(mia.get(f"/tasks/{task.pk}/"))
    assert "This task failed" in page
    assert "<strong>key</strong>" in page
    mia.post(f"/tasks/{task.pk}/retry")
    task.refresh_from_db()
    assert task.status == Status.READY


def test_a_decision_on_a_task_that_changed_is_refused_and_the_words_are_kept(mia: Client, project: Project) -> None:
    task = in_review(project)
    seen = task.version
    task.refresh_from_db()
    tasks.edit(project_id=project.pk, task_id=task.pk, actor=actors.SYSTEM, description="Now with tests")
    refused = mia.post(f"/tasks/{task.pk}/reject", {"version": str(seen), "text": "Where are the tests?"})
    assert refused.status_code == 409
    page = text_of(refused)
    assert "changed meanwhile" in page
    assert "Where are the tests?</textarea>" in page
    assert 'id="unused"' not in page  # the form it was written in is still there
    task.refresh_from_db()
    assert task.status == Status.REVIEW


def test_feedback_on_a_task_somebody_else_approved_can_become_a_note(mia: Client, project: Project) -> None:
    task = in_review(project)
    transitions.review(project_id=project.pk, task_id=task.pk, decision="approve", actor=actors.SYSTEM)
    refused = mia.post(f"/tasks/{task.pk}/reject", {"text": "Not yet, the tests"})
    assert refused.status_code == 409
    page = text_of(refused)
    assert "What you wrote was not used. Keep it as a note?" in page
    assert "Not yet, the tests</textarea>" in page
    mia.post(f"/tasks/{task.pk}/note", {"text": "Not yet, the tests"})
    assert Note.objects.filter(task=task, body="Not yet, the tests").exists()


@pytest.mark.parametrize("text", ["", "  ", "x" * 100_001, "a\0b"])
def test_a_note_that_cannot_be_kept_is_refused(mia: Client, project: Project, text: str) -> None:
    task = first(project)
    assert mia.post(f"/tasks/{task.pk}/note", {"text": text}).status_code == 422
    assert not Note.objects.exists()


ACTIONS = (
    *("approve", "reject", "retry", "release", "cancel", "undo"),
    *("note", "evidence", "message", "block", "unblock"),
)


@pytest.mark.parametrize("action", [*ACTIONS, "edit/"])
def test_a_viewers_forged_post_changes_nothing(log_in: LogIn, project: Project, action: str) -> None:
    viewer = log_in(project, name="vic", role="viewer")
    task = held(project)
    before, events = task.version, Event.objects.count()
    body = {"text": "x", "to": "ada", "definition": "1", "blocker": "#2", "subject": "Mine", "version": "1"}
    refused = viewer.post(f"/tasks/{task.pk}/{action}", body)
    assert refused.status_code == 403
    assert "not change it" in text_of(refused)
    task.refresh_from_db()
    assert (task.version, Event.objects.count(), Message.objects.count()) == (before, events, 0)


def test_a_viewer_sees_everything_and_no_form(log_in: LogIn, project: Project) -> None:
    viewer = log_in(project, name="vic", role="viewer")
    for task in (in_review(project), Task.objects.get(subject="Build it")):
        page = text_of(viewer.get(f"/tasks/{task.pk}/"))
        main = page[page.index('<main class="page"') :]
        assert "<form" not in main
        assert "Edit" not in main
        assert "It works" in main or task.subject == "Build it"
    assert viewer.get(f"/tasks/{task.pk}/edit/").status_code == 403


@pytest.mark.parametrize("action", ["", "edit/", *ACTIONS])
def test_a_stranger_finds_no_task(log_in: LogIn, project: Project, action: str) -> None:
    stranger = log_in(projects.create(slug="other", name="Other"), name="sid")
    task = first(project)
    ask = stranger.post if action in ACTIONS else stranger.get
    assert ask(f"/tasks/{task.pk}/{action}").status_code == 404
    assert stranger.get("/tasks/99999999999999999999/").status_code == 404


# --- the form -------------------------------------------------------------------------------------------------------


def test_the_form_changes_everything_a_task_says_in_one_piece(mia: Client, project: Project) -> None:
    task = first(project)
    form = fields_of(mia.get(f"/tasks/{task.pk}/edit/"))
    assert (form["subject"], form["phase"], form["priority"], form["tags"]) == ("Look around", "1", "medium", "auth")
    form |= {
        "subject": "Look closer", "description": "All\r\nof it", "priority": "high", "phase": "2", "boosted": "on",
        "tags": f"auth, {ARABIC},, new ,new", "reserved_for": "ada", "manual_block": "Wait for Ann",
    }  # fmt: skip
    done = mia.post(f"/tasks/{task.pk}/edit/", form, follow=True)
    assert "Saved." in text_of(done)
    task.refresh_from_db()
    assert (task.subject, task.description, task.priority_name, task.boosted) == (
        "Look closer", "All\nof it", "high", True,
    )  # fmt: skip
    assert (task.tags, task.phase.number) == (["auth", ARABIC, "new"], 2)
    assert (task.manual_block, task.status) == ("Wait for Ann", Status.PENDING)
    assert task.reserved_for is not None
    assert task.reserved_for.name == "ada"
    kinds = set(Event.objects.filter(task=task, actor_name="mia").values_list("kind", flat=True))
    assert kinds == {"task.edited", "task.reserved", "task.blocked"}
    page = text_of(done)
    assert "Wait for Ann" in page
    assert "boosted" in page


def test_saving_a_form_untouched_changes_nothing(mia: Client, project: Project) -> None:
    task = tasks.create(
        project_id=project.pk, phase_number=1, description="Two\n\nlines  \n", actor=actors.SYSTEM, tags=["b", "a"]
    )
    events = Event.objects.count()
    mia.post(f"/tasks/{task.pk}/edit/", fields_of(mia.get(f"/tasks/{task.pk}/edit/")))
    task.refresh_from_db()
    assert (task.version, Event.objects.count()) == (1, events)


def test_a_new_title_also_stands_at_the_head_of_the_description(mia: Client, project: Project) -> None:
    task = tasks.create(project_id=project.pk, phase_number=1, description="Old title\n\nText", actor=actors.SYSTEM)
    form = fields_of(mia.get(f"/tasks/{task.pk}/edit/"))
    mia.post(f"/tasks/{task.pk}/edit/", form | {"subject": "New title"})
    task.refresh_from_db()
    assert task.description == "New title\n\nText"


@pytest.mark.parametrize(
    "wrong",
    [
        {"subject": " "}, {"subject": "x" * 256}, {"description": ""}, {"description": "x" * 100_001},
        {"priority": "asap"}, {"phase": "99"}, {"phase": ""}, {"reserved_for": "nobody"}, {"manual_block": "x" * 501},
        {"subject": "a\0b"}, {"version": ""}, {"version": "x"},
    ],
)  # fmt: skip
def test_a_wrong_form_comes_back_as_it_was_filled_in(mia: Client, project: Project, wrong: dict[str, str]) -> None:
    task = first(project)
    form = fields_of(mia.get(f"/tasks/{task.pk}/edit/"))
    refused = mia.post(f"/tasks/{task.pk}/edit/", form | {"tags": "kept, typed"} | wrong)
    assert refused.status_code == 422
    assert 'value="kept, typed"' in text_of(refused)
    task.refresh_from_db()
    assert task.version == 1


def test_what_a_claimed_or_closed_task_cannot_take_is_refused_whole(mia: Client, project: Project) -> None:
    task = held(project)
    before = task.version
    form = fields_of(mia.get(f"/tasks/{task.pk}/edit/"))
    refused = mia.post(f"/tasks/{task.pk}/edit/", form | {"subject": "New", "reserved_for": "ada"})
    assert refused.status_code == 409
    assert 'value="New"' in text_of(refused)
    refused = mia.post(f"/tasks/{task.pk}/edit/", form | {"subject": "New", "phase": "2"})
    assert "release it" in text_of(refused)
    task.refresh_from_db()
    assert (task.version, task.subject) == (before, "Look around")


def test_two_people_who_edit_one_task_see_both_versions_and_choose(
    mia: Client, log_in: LogIn, project: Project
) -> None:
    task = first(project)
    kim = log_in(project, name="kim")
    hers, his = (fields_of(who.get(f"/tasks/{task.pk}/edit/")) for who in (mia, kim))
    mia.post(f"/tasks/{task.pk}/edit/", hers | {"subject": "Mia's title", "priority": "high", "description": "Long A"})
    clash = kim.post(
        f"/tasks/{task.pk}/edit/", his | {"subject": "Kim's title", "description": "Long B", "tags": "auth, kims"}
    )
    assert clash.status_code == 409
    page = text_of(clash)
    for words in (
        "Mia's title",
        "Kim's title",
        "Long A",
        "Long B",
        "mia</b> saved a change meanwhile",
        "Only theirs changed",
    ):
        assert words in page
    assert re.search("Your other changes are kept: Tags", page)
    assert 'value="auth, kims"' in page
    task.refresh_from_db()
    assert task.subject == "Mia's title"

    second = fields_of(clash)
    chosen = {"keep-subject": "mine", "keep-description": "theirs", "keep-priority": "theirs"}
    saved = kim.post(f"/tasks/{task.pk}/edit/", second | chosen)
    assert saved.status_code == 302
    task.refresh_from_db()
    assert (task.subject, task.description) == ("Kim's title", "Long A")
    assert (task.priority_name, task.tags) == ("high", ["auth", "kims"])


def test_a_choice_that_is_overtaken_is_asked_for_again(mia: Client, log_in: LogIn, project: Project) -> None:
    task = first(project)
    kim = log_in(project, name="kim")
    his = fields_of(kim.get(f"/tasks/{task.pk}/edit/"))
    who: dict[str, Any] = {"project_id": project.pk, "task_id": task.pk, "actor": actors.SYSTEM}
    tasks.edit(**who, subject="One")
    asked = kim.post(f"/tasks/{task.pk}/edit/", his | {"subject": "Kim's"})
    tasks.edit(**who, subject="Two")
    again = kim.post(f"/tasks/{task.pk}/edit/", fields_of(asked) | {"keep-subject": "mine"})
    assert again.status_code == 409
    assert "Two" in text_of(again)
    assert "Kim's" in text_of(again)
    kim.post(f"/tasks/{task.pk}/edit/", fields_of(again) | {"keep-subject": "theirs"})
    task.refresh_from_db()
    assert task.subject == "Two"


def test_an_edit_goes_through_where_only_something_else_moved_meanwhile(mia: Client, project: Project) -> None:
    task = first(project)
    form = fields_of(mia.get(f"/tasks/{task.pk}/edit/"))
    claims.start(project_id=project.pk, task_id=task.pk, actor=an_agent(project))
    saved = mia.post(f"/tasks/{task.pk}/edit/", form | {"subject": "Renamed"})
    assert saved.status_code == 302
    task.refresh_from_db()
    assert (task.subject, task.status) == ("Renamed", Status.IN_PROGRESS)


def test_the_same_edit_made_twice_is_no_conflict(mia: Client, project: Project) -> None:
    task = first(project)
    form = fields_of(mia.get(f"/tasks/{task.pk}/edit/")) | {"subject": "Once"}
    assert mia.post(f"/tasks/{task.pk}/edit/", form).status_code == 302
    assert mia.post(f"/tasks/{task.pk}/edit/", form).status_code == 302
    assert Event.objects.filter(task=task, kind="task.edited").count() == 1


def test_a_form_without_its_marks_never_writes_over_what_it_did_not_know(mia: Client, project: Project) -> None:
    task = first(project)
    form = fields_of(mia.get(f"/tasks/{task.pk}/edit/")) | {"marks": "", "subject": "Mine"}
    tasks.edit(project_id=project.pk, task_id=task.pk, actor=actors.SYSTEM, subject="Theirs")
    for marks in ("", "subject", "[" * 500, "subject:x subject:y", "x" * 599):
        assert mia.post(f"/tasks/{task.pk}/edit/", form | {"marks": marks}).status_code == 409
    task.refresh_from_db()
    assert task.subject == "Theirs"


def test_a_retired_agent_keeps_no_task_from_being_edited(mia: Client, project: Project) -> None:
    task = first(project)
    ada = Agent.objects.get(name="ada")
    tasks.reserve(project_id=project.pk, task_id=task.pk, agent="ada", actor=actors.SYSTEM)
    Agent.objects.filter(pk=ada.pk).update(retired_at=timezone.now())
    form = fields_of(mia.get(f"/tasks/{task.pk}/edit/"))
    assert form["reserved_for"] == "ada"
    assert mia.post(f"/tasks/{task.pk}/edit/", form | {"subject": "New"}).status_code == 302
    form = fields_of(mia.get(f"/tasks/{task.pk}/edit/"))
    assert mia.post(f"/tasks/{task.pk}/edit/", form | {"reserved_for": ""}).status_code == 302
    task.refresh_from_db()
    assert task.reserved_for is None


def test_two_new_titles_clash_in_the_title_alone(mia: Client, log_in: LogIn, project: Project) -> None:
    task = tasks.create(project_id=project.pk, phase_number=1, description="Old\n\nText", actor=actors.SYSTEM)
    kim = log_in(project, name="kim")
    his = fields_of(kim.get(f"/tasks/{task.pk}/edit/"))
    mia.post(f"/tasks/{task.pk}/edit/", fields_of(mia.get(f"/tasks/{task.pk}/edit/")) | {"subject": "Mia's"})
    clash = kim.post(f"/tasks/{task.pk}/edit/", his | {"subject": "Kim's"})
    assert re.findall(r'name="keep-(\w+)"', text_of(clash)) == ["subject", "subject"]
    kim.post(f"/tasks/{task.pk}/edit/", fields_of(clash) | {"keep-subject": "mine"})
    task.refresh_from_db()
    assert (task.subject, task.description) == ("Kim's", "Kim's\n\nText")
