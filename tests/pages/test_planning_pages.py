"""Backlog, sprints, issues and the page of one item: who sees and changes what, and what it costs."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from devflow import actors
from tests.fakes.taiga_server import TaigaServer
from tests.pages.conftest import LogIn
from tests.taiga_remote.scenes import ADMIN, PASSWORD
from workflow.models import AgileRole, Epic, Issue, IssueType, ItemStatus, Kind, Project, Sprint, Task, UserStory
from workflow.services import claims, projects, transitions
from workflow.services.agile import items, sprints, words, work
from workflow.taiga import remotes, transport
from workflow.taiga.remote import RemoteProvider


def text_of(response: Any) -> str:
    content: str = response.content.decode()
    return content


def epic_of(project: Project, subject: str = "Paying", **fields: Any) -> Any:
    return items.create(Kind.EPIC, project=project, actor=actors.SYSTEM, fields={"subject": subject, **fields})


def story_of(project: Project, subject: str = "Pay by card", **fields: Any) -> Any:
    return items.create(Kind.USER_STORY, project=project, actor=actors.SYSTEM, fields={"subject": subject, **fields})


def issue_of(project: Project, subject: str = "It is broken", **fields: Any) -> Any:
    return items.create(Kind.ISSUE, project=project, actor=actors.SYSTEM, fields={"subject": subject, **fields})


def task_of(project: Project, story: Any, subject: str = "Draw the form") -> Task:
    return work.create(project=project, story_id=story.pk, actor=actors.SYSTEM, fields={"subject": subject})


def sprint_of(project: Project, name: str = "Sprint 1", *, days: int = 14) -> Sprint:
    today = timezone.now().date()
    return sprints.create(
        project=project, name=name, starts_on=today, ends_on=today + timedelta(days=days - 1), actor=actors.SYSTEM
    )


def status(project: Project, kind: Kind, name: str) -> ItemStatus:
    return ItemStatus.objects.get(project=project, kind=kind, name=name)


@pytest.fixture
def planned(project: Project) -> Project:
    """An epic with two stories, one of them with two tasks and in a sprint; a story beside; an issue."""
    epic = epic_of(project, description="**All** the ways")
    sprint = sprint_of(project)
    first = story_of(project, epic_id=epic.pk, sprint_id=sprint.pk, points={"front": 3, "back": 2})
    story_of(project, "Pay by bill", epic_id=epic.pk)
    story_of(project, "Look nice")
    task_of(project, first)
    task_of(project, first, "Send it")
    issue_of(project)
    return project


@pytest.fixture
def viewer(planned: Project, log_in: LogIn) -> Client:
    return log_in(planned, name="vera", role="viewer")


def urls(project: Project) -> dict[str, str]:
    epic, story = Epic.objects.get(), UserStory.objects.earliest("pk")
    issue, sprint = Issue.objects.get(), Sprint.objects.get()
    return {
        "backlog": "/backlog/shop/",
        "sprints": "/sprints/shop/",
        "sprint": f"/sprints/shop/{sprint.pk}/",
        "issues": "/issues/shop/",
        "epic": f"/epics/{epic.pk}/",
        "story": f"/stories/{story.pk}/",
        "issue": f"/issues/shop/{issue.pk}/",
    }


# --- reading ----------------------------------------------------------------------------------------------------------


def test_first_pages_teach_what_to_do(mia: Client, project: Project) -> None:
    assert "Plan what shall be built" in text_of(mia.get("/backlog/shop/"))
    assert "No sprints yet" in text_of(mia.get("/sprints/shop/"))
    assert "No issues yet" in text_of(mia.get("/issues/shop/"))
    assert mia.get("/backlog/").headers["Location"] == "/backlog/shop/"
    assert mia.get("/issues/").headers["Location"] == "/issues/shop/"


def test_somebody_in_no_project_is_led_home(log_in: LogIn) -> None:
    client = log_in(name="new")
    assert client.get("/backlog/").headers["Location"] == "/"
    assert client.get("/issues/").headers["Location"] == "/"


def test_the_backlog_shows_epics_with_progress_and_their_stories(mia: Client, planned: Project) -> None:
    page = text_of(mia.get("/backlog/shop/"))
    assert "Paying" in page and "0 of 3 done" in page  # two tasks, and the story without one
    assert "0/2 tasks" in page and "5 pts" in page and "Sprint 1" in page
    assert page.index("Pay by card") < page.index("Pay by bill") < page.index("Stories without an epic")
    assert "Look nice" in page


def test_what_an_agent_finishes_is_progress_on_every_page(mia: Client, planned: Project) -> None:
    agent = actors.agent(agent_id=planned.agents.get().pk, name="ada")
    task = Task.objects.get(subject="Send it")
    claims.start(project_id=planned.pk, task_id=task.pk, actor=agent)
    transitions.finish(project_id=planned.pk, task_id=task.pk, actor=agent)
    where = urls(planned)
    assert "1 of 3 done" in text_of(mia.get(where["backlog"]))
    assert "1 of 3 done" in text_of(mia.get(where["epic"]))
    assert "1 of 2 done" in text_of(mia.get(where["story"]))
    assert "1/2 tasks" in text_of(mia.get(where["backlog"]))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {"Pay by card", "Pay by bill", "Look nice"}),
        ("q=card", {"Pay by card"}),
        ("q=nothing", set()),
        ("sprint=-", {"Pay by bill", "Look nice"}),
        ("assignee=-", {"Pay by card", "Pay by bill", "Look nice"}),
        ("epic=0", {"Look nice"}),
        ("status=all&q=pay", {"Pay by card", "Pay by bill"}),
        ("status=x&sprint=%00&assignee=99999999999&page=-3&epic=x", {"Pay by card", "Pay by bill", "Look nice"}),
        ("epic=424242", set()),
    ],
)
def test_the_backlog_is_narrowed_by_its_address(mia: Client, planned: Project, query: str, found: set[str]) -> None:
    response = mia.get(f"/backlog/shop/?{query}")
    assert response.status_code == 200
    shown = {story.subject for group in response.context["backlog"].groups for story in group.stories}
    assert shown == found


def test_finished_stories_are_shown_when_asked_for(mia: Client, planned: Project) -> None:
    story = UserStory.objects.get(subject="Look nice")
    done = status(planned, Kind.USER_STORY, "Done")
    items.update(Kind.USER_STORY, project=planned, pk=story.pk, actor=actors.SYSTEM, fields={"status_id": done.pk})
    assert "Look nice" not in text_of(mia.get("/backlog/shop/"))
    assert "2 of 3 stories are not finished" in text_of(mia.get("/backlog/shop/"))
    assert "Look nice" in text_of(mia.get("/backlog/shop/?status=all"))
    assert "Look nice" in text_of(mia.get(f"/backlog/shop/?status={done.pk}"))


def test_the_script_of_a_page_is_answered_with_its_part(mia: Client, planned: Project) -> None:
    for url in urls(planned).values():
        whole, part = mia.get(url), mia.get(url, headers={"HX-Request": "true"})
        assert (whole.status_code, part.status_code) == (200, 200)
        assert "<html" in text_of(whole) and "<html" not in text_of(part)
        assert f'data-seq="{planned.events.latest("pk").pk}"' in text_of(whole)


def test_pages_take_the_same_queries_however_much_is_planned(mia: Client, planned: Project) -> None:
    def queries() -> dict[str, int]:
        found = {}
        for name, url in urls_now.items():
            with CaptureQueriesContext(connection) as seen:
                assert mia.get(url).status_code == 200
            found[name] = len(seen)
        return found

    urls_now = urls(planned) | {
        "everything": "/backlog/shop/?status=all",
        "one": f"/backlog/shop/?epic={Epic.objects.get().pk}",
    }
    queries()
    few = queries()
    story, sprint = UserStory.objects.earliest("pk"), Sprint.objects.get()
    for number in range(25):
        epic = epic_of(planned, f"Epic {number}")
        made = story_of(planned, f"Story {number}", epic_id=epic.pk, sprint_id=sprint.pk, points={"back": 1})
        story_of(planned, f"More {number}", epic_id=Epic.objects.earliest("pk").pk)
        task_of(planned, made)
        task_of(planned, story)
        issue_of(planned, f"Issue {number}")
        sprint_of(planned, f"Sprint {number}x")
        items.say(story, body="hm", actor=actors.SYSTEM)
    assert queries() == few
    assert max(few.values()) <= 22, few


def test_an_epic_shows_its_first_stories_and_pages_the_rest(mia: Client, planned: Project) -> None:
    epic = Epic.objects.get()
    for number in range(60):
        story_of(planned, f"More {number}", epic_id=epic.pk)
    page = text_of(mia.get("/backlog/shop/"))
    assert "More 7" in page and "More 8" not in page and "All 62 stories" in page
    one = text_of(mia.get(f"/backlog/shop/?epic={epic.pk}"))
    assert "More 47" in one and "More 48" not in one and "Page 1 of 2" in one
    assert "More 59" in text_of(mia.get(f"/backlog/shop/?epic={epic.pk}&page=2"))


def test_a_stranger_finds_nothing(planned: Project, log_in: LogIn) -> None:
    stranger = log_in(projects.create(slug="other", name="Other"), name="eve")
    for url in urls(planned).values():
        assert stranger.get(url).status_code == 404
    for url, data in POSTS.items():
        assert stranger.post(url.format(**ids()), data).status_code == 404
    for kind in ("epic", "story", "issue"):
        assert stranger.get(f"{urls(planned)[kind]}edit/").status_code == 404


def test_an_issue_is_not_found_under_another_project(mia: Client, planned: Project, log_in: LogIn) -> None:
    other = projects.create(slug="other", name="Other")
    other.memberships.create(user=User.objects.get(username="mia"), role="member")
    assert mia.get(f"/issues/other/{Issue.objects.get().pk}/").status_code == 404
    assert mia.get(f"/sprints/other/{Sprint.objects.get().pk}/").status_code == 404


def test_what_others_wrote_does_nothing(mia: Client, project: Project) -> None:
    evil = '<script>alert(1)</script><img src=x onerror=alert(1)>"><b>'
    epic = epic_of(project, evil, description=evil)
    story = story_of(project, evil, description=f"[x](javascript:alert(1)) {evil}", epic_id=epic.pk, tags=[evil[:40]])
    items.say(story, body=evil, actor=actors.SYSTEM)
    issue = issue_of(project, evil, description=evil)
    sprint_of(project, evil[:70])
    for url in ("/backlog/shop/", "/sprints/shop/", "/issues/shop/", f"/epics/{epic.pk}/", f"/stories/{story.pk}/",
                f"/stories/{story.pk}/edit/", f"/issues/shop/{issue.pk}/"):  # fmt: skip
        page = text_of(mia.get(url))
        assert "<script>alert" not in page and "<img" not in page and 'href="javascript' not in page, url


# --- changing ---------------------------------------------------------------------------------------------------------

POSTS: dict[str, dict[str, Any]] = {
    "/backlog/shop/epic": {"subject": "New"},
    "/backlog/shop/story": {"subject": "New"},
    "/backlog/shop/plan": {"story": "{story}", "sprint": "-"},
    "/backlog/shop/shift": {"move": "down {story}"},
    "/backlog/shop/place": {"story": "{story}", "epic": "0"},
    "/sprints/shop/": {"name": "Sprint 2", "starts_on": "2027-01-01", "ends_on": "2027-01-14"},
    "/sprints/shop/{sprint}/edit": {"name": "Renamed", "starts_on": "2027-01-01", "ends_on": "2027-01-14"},
    "/sprints/shop/{sprint}/close": {},
    "/sprints/shop/{sprint}/delete": {},
    "/sprints/shop/{sprint}/move": {"move": "{task} in_progress"},
    "/issues/shop/new": {"subject": "New", "status": "1", "severity": "normal", "priority": "normal"},
    "/epics/{epic}/story": {"subject": "New"},
    "/epics/{epic}/delete": {},
    "/stories/{story}/task": {"subject": "New"},
    "/stories/{story}/comment": {"text": "hm"},
    "/stories/{story}/status": {"status": "1"},
    "/stories/{story}/edit/": {"subject": "Other", "status": "1"},
    "/stories/{story}/delete": {},
    "/issues/shop/{issue}/comment": {"text": "hm"},
    "/issues/shop/{issue}/delete": {},
}


def ids() -> dict[str, int]:
    story = UserStory.objects.get(subject="Pay by card")
    return {
        "epic": Epic.objects.get().pk,
        "story": story.pk,
        "issue": Issue.objects.get().pk,
        "sprint": Sprint.objects.get().pk,
        "task": story.tasks.earliest("pk").pk,
    }


@pytest.mark.parametrize("url", list(POSTS))
def test_a_viewer_sees_everything_and_changes_nothing(viewer: Client, planned: Project, url: str) -> None:
    before = planned.events.count()
    data = {name: value.format(**ids()) for name, value in POSTS[url].items()}
    response = viewer.post(url.format(**ids()), data)
    assert response.status_code == 403
    assert planned.events.count() == before


def test_a_viewer_is_shown_no_forms(viewer: Client, planned: Project) -> None:
    for url in urls(planned).values():
        page = text_of(viewer.get(url))
        main = page[page.index("<main") :]
        assert 'method="post"' not in main and 'form="' not in main, url
    for kind in ("epic", "story", "issue"):
        assert viewer.get(f"{urls(planned)[kind]}edit/").status_code == 403


def test_epics_and_stories_are_added_in_place_and_recorded(mia: Client, project: Project) -> None:
    assert mia.post("/backlog/shop/epic", {"subject": " Paying "}).headers["Location"] == "/backlog/shop/"
    epic = Epic.objects.get()
    response = mia.post("/backlog/shop/story?status=all", {"subject": "Pay by card", "epic": epic.pk})
    assert response.headers["Location"] == "/backlog/shop/?status=all"
    story = UserStory.objects.get()
    assert (epic.subject, story.epic, story.created_by) == ("Paying", epic, "mia")
    assert list(project.events.filter(actor_name="mia").order_by("pk").values_list("kind", flat=True)) == [
        "epic.created",
        "story.created",
    ]
    for bad in (
        {"subject": ""},
        {"subject": "x" * 201},
        {"subject": "x", "epic": "x"},
        {"subject": "x", "epic": 99999},
    ):
        page = text_of(mia.post("/backlog/shop/story", bad, follow=True))
        assert 'class="note error"' in page
    assert UserStory.objects.count() == 1


def test_several_stories_are_planned_at_once(mia: Client, planned: Project) -> None:
    sprint = Sprint.objects.get()
    chosen = list(UserStory.objects.filter(sprint=None).values_list("pk", flat=True))
    page = text_of(mia.post("/backlog/shop/plan", {"story": chosen, "sprint": sprint.pk}, follow=True))
    assert "2 stories planned" in page
    assert UserStory.objects.filter(sprint=sprint).count() == 3
    mia.post("/backlog/shop/plan", {"story": chosen, "sprint": "-", "epic": "-", "assignee": User.objects.get().pk})
    assert UserStory.objects.filter(sprint=None, epic=None, assigned_to__username="mia").count() == 2
    for bad in (
        {"sprint": sprint.pk},
        {"story": chosen},
        {"story": chosen, "sprint": "nope"},
        {"story": chosen, "sprint": 99999},
        {"story": chosen, "status": 99999},
        {"story": [99999], "epic": "-"},
    ):
        assert 'class="note error"' in text_of(mia.post("/backlog/shop/plan", bad, follow=True)), bad
    assert UserStory.objects.filter(sprint=sprint).count() == 1


def order_of(project: Project) -> list[str]:
    return list(UserStory.objects.filter(project=project).order_by("position", "pk").values_list("subject", flat=True))


def test_stories_are_put_in_order(mia: Client, planned: Project) -> None:
    first, second = UserStory.objects.filter(epic__isnull=False).order_by("pk")
    mia.post("/backlog/shop/shift", {"move": f"down {first.pk}"})
    assert order_of(planned) == ["Pay by bill", "Pay by card", "Look nice"]
    mia.post("/backlog/shop/shift", {"move": f"down {first.pk}"})  # it is the last of its epic
    assert order_of(planned) == ["Pay by bill", "Pay by card", "Look nice"]
    mia.post("/backlog/shop/shift", {"move": f"top {first.pk}"})
    assert order_of(planned) == ["Pay by card", "Pay by bill", "Look nice"]
    nice = UserStory.objects.get(subject="Look nice")
    data = {"story": nice.pk, "before": second.pk, "epic": Epic.objects.get().pk}
    assert mia.post("/backlog/shop/place", data).json() == {}
    assert order_of(planned) == ["Pay by card", "Look nice", "Pay by bill"]
    nice.refresh_from_db()
    assert nice.epic is not None
    assert mia.post("/backlog/shop/place", {"story": nice.pk, "epic": "0"}).status_code == 200
    assert mia.post("/backlog/shop/place", {"story": nice.pk, "after": 99999}).status_code == 404
    assert "detail" in mia.post("/backlog/shop/place", {"story": nice.pk, "epic": 99999}).json()
    for bad in ("sideways 1", f"sideways {first.pk}", "", "up x", "up 99999"):
        assert 'class="note error"' in text_of(mia.post("/backlog/shop/shift", {"move": bad}, follow=True)), bad
    epic_of(planned, "Second")
    mia.post("/backlog/shop/shift", {"move": f"bottom {Epic.objects.earliest('pk').pk} epic"})
    assert list(Epic.objects.order_by("position").values_list("subject", flat=True)) == ["Second", "Paying"]


def test_a_sprint_is_made_changed_closed_and_deleted(mia: Client, project: Project) -> None:
    shown = mia.get("/sprints/shop/").context["form"].initial
    response = mia.post("/sprints/shop/", {"name": "Sprint 1", **{k: str(v) for k, v in shown.items()}})
    sprint = Sprint.objects.get()
    assert response.headers["Location"] == f"/sprints/shop/{sprint.pk}/"
    assert "Nothing is planned in it yet" in text_of(mia.get(response.headers["Location"]))
    for bad in ({"name": ""}, {"starts_on": "2027-02-30"}, {"ends_on": "2020-01-01"}, {"ends_on": "2099-01-01"}):
        data = {"name": "S", "starts_on": "2027-01-01", "ends_on": "2027-01-10"} | bad
        response = mia.post("/sprints/shop/", data)
        assert (response.status_code, "errorlist" in text_of(response)) == (422, True), bad
        response = mia.post(f"/sprints/shop/{sprint.pk}/edit", data)
        assert (response.status_code, "errorlist" in text_of(response)) == (422, True), bad
    mia.post(f"/sprints/shop/{sprint.pk}/edit", {"name": "One", "starts_on": "2027-01-01", "ends_on": "2027-01-01"})
    mia.post(f"/sprints/shop/{sprint.pk}/close")
    mia.post(f"/sprints/shop/{sprint.pk}/close")
    sprint.refresh_from_db()
    assert (sprint.name, sprint.slug, sprint.is_closed) == ("One", "sprint-1", True)
    mia.post(f"/sprints/shop/{sprint.pk}/reopen")
    assert [event.kind for event in project.events.filter(kind__startswith="sprint.").order_by("pk")] == [
        *("sprint.created", "sprint.changed", "sprint.closed", "sprint.reopened"),
    ]
    story = story_of(project, sprint_id=sprint.pk)
    assert "still has 1 story" in text_of(mia.post(f"/sprints/shop/{sprint.pk}/delete", follow=True))
    items.delete(Kind.USER_STORY, project=project, pk=story.pk, actor=actors.SYSTEM)
    assert mia.post(f"/sprints/shop/{sprint.pk}/delete").headers["Location"] == "/sprints/shop/"
    assert mia.get(f"/sprints/shop/{sprint.pk}/").status_code == 404


def test_a_card_is_moved_on_the_sprints_board_by_the_boards_rules(mia: Client, planned: Project) -> None:
    known = ids()
    url = f"/sprints/shop/{known['sprint']}/"
    page = text_of(mia.get(url))
    assert "Draw the form" in page and f'value="{known["task"]} in_progress ' in page
    task = Task.objects.get(pk=known["task"])
    mia.post(f"{url}move", {"move": f"{task.pk} in_progress {task.version}"})
    task.refresh_from_db()
    assert task.status == "in_progress"
    stale = text_of(mia.post(f"{url}move", {"move": f"{task.pk} done 1"}, follow=True))
    assert "changed meanwhile" in stale
    other = Task.objects.filter(user_story=None).latest("pk")
    for bad in (f"{task.pk} nowhere", "", "x done", f"{other.pk} done"):
        assert 'class="note error"' in text_of(mia.post(f"{url}move", {"move": bad}, follow=True)), bad


def test_a_sprint_burns_down_beside_its_table(mia: Client, planned: Project) -> None:
    response = mia.get(urls(planned)["sprint"])
    figure = response.context["figure"]
    assert len(figure.rows) == 14
    assert figure.rows[0][1] == [5, 5, 1] and figure.rows[1][1][0] is None and figure.rows[-1][1][1] == 0
    assert "5 of 5 points left, on the line." in text_of(response)
    csv = mia.get(f"/insights/sprint.csv?project=shop&sprint={Sprint.objects.get().pk}")
    assert text_of(csv).splitlines()[0] == "Day,Points left,Ideal,Stories left"
    assert "Sprint burndown" in text_of(mia.get("/insights/?project=shop"))


# --- items ------------------------------------------------------------------------------------------------------------


def test_a_storys_page_says_what_it_is_made_of(mia: Client, planned: Project) -> None:
    where = urls(planned)
    page = text_of(mia.get(where["story"]))
    for said in ("Paying", "Sprint 1", "Draw the form", "0 of 2 done", "made the story", "front 3"):
        assert said in page, said
    assert "<strong>All</strong>" in text_of(mia.get(where["epic"]))
    assert "Pay by bill" in text_of(mia.get(where["epic"]))
    assert "reported the issue" in text_of(mia.get(where["issue"]))


def test_a_task_is_added_to_a_story_and_shows_it(mia: Client, planned: Project) -> None:
    story = UserStory.objects.get(subject="Pay by card")
    mia.post(f"/stories/{story.pk}/task", {"subject": "Third"})
    task = Task.objects.get(subject="Third")
    assert task.user_story == story
    page = text_of(mia.get(f"/tasks/{task.pk}/"))
    assert f'href="/stories/{story.pk}/"' in page and f'href="/epics/{story.epic_id}/"' in page
    assert f"of #{story.ref}" in text_of(mia.get("/board/shop/"))
    response = mia.post(f"/stories/{story.pk}/task", {"subject": "x" * 201})
    assert (response.status_code, "x" * 201 in text_of(response)) == (422, True)


def test_comments_are_written_and_kept_where_they_are_refused(mia: Client, planned: Project) -> None:
    for kind in ("epic", "story", "issue"):
        url = urls(planned)[kind]
        assert mia.post(f"{url}comment", {"text": "**Yes**\r\nno"}).headers["Location"] == f"{url}#comments"
        assert "<strong>Yes</strong>" in text_of(mia.get(url))
        assert mia.post(f"{url}comment", {"text": "  "}).status_code == 422
    assert planned.events.filter(kind__endswith=".commented").count() == 3


def test_a_status_is_set_and_a_strange_one_refused(mia: Client, planned: Project) -> None:
    url = urls(planned)["story"]
    done = status(planned, Kind.USER_STORY, "Done")
    mia.post(f"{url}status", {"status": done.pk, "version": 1})
    story = UserStory.objects.earliest("pk")
    assert story.status == done and story.closed_at is not None
    response = mia.post(f"{url}status", {"status": status(planned, Kind.ISSUE, "Done").pk})
    assert (response.status_code, "Invalid statusId" in text_of(response)) == (422, True)
    assert mia.post(f"{url}status", {"status": done.pk, "version": 1}).status_code == 409
    assert mia.post(f"{url}status", {"status": "x"}).status_code == 422
    assert mia.post(f"{url}fly").status_code == 404


def as_shown(client: Client, url: str, **changes: Any) -> dict[str, Any]:
    """The form as a browser would send it back, with what was changed."""
    data: dict[str, Any] = {}
    for field in client.get(url).context["form"]:
        value = field.value()
        said = "" if value is None else str(value)
        if field.name != "version":
            data[field.html_initial_name] = said
        if said != "False":
            data[field.html_name] = said
    data |= changes
    return {name: value for name, value in data.items() if value is not None}


def test_a_story_is_edited_field_by_field(mia: Client, planned: Project) -> None:
    url = f"{urls(planned)['story']}edit/"
    mia.post(
        url, as_shown(mia, url, subject="Pay by credit card", points_back="8", tags="a, b,,a", due_on="2027-01-31")
    )
    story = UserStory.objects.earliest("pk")
    assert (story.subject, story.points, story.tags) == ("Pay by credit card", {"front": 3, "back": 8}, ["a", "b"])
    assert str(story.due_on) == "2027-01-31"
    changed = planned.events.filter(kind="story.changed").get()
    assert set(changed.before) == {"subject", "points", "tags", "due_on"}
    page = mia.post(url, as_shown(mia, url), follow=True)
    assert "Nothing was changed" in text_of(page)
    mia.post(url, as_shown(mia, url, points_back="", points_front="", is_blocked="on", blocked_reason="no key"))
    story.refresh_from_db()
    assert (story.points, story.is_blocked, story.blocked_reason) == ({}, True, "no key")
    for bad in ({"subject": ""}, {"status": "99999"}, {"epic": "99999"}, {"points_back": "-1"},
                {"due_on": "2027-02-30"}, {"priority": "huge"}, {"tags": "x" * 41}, {"assignee": "99999"}):  # fmt: skip
        response = mia.post(url, as_shown(mia, url, **bad))
        assert (response.status_code, "errorlist" in text_of(response)) == (422, True), bad


def test_two_people_who_change_different_things_both_get_theirs(mia: Client, planned: Project) -> None:
    url = f"{urls(planned)['story']}edit/"
    mine = as_shown(mia, url, subject="Mine")
    story = UserStory.objects.earliest("pk")
    items.update(Kind.USER_STORY, project=planned, pk=story.pk, actor=actors.SYSTEM, fields={"description": "Theirs"})
    assert mia.post(url, mine).status_code == 302
    story.refresh_from_db()
    assert (story.subject, story.description) == ("Mine", "Theirs")


def test_two_people_who_change_the_same_are_shown_both(mia: Client, planned: Project) -> None:
    url = f"{urls(planned)['story']}edit/"
    mine = as_shown(mia, url, subject="Mine")
    story = UserStory.objects.earliest("pk")
    items.update(Kind.USER_STORY, project=planned, pk=story.pk, actor=actors.SYSTEM, fields={"subject": "Theirs"})
    response = mia.post(url, mine)
    page = text_of(response)
    assert response.status_code == 409 and "Theirs" in page and 'value="Mine"' in page
    story.refresh_from_db()
    assert story.subject == "Theirs"
    form = response.context["form"]
    again = {**mine, "version": form.data["version"], "initial-subject": form.data["initial-subject"]}
    assert mia.post(url, again).status_code == 302
    story.refresh_from_db()
    assert story.subject == "Mine"


def test_an_issue_is_reported_and_edited(mia: Client, project: Project) -> None:
    form = mia.get("/issues/shop/new").context["form"]
    data = {name: form[name].value() or "" for name in ("status", "type")}
    data |= {"subject": "It breaks", "description": "a\r\nb", "severity": "critical", "priority": "high"}
    response = mia.post("/issues/shop/new", data)
    issue = Issue.objects.get()
    assert response.headers["Location"] == f"/issues/shop/{issue.pk}/"
    assert (issue.severity, issue.description, issue.type.name) == ("critical", "a\nb", "Bug")
    url = f"{response.headers['Location']}edit/"
    mia.post(url, as_shown(mia, url, severity="minor", type=""))
    issue.refresh_from_db()
    assert (issue.severity, issue.type) == ("minor", None)
    assert mia.post("/issues/shop/new", {**data, "subject": ""}).status_code == 422
    assert mia.post("/issues/shop/new", {**data, "tags": "x" * 41}).status_code == 422
    assert "It breaks" in text_of(mia.get("/issues/shop/?severity=minor&q=breaks"))
    assert "Nothing matches" in text_of(mia.get("/issues/shop/?severity=major"))
    assert mia.get("/issues/shop/?severity=%00&type=x&priority=9&status=nope").status_code == 200


@pytest.mark.parametrize("kind", ["epic", "story", "issue"])
def test_an_item_is_deleted_and_what_it_held_stays(mia: Client, planned: Project, kind: str) -> None:
    url = urls(planned)[kind]
    assert mia.post(f"{url}delete").status_code == 302
    assert mia.get(url).status_code == 404
    assert Task.objects.filter(subject="Draw the form").exists()
    assert planned.events.filter(kind=f"{kind}.deleted", actor_name="mia").exists()


# --- on the board -----------------------------------------------------------------------------------------------------


def test_a_tasks_story_is_set_in_its_form(mia: Client, planned: Project) -> None:
    task = Task.objects.get(subject="Look around")
    story = UserStory.objects.get(subject="Look nice")
    url = f"/tasks/{task.pk}/edit/"

    def shown(**changes: Any) -> dict[str, Any]:
        form = mia.get(url).context["form"]
        return {field.name: field.value() for field in form if field.value() not in (None, False)} | changes

    assert mia.post(url, shown(story=f"#{story.ref} {story.subject}")).status_code == 302
    task.refresh_from_db()
    assert task.user_story == story
    assert mia.post(url, shown(story="#99999")).status_code == 422
    mia.post(url, shown(story=""))
    task.refresh_from_db()
    assert task.user_story is None


def test_lanes_by_epic_and_by_story_hold_every_card_once(mia: Client, planned: Project) -> None:
    for lanes in ("epic", "story", "parent"):
        page = text_of(mia.get(f"/board/shop/?lanes={lanes}"))
        assert sorted(re.findall(r'<li class="card[^"]*"\s+id="(task-\d+)"', page)) == sorted(
            f"task-{pk}" for pk in Task.objects.values_list("pk", flat=True)
        )
    epic, story = Epic.objects.get(), UserStory.objects.get(subject="Pay by card")
    assert f"#{epic.ref} Paying</h2>" in text_of(mia.get("/board/shop/?lanes=epic"))
    assert f"#{story.ref} Pay by card</h2>" in text_of(mia.get("/board/shop/?lanes=story"))


def test_the_board_is_narrowed_to_a_story_and_to_an_epic(mia: Client, planned: Project) -> None:
    epic, story = Epic.objects.get(), UserStory.objects.get(subject="Pay by card")
    for query in (f"story={story.ref}", f"epic={epic.ref}", f"epic={epic.ref}&lanes=story"):
        page = text_of(mia.get(f"/board/shop/?{query}"))
        assert "Send it" in page and "Look around" not in page
    assert "Nothing matches" in text_of(mia.get("/board/shop/?story=424242"))


# --- in the admin -----------------------------------------------------------------------------------------------------

ADMIN_LISTS = (
    "epic",
    "userstory",
    "issue",
    "sprint",
    "itemstatus",
    "issuetype",
    "agilerole",
    "point",
    "memberrole",
    "comment",
)


@pytest.fixture
def boss(planned: Project, log_in: LogIn) -> Client:
    return log_in(name="boss", is_superuser=True, is_staff=True)


@pytest.mark.parametrize("name", ADMIN_LISTS)
def test_lists_of_the_admin_take_the_same_queries_however_long(boss: Client, planned: Project, name: str) -> None:
    def fill(number: int) -> None:
        epic = epic_of(planned, f"Epic {number}")
        story = story_of(planned, f"Story {number}", epic_id=epic.pk, sprint_id=sprint_of(planned, f"S{number}").pk)
        items.say(story, body="hm", actor=actors.SYSTEM)
        issue_of(planned, f"Issue {number}")
        words.add(IssueType, project=planned, actor=actors.SYSTEM, name=f"Type {number}")
        user = User.objects.create_user(f"u{number}")
        projects.set_member(project_id=planned.pk, user_id=user.pk, role="member", actor=actors.SYSTEM)
        role = AgileRole.objects.filter(project=planned).earliest("pk")
        words.set_member_role(project=planned, user_id=user.pk, role_id=role.pk, actor=actors.SYSTEM)

    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert boss.get(f"/admin/workflow/{name}/?q=1").status_code == 200
            assert boss.get(f"/admin/workflow/{name}/").status_code == 200
        return len(seen)

    fill(100)
    boss.get(f"/admin/workflow/{name}/")
    few = queries()
    for number in range(12):
        fill(number)
    assert queries() <= few


def test_the_admin_changes_items_through_their_service(boss: Client, planned: Project) -> None:
    story = UserStory.objects.get(subject="Look nice")
    url = f"/admin/workflow/userstory/{story.pk}/change/"
    form = boss.get(url).context["adminform"].form
    data = {field.html_name: field.value() for field in form if field.value() is not None}
    data |= {"tags": "", "points": "{}", "comments-TOTAL_FORMS": 0, "comments-INITIAL_FORMS": 0}
    done = status(planned, Kind.USER_STORY, "Done")
    assert set(form.fields["status"].queryset.values_list("kind", flat=True)) == {"user_story"}
    response = boss.post(url, {**data, "subject": "Look nicer", "status": done.pk})
    assert response.status_code == 302, response.context["errors"]
    story.refresh_from_db()
    assert (story.subject, story.status, story.version) == ("Look nicer", done, 2)
    assert planned.events.filter(kind="story.changed", actor_name="boss", tool="admin").exists()
    boss.post(f"/admin/workflow/userstory/{story.pk}/delete/", {"post": "yes"})
    assert planned.events.filter(kind="story.deleted", actor_name="boss").exists()


def test_the_admin_keeps_words_in_use_and_sprints_with_stories(boss: Client, planned: Project) -> None:
    used, sprint = status(planned, Kind.EPIC, "New"), Sprint.objects.get()
    for url in (f"/admin/workflow/itemstatus/{used.pk}/delete/", f"/admin/workflow/sprint/{sprint.pk}/delete/"):
        boss.post(url, {"post": "yes"}, follow=True)
    assert ItemStatus.objects.filter(pk=used.pk).exists() and Sprint.objects.filter(pk=sprint.pk).exists()
    data = {
        "project": planned.pk,
        "kind": "issue",
        "name": "Waiting",
        "category": "blocked",
        "color": "#123abc",
        "core": "",
    }
    assert boss.post("/admin/workflow/itemstatus/add/", data).status_code == 302
    made = ItemStatus.objects.get(name="Waiting")
    assert (made.slug, made.order) == ("waiting", 7)
    boss.post(f"/admin/workflow/itemstatus/{made.pk}/change/", {**data, "name": "On hold"})
    made.refresh_from_db()
    assert made.name == "On hold"
    days = {"starts_on": "2027-01-01", "ends_on": "2027-01-14"}
    assert boss.post("/admin/workflow/sprint/add/", {"project": planned.pk, "name": "Nine", **days}).status_code == 302
    assert Sprint.objects.get(name="Nine").slug == "nine"
    boss.post("/admin/workflow/sprint/", {"action": "close_sprints", "_selected_action": [sprint.pk]})
    sprint.refresh_from_db()
    assert sprint.is_closed


# --- kept in Taiga ----------------------------------------------------------------------------------------------------


@pytest.fixture
def taiga() -> Iterator[TaigaServer]:
    with TaigaServer() as server:
        yield server
    transport.close()


@pytest.fixture
def far(project: Project, taiga: TaigaServer) -> Project:
    """The shop, kept in a Taiga that has stories."""
    taiga.world.project({"name": "Far away", "is_private": True})
    remotes.connect(project, url=taiga.url, actor=actors.SYSTEM, username=ADMIN, password=PASSWORD, is_trusted=True)
    RemoteProvider(project, actors.SYSTEM).create("user_story", {"subject": "Told by Taiga <b>"})
    taiga.writes.clear()
    return project


def test_a_board_kept_in_taiga_is_read_through_with_a_marker(mia: Client, far: Project) -> None:
    page = text_of(mia.get("/board/shop/"))
    assert ">in Taiga</a>" in page and 'hx-get="/board/shop/taiga?kind=user_story"' in page
    part = text_of(mia.get("/board/shop/taiga"))
    assert "Told by Taiga &lt;b&gt;" in part and "connected" in part
    assert mia.get("/board/shop/taiga?kind=task").status_code == 200
    assert "is planned in Taiga" in text_of(mia.get("/backlog/shop/"))
    assert mia.post("/backlog/shop/epic", {"subject": "x"}).status_code == 403


def test_a_move_is_written_back_to_taiga(mia: Client, far: Project, taiga: TaigaServer) -> None:
    board = mia.get("/board/shop/taiga").context["board"]
    card = next(card for column in board.columns for card in column.cards)
    there = next(column.status["id"] for column in board.columns if column.status["id"] != card.status_id)
    response = mia.post("/board/shop/taiga/move", {"kind": "user_story", "move": f"{card.id} {there} {card.version}"})
    assert response.headers["Location"] == "/board/shop/?taiga=user_story#taiga"
    assert [method for method, _ in taiga.writes].count("PATCH") == 1
    moved = mia.get("/board/shop/taiga").context["board"]
    assert [column.status["id"] for column in moved.columns if column.cards] == [there]
    for bad in ("", "x y z", f"{card.id} 999999 {card.version}", f"999999 {there} 1"):
        page = text_of(mia.post("/board/shop/taiga/move", {"move": bad}, follow=True))
        assert 'class="note error"' in page, bad


def test_a_viewer_moves_nothing_in_taiga(far: Project, log_in: LogIn, taiga: TaigaServer) -> None:
    viewer = log_in(far, name="vera", role="viewer")
    assert "Told by Taiga" in text_of(viewer.get("/board/shop/taiga"))
    assert viewer.post("/board/shop/taiga/move", {"move": "1 1 1"}).status_code == 403
    assert taiga.writes == []


def test_a_taiga_that_is_away_is_said_and_the_board_stays(mia: Client, far: Project, taiga: TaigaServer) -> None:
    with taiga.refusing():
        part = text_of(mia.get("/board/shop/taiga?again=1"))
        assert "Taiga does not answer now." in part and "Try again" in part and "Told by Taiga" not in part
        assert "Look around" in text_of(mia.get("/board/shop/"))
    assert "Told by Taiga" in text_of(mia.get("/board/shop/taiga?again=1"))


def test_a_board_of_our_own_has_no_part_in_taiga(mia: Client, project: Project, log_in: LogIn) -> None:
    assert "in Taiga" not in text_of(mia.get("/board/shop/"))
    assert mia.get("/board/shop/taiga").status_code == 404
    assert mia.post("/board/shop/taiga/move", {"move": "1 1 1"}).status_code == 404
    assert log_in(name="eve").get("/board/shop/taiga").status_code == 404
