"""Two people and an agent on one board, in a real browser, in front of a real server."""

import asyncio
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.acceptance.agents import MODERN, over_http
from tests.conftest import StartServer
from tests.pages.test_browser import PHONE, OpenPage, browser, faults, log_in, login, opened, violations
from tests.running import RunningServer, running

__all__ = ["browser", "faults", "login", "opened"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WIDE = {"width": 1440, "height": 900}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("board") / "home") as server:
        yield server


@dataclass
class Board:
    """A project of its own for one test, filled over REST, and agents that come over MCP."""

    server: RunningServer
    slug: str
    ids: dict[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, **body: Any) -> Any:
        answer = httpx.request(
            method, f"{self.server.url}/api/v1/{path}", json=body or None, headers={"X-API-Key": self.server.key}
        )
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def add(self, *names: str, **more: Any) -> None:
        for name in names:
            body = {"project": self.slug, "phase": 1, "description": name, **more}
            self.ids[name] = self.call("POST", "tasks", **body)["id"]

    def agent(self, name: str, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool as an agent, with the official client."""

        async def calling() -> dict[str, Any]:
            async with over_http(MODERN)(self.server, name) as agent:
                await agent.call("set_project", {"project": self.slug})
                return await agent.call(tool, arguments)

        with ThreadPoolExecutor(1) as thread:  # the browser's own loop runs in this one
            return thread.submit(asyncio.run, calling()).result(60)

    def status(self, name: str) -> str:
        found: str = self.call("GET", f"tasks/{self.ids[name]}")["status"]
        return found


class Person:
    """Somebody in front of the board."""

    def __init__(self, page: Any, board: Board) -> None:
        self.page, self.board = page, board
        page.locator("#live[data-state=live]").wait_for(state="attached")

    def card(self, name: str) -> Any:
        return self.page.locator(f"#{self.board.ids[name]}")

    def column(self, name: str) -> Any:
        return self.page.locator(f"#col-{name} ol.cards")

    def sees(self, name: str, column: str) -> None:
        self.column(column).locator(f"#{self.board.ids[name]}").wait_for()

    def order(self, column: str) -> list[str]:
        return [text.strip() for text in self.column(column).locator(".card h3").all_inner_texts()]

    def drag(self, name: str, column: str, *, below: float = 60) -> None:
        """Sortable follows the pointer, not the drop event of HTML: move it in steps."""
        start, end = self.card(name).bounding_box(), self.column(column).bounding_box()
        mouse = self.page.mouse
        mouse.move(start["x"] + 30, start["y"] + start["height"] - 12)
        mouse.down()
        mouse.move(start["x"] + 45, start["y"] + start["height"] - 4, steps=4)
        mouse.move(end["x"] + 60, end["y"] + below, steps=14)
        self.page.wait_for_timeout(150)  # its animation; a pointer that is let go during it drops at the old place
        mouse.up()

    def toast(self, words: str) -> Any:
        found = self.page.locator(".toast", has_text=words)
        found.first.wait_for()
        return found.last

    def keys(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def hears(self, words: str) -> None:
        self.page.locator("#announce", has_text=words).wait_for(state="attached")


@pytest.fixture
def board(server: RunningServer, request: pytest.FixtureRequest) -> Board:
    slug = f"{request.node.name.removeprefix('test_').replace('_', '-')[:30]}-{uuid.uuid4().hex[:6]}"
    made = Board(server, re.sub(r"[^a-z0-9-]", "", slug))
    made.call("POST", "projects", slug=made.slug, name=made.slug)
    return made


@pytest.fixture
def people(opened: OpenPage, board: Board) -> Callable[[], Person]:
    return lambda **options: Person(opened(f"/board/{board.slug}/", viewport=WIDE, **options), board)


def refusals(faults: list[str]) -> None:
    """The browser's console names every answer from 400 on; here they were meant."""
    assert faults
    assert all("status of 4" in fault for fault in faults)
    faults.clear()


def test_a_card_dragged_by_one_person_moves_for_the_other_and_is_taken_back(board: Board, people: Any) -> None:
    board.add("One", "Two")
    mia, noa = people(), people()
    mia.drag("One", "in_progress")
    noa.sees("One", "in_progress")
    mia.toast("moved to In progress").get_by_role("button", name="Undo").click()
    noa.sees("One", "ready")
    mia.sees("One", "ready")
    assert noa.order("ready") == ["One", "Two"]
    assert noa.page.locator("#col-ready [data-tally]").first.inner_text() == "2"


def test_the_order_inside_a_column_is_kept_for_everybody(board: Board, people: Any) -> None:
    board.add("One", "Two", "Three")
    mia, noa = people(), people()
    mia.drag("Three", "ready", below=20)
    expect(noa.column("ready").locator(".card h3").first).to_have_text("Three")
    assert noa.order("ready") == ["Three", "One", "Two"]
    noa.page.reload()
    assert mia.order("ready") == noa.order("ready") == ["Three", "One", "Two"]


def test_a_refused_drop_goes_back_and_says_why(board: Board, people: Any, faults: list[str]) -> None:
    board.add("First")
    board.add("Second", blocked_by=[board.ids["First"]])
    mia = people()
    mia.drag("Second", "done")
    assert "cannot become done" in mia.toast("cannot become").inner_text()
    mia.sees("Second", "backlog")
    assert board.status("Second") == "pending"
    refusals(faults)


def test_a_full_column_takes_no_more(board: Board, people: Any, faults: list[str]) -> None:
    board.call("PATCH", f"projects/{board.slug}", column_limits={"in_progress": 1})
    board.add("One", "Two")
    mia = people()
    mia.drag("One", "in_progress")
    mia.page.locator("#col-in_progress.full").wait_for()
    mia.drag("Two", "in_progress")
    mia.toast("is full: at most 1")
    mia.sees("Two", "ready")
    refusals(faults)


def test_the_whole_flow_with_the_keyboard_alone(board: Board, people: Any) -> None:
    board.add("One", "Two")
    mia, noa = people(), people()
    mia.card("One").focus()
    mia.keys("ArrowDown")
    assert mia.page.evaluate("document.activeElement.id") == board.ids["Two"]
    mia.keys("Space")
    mia.hears("picked up. Column Ready, place 2 of 2")
    mia.keys("ArrowRight")
    mia.hears("In progress, place 1 of 1")
    mia.keys("Escape")
    mia.hears("back where it was")
    mia.sees("Two", "ready")
    mia.keys("Space", "ArrowRight", "Enter")
    noa.sees("Two", "in_progress")
    mia.hears("moved to In progress")
    expect(mia.card("Two")).to_be_focused()
    mia.keys("u")
    noa.sees("Two", "ready")
    expect(mia.page.locator("#announce")).to_contain_text("ready again")
    mia.card("Two").focus()
    mia.keys("m")
    expect(mia.page.get_by_role("menuitem").first).to_be_focused()
    mia.page.get_by_role("menuitem", name="In progress").focus()
    mia.keys("Enter")
    noa.sees("Two", "in_progress")
    mia.card("One").focus()
    mia.keys("e")
    mia.page.keyboard.type("One, renamed")
    mia.keys("Enter")
    expect(noa.card("One").locator("h3")).to_have_text("One, renamed")
    expect(mia.card("One")).to_be_focused()
    mia.keys("n")
    expect(mia.page.get_by_label("What has to be done?")).to_be_focused()
    mia.page.keyboard.type("Three")
    mia.page.get_by_role("button", name="Add task").focus()
    mia.keys("Enter")
    mia.page.get_by_role("link", name="Three").wait_for()
    mia.keys("?")
    mia.page.get_by_role("heading", name="Shortcuts").wait_for()


def test_letters_can_be_switched_off_and_do_nothing_in_fields(board: Board, people: Any) -> None:
    board.add("One")
    mia = people()
    mia.keys("/")
    expect(mia.page.get_by_label("Search tasks")).to_be_focused()
    mia.page.keyboard.type("n?")
    assert not mia.page.locator("#new-task").get_attribute("open")
    mia.page.get_by_label("Search tasks").fill("")
    mia.page.get_by_role("button", name="Shortcuts").click()
    mia.page.get_by_label("Single letters do something").uncheck()
    mia.page.get_by_role("button", name="Close").click()
    mia.card("One").focus()
    mia.keys("m", "n", "?")
    assert not mia.page.locator("#moves").is_visible()
    assert not mia.page.locator("dialog[open]").count()


def test_a_card_is_moved_by_its_menu_on_a_phone(board: Board, opened: OpenPage) -> None:
    board.add("One")
    mia = Person(opened(f"/board/{board.slug}/", viewport=PHONE, has_touch=True), board)
    mia.page.get_by_role("link", name="Ready").click()
    mia.card("One").get_by_role("button", name="Move #1 to…").tap()
    mia.page.get_by_role("menuitem", name="In progress").tap()
    mia.sees("One", "in_progress")


def test_a_task_is_added_to_the_column_it_is_written_in(board: Board, people: Any) -> None:
    mia, noa = people(), people()
    for column, name in (("backlog", "Later"), ("ready", "Soon"), ("in_progress", "Now")):
        mia.page.locator(f"[data-quick={column}]").click()
        mia.page.keyboard.type(name)
        mia.keys("Enter")
        noa.column(column).get_by_text(name).wait_for()
        mia.keys("Escape")
    assert mia.page.locator("[data-total]").inner_text() == "3"


def test_a_title_two_people_change_is_written_over_only_on_purpose(
    board: Board, people: Any, faults: list[str]
) -> None:
    board.add("One")
    mia = people()
    mia.card("One").focus()
    mia.keys("e")
    mia.page.keyboard.type("Mine")
    board.call("PATCH", f"tasks/{board.ids['One']}", subject="Theirs")
    mia.page.locator("#board:not([data-seq=''])").wait_for()
    mia.keys("Enter")
    assert "now called “Theirs”" in mia.toast("changed this task").inner_text()
    assert mia.page.locator(".retitle").input_value() == "Mine"
    mia.keys("Enter")
    expect(mia.card("One").locator("h3")).to_have_text("Mine")
    refusals(faults)


def test_filters_stand_in_the_address_and_are_left_one_by_one_or_all(board: Board, people: Any) -> None:
    board.add("Alpha", tags=["red"])
    board.add("Beta", tags=["red"], priority="high")
    board.add("Gamma")
    mia, noa = people(), people()
    mia.page.get_by_label("Search tasks").fill("a")
    mia.page.locator("#filter summary").click()
    mia.page.locator("#filter").get_by_label("red").check()
    mia.page.wait_for_url(re.compile("tag=red"))
    assert mia.order("ready") == ["Alpha", "Beta"]
    mia.page.locator("#filter").get_by_label("high").check()
    mia.page.wait_for_url("**priority=high**")
    assert mia.order("ready") == ["Beta"]
    noa.card("Alpha").focus()
    noa.keys("x")
    noa.page.get_by_label("Tag to add").fill("other")
    noa.page.get_by_role("button", name="Add tag").click()
    noa.toast("1 task tagged")
    assert mia.order("ready") == ["Beta"]  # it was told, and it is not what the filter asks for
    mia.page.get_by_role("link", name="priority: high").click()
    mia.page.wait_for_url(re.compile("tag=red"))
    mia.page.go_back()
    expect(mia.column("ready").locator(".card")).to_have_count(1)
    mia.page.get_by_role("link", name="Clear all").click()
    expect(mia.column("ready").locator(".card")).to_have_count(3)
    mia.page.get_by_label("Search tasks").fill("nothing like this")
    mia.page.get_by_role("heading", name="Nothing matches").wait_for()


def test_a_view_is_kept_under_a_name(board: Board, people: Any) -> None:
    board.add("Alpha", tags=["red"])
    mia = people()
    mia.page.goto(f"/board/{board.slug}/?tag=red&lanes=priority")
    mia.page.locator("#views summary").click()
    mia.page.get_by_label("Keep what is shown as").fill("Red ones")
    mia.page.get_by_role("button", name="Keep").click()
    mia.page.goto(f"/board/{board.slug}/")
    mia.page.locator("#views summary").click()
    mia.page.get_by_role("link", name="Red ones").click()
    mia.page.wait_for_url("**/?tag=red&lanes=priority")


def test_many_cards_are_moved_tagged_reserved_and_cancelled_at_once(board: Board, people: Any) -> None:
    board.add("One", "Two", "Three")
    board.agent("robo", "get_kanban_board")
    mia, noa = people(), people()
    for name in ("One", "Two"):
        mia.card(name).locator(".pick").check()
    mia.page.get_by_label("Reserve for…").select_option("robo")
    mia.toast("2 tasks handed over")
    noa.card("Two").get_by_text("for robo").wait_for()
    for name in ("One", "Two"):
        mia.card(name).locator(".pick").check()
    mia.page.get_by_label("Move to…").select_option("in_progress")
    noa.sees("Two", "in_progress")
    mia.card("Three").locator(".pick").check()
    mia.page.get_by_role("button", name="Cancel tasks").click()
    noa.card("Three").wait_for(state="detached")
    mia.toast("1 task cancelled").get_by_role("button", name="Undo").click()
    noa.sees("Three", "ready")


def test_an_agent_works_while_people_watch_decide_and_write_to_it(board: Board, people: Any) -> None:
    board.call("PATCH", f"projects/{board.slug}", require_review=True)
    board.add("Build it")
    mia, noa = people(), people()
    claimed = board.agent("robo", "claim_task", phase_id=1)
    noa.sees("Build it", "in_progress")
    card = noa.card("Build it")
    card.get_by_text("robo").wait_for()
    assert re.search(r"\d+ (min|h)", card.locator(".left").inner_text())
    assert card.locator("circle.lease").count() == 1
    token = claimed["lease_token"]
    board.agent("robo", "update_task_status", task_id=claimed["id"], status="done", result="Built", lease_token=token)
    noa.sees("Build it", "review")
    card.get_by_text("needs you").wait_for()
    mia.sees("Build it", "review")
    mia.drag("Build it", "in_progress")
    mia.page.get_by_label("Feedback").fill("Add a test")
    mia.page.get_by_role("button", name="Send back").click()
    noa.sees("Build it", "in_progress")
    card.get_by_text("round 2").wait_for()
    inbox = board.agent("robo", "get_messages")
    assert "Add a test" in inbox["messages"][0]["message"]


def test_a_lease_that_runs_out_shows_without_a_reload(server: RunningServer, board: Board, people: Any) -> None:
    board.add("Build it")
    mia = people()
    board.agent("robo", "claim_task", phase_id=1)
    mia.sees("Build it", "in_progress")
    server.run_python(
        "from django.utils import timezone; from workflow.models import Task; from workflow.services import claims;"
        f"Task.objects.filter(project__slug='{board.slug}').update(lease_expires_at=timezone.now())"
    )
    mia.page.locator(f"#col-ready #{board.ids['Build it']}").wait_for(timeout=30_000)


def test_changes_wait_while_a_card_is_in_the_hand(board: Board, people: Any) -> None:
    board.add("One", "Two")
    mia, noa = people(), people()
    mia.card("One").focus()
    mia.keys("Space")
    board.call("PATCH", f"tasks/{board.ids['Two']}", subject="Two, renamed")
    expect(noa.card("Two").locator("h3")).to_have_text("Two, renamed")
    assert mia.card("Two").locator("h3").inner_text() == "Two"
    mia.keys("Escape")
    expect(mia.card("Two").locator("h3")).to_have_text("Two, renamed")


def test_a_long_column_is_read_on_as_one_scrolls(board: Board, people: Any) -> None:
    board.server.run_python(
        "from devflow.actors import SYSTEM; from workflow.models import Project; from workflow.services import tasks\n"
        f"project = Project.objects.get(slug='{board.slug}')\n"
        "for n in range(120):\n"
        "    tasks.create(project_id=project.pk, phase_number=1, description=f'Task {n}', actor=SYSTEM)"
    )
    mia = people()
    assert mia.column("ready").locator(".card").count() == 50
    assert mia.page.locator("#col-ready [data-tally]").first.inner_text() == "120"
    for seen in (100, 120):
        mia.page.evaluate("document.querySelector('#col-ready .more').scrollIntoView()")
        expect(mia.column("ready").locator(".card")).to_have_count(seen)
    assert mia.order("ready") == [f"Task {number}" for number in range(120)]
    mia.column("ready").locator(".card").last.focus()
    mia.keys("m")  # a card that came later is one like the others
    assert mia.page.locator("#moves").is_visible()


def test_somebody_who_may_only_look_gets_no_handles(board: Board, browser: Any, server: RunningServer) -> None:
    board.add("One")
    server.run_python(
        "from django.contrib.auth.models import User; from workflow.models import Membership, Project;"
        f"user = User.objects.create_user('looker', password='{board.slug}');"
        f"Membership.objects.create(user=user, project=Project.objects.get(slug='{board.slug}'), role='viewer')"
    )
    context = browser.new_context(base_url=server.url, viewport=WIDE)
    try:
        page = context.new_page()
        page.goto(f"/board/{board.slug}/")
        page.get_by_label("User name").fill("looker")
        page.get_by_label("Password").fill(board.slug)
        page.get_by_role("button", name="Log in").click()
        looker = Person(page, board)
        assert not looker.card("One").locator(".moves").is_visible()
        assert not page.get_by_role("button", name="Add a task").count()
        looker.card("One").focus()
        looker.keys("Space", "ArrowRight")
        looker.keys("m")
        assert board.status("One") == "ready"
        board.add("Two")
        looker.sees("Two", "ready")
    finally:
        context.close()


def test_what_happened_while_the_server_was_away_is_there_after_it_comes_back(
    start_server: StartServer, browser: Any, tmp_path: Any
) -> None:
    server = start_server()
    page = browser.new_page(viewport=WIDE)
    port = server.url.rpartition(":")[2]
    try:
        log_in(page, server)
        page.locator("#live[data-state=live]").wait_for()
        page.evaluate("window.notReloaded = true")
        server.stop()
        page.locator("#live[data-state=stale]").wait_for()
        server.run_python(
            "from devflow.actors import SYSTEM; from workflow.models import Project;"
            "from workflow.services import tasks;"
            "project = Project.objects.get(slug='demo');"
            "tasks.create(project_id=project.pk, phase_number=1, description='While you were away', actor=SYSTEM)"
        )
        with running(server.home, arguments=("--port", port)):
            page.locator("#live[data-state=live]").wait_for(timeout=20_000)
            page.get_by_role("link", name="While you were away").wait_for()
            assert page.evaluate("window.notReloaded") is True
    finally:
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["desktop", "phone"])
def test_the_board_is_accessible_in_every_state(
    board: Board, opened: OpenPage, scheme: str, viewport: dict[str, int]
) -> None:
    board.add("One", tags=["a"], priority="high")
    board.add("שלום עולם, كيف الحال", "x" * 200, "👩🏽‍🚀 Emoji")
    board.add("Blocked", blocked_by=[board.ids["One"]])
    found = {}
    mia = Person(
        opened(f"/board/{board.slug}/", color_scheme=scheme, viewport=viewport, reduced_motion="reduce"), board
    )
    found["full"] = violations(mia.page)
    mia.card("One").focus()
    mia.keys("m")
    found["menu"] = violations(mia.page)
    mia.keys("Escape")
    mia.card("One").locator(".pick").check()
    mia.page.locator("#filter summary").click()
    found["filter and selection"] = violations(mia.page)
    mia.page.goto(f"/board/{board.slug}/?lanes=priority&tag=a")
    found["lanes"] = violations(mia.page)
    mia.page.goto(f"/board/{board.slug}/?q=nothing")
    found["nothing matches"] = violations(mia.page)
    assert {state: rules for state, rules in found.items() if rules} == {}
    mia.page.goto(f"/board/{board.slug}/")
    assert not mia.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
