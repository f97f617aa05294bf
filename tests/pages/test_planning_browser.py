"""Planning in a real browser: by keyboard and by mouse, live, and without breaking a rule of accessibility."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.pages.test_browser import PHONE, OpenPage, browser, faults, login, opened, violations
from tests.running import RunningServer, running

__all__ = ["browser", "faults", "login", "opened"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DESKTOP = {"width": 1280, "height": 900}
START = """
from datetime import timedelta
from django.utils import timezone
from devflow import actors
from workflow.models import *
from workflow.services.agile import items, sprints, work
from workflow.services import projects
project = Project.objects.filter(slug="plan").first() or projects.create(slug="plan", name="Plan")
today = timezone.now().date()
who = {"project": project, "actor": actors.SYSTEM}
"""
PLANNED = f"""{START}
days = {{"starts_on": today - timedelta(days=3), "ends_on": today + timedelta(days=10)}}
sprint = sprints.create(name="Sprint 7", **days, **who)
epic = items.create(Kind.EPIC, fields={{"subject": "Customers pay by card"}}, **who)
for number, sprint_id in enumerate((sprint.pk, sprint.pk, None, None)):
    fields = {{"subject": f"Story {{number}} " + "with many words " * 6, "epic_id": epic.pk, "sprint_id": sprint_id}}
    story = items.create(Kind.USER_STORY, fields={{**fields, "points": {{"back": 3}}, "tags": ["web"]}}, **who)
    task = work.create(story_id=story.pk, fields={{"subject": f"Task of {{number}}"}}, **who)
items.create(Kind.USER_STORY, fields={{"subject": "Beside"}}, **who)
issue = items.create(Kind.ISSUE, fields={{"subject": "Broken", "severity": "critical"}}, **who)
first = UserStory.objects.filter(project=project).earliest("pk")
items.say(first, body="Looks **good**", actor=actors.SYSTEM)
print("IDS", sprint.pk, epic.pk, first.pk, issue.pk, first.tasks.get().pk)
"""


@dataclass(frozen=True)
class Known:
    sprint: str
    epic: str
    story: str
    issue: str
    task: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("planning") / "home") as server:
        yield server


@pytest.fixture(scope="module")
def known(server: RunningServer) -> Known:
    found = re.search(r"IDS (.*)", server.run_python(PLANNED))
    assert found is not None
    return Known(*found[1].split())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_page_breaks_a_rule_or_is_wider_than_the_screen(
    opened: OpenPage, known: Known, viewport: Any, scheme: str
) -> None:
    page = opened("/backlog/plan/", viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    found: dict[str, Any] = {}
    for path in (
        *("/backlog/plan/", "/sprints/plan/", f"/sprints/plan/{known.sprint}/", "/issues/plan/", "/issues/plan/new"),
        *(f"/epics/{known.epic}/", f"/stories/{known.story}/", f"/stories/{known.story}/edit/"),
        *(f"/issues/plan/{known.issue}/", f"/tasks/{known.task}/", "/board/plan/?lanes=story"),
    ):
        page.goto(path)
        broken = violations(page)
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            broken.append("wider than the screen")
        if broken:
            found[path] = broken
    assert found == {}


def subjects(page: Any) -> list[str]:
    return [" ".join(text.split()[1:3]) for text in page.locator(".epic .story .what").all_text_contents()]


def test_stories_are_planned_and_ordered_with_the_keyboard(opened: OpenPage, known: Known) -> None:
    page = opened("/backlog/plan/", viewport=DESKTOP)
    before = subjects(page)
    assert before[2:4] == ["Story 2", "Story 3"]
    page.get_by_label("Choose #", exact=False).nth(2).press("Space")
    page.get_by_label("Choose #", exact=False).nth(3).press("Space")
    assert page.locator("#ticked").inner_text() == "2"
    page.locator("#plan-menu summary").press("Enter")
    page.locator("#plan-sprint").select_option(label="Sprint 7")
    page.get_by_role("button", name="Plan", exact=True).press("Enter")
    page.get_by_text("2 stories planned.").wait_for()
    assert page.locator(".story a.chip", has_text="Sprint 7").count() == 4
    page.locator(".story .menu summary").nth(3).press("Enter")
    page.locator(".story .menu[open]").get_by_role("button", name="Up", exact=True).press("Enter")
    page.wait_for_function(
        "before => document.querySelectorAll('.story .what')[2]?.innerText.includes(before)", arg="Story 3"
    )
    assert subjects(page)[2:4] == ["Story 3", "Story 2"]


def test_a_story_is_dropped_at_another_place(opened: OpenPage, known: Known) -> None:
    page = opened("/backlog/plan/", viewport=DESKTOP)
    first, second = page.locator(".epic .story").nth(0), page.locator(".epic .story").nth(1)
    name = second.get_attribute("id")
    box, over = second.locator(".what").bounding_box(), first.bounding_box()
    with page.expect_response("**/place") as answer:
        page.mouse.move(box["x"] + 200, box["y"] + 4)
        page.mouse.down()
        page.mouse.move(box["x"] + 205, box["y"] - 8, steps=4)
        page.mouse.move(over["x"] + 205, over["y"] + 6, steps=8)
        page.mouse.up()
    assert answer.value.ok
    page.reload()
    assert page.locator(".epic .story").nth(0).get_attribute("id") == name


def test_what_others_do_appears_by_itself(server: RunningServer, opened: OpenPage, known: Known) -> None:
    page = opened("/backlog/plan/", viewport=DESKTOP)
    page.locator("#live[data-state=live]").wait_for()
    page.evaluate("window.notReloaded = true")
    made = httpx.post(
        f"{server.url}/api/v1/stories/",
        json={"project": "plan", "subject": "By somebody else"},
        headers={"X-API-Key": server.key, "X-Agent-Id": "planner"},
    )
    assert made.status_code == 201, made.text
    page.get_by_text("By somebody else").wait_for()
    assert page.evaluate("window.notReloaded") is True


def test_a_sprints_cards_move_and_its_chart_is_drawn(opened: OpenPage, known: Known) -> None:
    page = opened(f"/sprints/plan/{known.sprint}/", viewport=DESKTOP, reduced_motion="reduce")
    page.wait_for_function("Chart.getChart(document.querySelector('#sprint canvas'))?.data.datasets.length === 2")
    card = page.locator(".mini", has_text="Task of 0")
    card.locator("summary").press("Enter")
    card.get_by_role("button", name="In progress").press("Enter")
    page.locator("td:nth-of-type(3) .mini", has_text="Task of 0").wait_for()
    page.wait_for_function("Chart.getChart(document.querySelector('#sprint canvas'))?.data.datasets.length === 2")


def test_a_task_is_added_and_a_comment_written_on_a_phone(opened: OpenPage, known: Known) -> None:
    page = opened(f"/stories/{known.story}/", viewport=PHONE)
    page.get_by_label("A task of this story").fill("Written on a phone")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Written on a phone").first.wait_for()
    page.get_by_label("Write a comment").fill("On it")
    page.get_by_role("button", name="Add comment").click()
    page.locator(".comment", has_text="On it").wait_for()
