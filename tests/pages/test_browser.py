"""The pages in a real browser, in front of a real server."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import StartServer
from tests.running import RunningServer, running

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHROMIUM = Path(os.environ.get("DEVFLOW_TEST_CHROMIUM", "/usr/bin/chromium"))
AXE = Path(__file__).parents[1] / "vendor" / "axe-core-4.14.1" / "axe.min.js"
WAIT = 10_000
PHONE = {"width": 390, "height": 844}
PAGES = (
    *(
        "/",
        "/board/demo/",
        "/board/demo/?lanes=phase",
        "/agents/",
        "/agents/1/",
        "/knowledge/",
        "/memories/",
        "/activity/",
    ),
    *("/insights/", "/gateway/", "/connect/", "/keys/", "/projects/", "/projects/new", "/projects/demo/"),
    *("/projects/demo/webhooks/", "/tasks/6/edit/", "/nowhere/"),
)

OpenPage = Callable[..., Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("pages") / "home") as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


def log_in(page: Any, server: RunningServer) -> None:
    password = re.search(r"admin / (\S+)", server.output)
    assert password is not None, server.output
    page.goto(f"{server.url}/board/demo/")
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill(password[1])
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Board").wait_for()


@pytest.fixture(scope="module")
def login(browser: Any, server: RunningServer) -> Any:
    """The cookies of the administrator, who logs in once."""
    context = browser.new_context()
    log_in(context.new_page(), server)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def faults() -> list[str]:
    """What the browser's console complained about; a test that expects complaints clears it."""
    return []


@pytest.fixture
def opened(browser: Any, server: RunningServer, login: Any, faults: list[str]) -> Iterator[OpenPage]:
    """Open a page of a context of its own: `opened(path)`, logged in unless told otherwise."""

    def from_elsewhere(url: str) -> None:
        if not url.startswith((server.url, "data:", "blob:")):
            faults.append(f"a request to {url}")

    with ExitStack() as stack:

        def open_page(path: str, *, storage_state: Any = login, **options: Any) -> Any:
            context = browser.new_context(base_url=server.url, storage_state=storage_state, **options)
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(WAIT)
            page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("request", lambda request: from_elsewhere(request.url))
            page.goto(path)
            return page

        yield open_page
    assert faults == []


def violations(page: Any) -> list[str]:
    """What axe-core finds on the page as it stands: the rule and the first element of each."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    return [f"{rule['id']}: {rule['nodes'][0]['html']}" for rule in found]


def test_a_task_made_by_an_agent_appears_without_a_reload(server: RunningServer, opened: OpenPage) -> None:
    page = opened("/board/demo/")
    page.locator("#live[data-state=live]").wait_for()
    page.evaluate("window.notReloaded = true")
    response = httpx.post(
        f"{server.url}/mcp/execute",
        json={"tool": "create_task", "args": {"description": "Appear by yourself", "phase_id": 1}},
        headers={"X-API-Key": server.key, "X-Agent-Id": "browser-test", "X-Project": "demo"},
    )
    assert response.status_code == 200, response.text
    card = page.locator(f"#{response.json()['result']['task_id']}")
    card.wait_for()
    assert "Appear by yourself" in card.inner_text()
    assert page.evaluate("window.notReloaded") is True


@pytest.mark.parametrize("viewport", [None, PHONE], ids=["desktop", "phone"])
def test_a_person_makes_a_task_on_the_board(opened: OpenPage, viewport: Any) -> None:
    page = opened("/board/demo/", viewport=viewport)
    page.locator("#new-task summary").click()
    words = page.get_by_label("What has to be done?")
    box = words.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= page.viewport_size["width"]
    name = f"By hand {'small' if viewport else 'large'}"
    words.fill(f"{name}\n\nwith care")
    page.get_by_role("button", name="Add task").click()
    page.get_by_role("link", name=name).wait_for()


def test_a_lost_connection_is_said_on_the_page(start_server: StartServer, browser: Any) -> None:
    server, page = start_server(), browser.new_page()
    try:
        log_in(page, server)
        page.locator("#live[data-state=live]").wait_for()
        server.stop()
        page.locator("#live[data-state=stale]").wait_for()
        assert "may be out of date" in page.locator("#live").inner_text()
    finally:
        page.close()


def test_a_fresh_key_from_the_connect_page_calls_a_tool(server: RunningServer, opened: OpenPage) -> None:
    page = opened("/connect/")
    page.get_by_role("button", name="Create a fresh key").click()
    key = page.locator("#fresh-key").inner_text().strip()
    page.get_by_role("button", name="Copy the snippet for Cursor").click()
    answered = httpx.post(
        f"{server.url}/mcp/execute",
        json={"tool": "get_kanban_board", "args": {}},
        headers={"X-API-Key": key, "X-Project": "demo"},
    )
    assert answered.status_code == 200
    assert answered.json()["result"]["stats"]["total_tasks"] > 0


@pytest.mark.parametrize(
    ("path", "words"),
    [("/api/docs/", "/mcp/execute"), ("/api/v1/", "Api Root"), ("/admin/workflow/task/", "Select task")],
)
def test_the_pages_of_the_libraries_work_under_the_strict_policy(opened: OpenPage, path: str, words: str) -> None:
    opened(path).get_by_text(words).first.wait_for()


def test_everything_is_reachable_on_a_phone(opened: OpenPage) -> None:
    page = opened("/", viewport=PHONE)
    assert not page.get_by_role("button", name="Log out admin").is_visible()
    page.get_by_role("button", name="More").click()
    for name in ("Keys", "API", "Admin"):
        assert page.get_by_role("link", name=name, exact=True).is_visible()
    assert page.get_by_role("button", name="Log out admin").is_visible()
    page.get_by_role("link", name="Keys", exact=True).click()
    page.get_by_role("heading", name="All keys").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [{"width": 1440, "height": 900}, PHONE], ids=["desktop", "phone"])
def test_no_page_breaks_a_rule_of_accessibility_or_is_wider_than_the_screen(
    opened: OpenPage, faults: list[str], scheme: str, viewport: dict[str, int]
) -> None:
    page = opened("/", color_scheme=scheme, viewport=viewport)
    tasks = [f"/tasks/{number}/" for number in (4, 6, 8, 9, 12)]  # one of each status in the demo project
    found = {}
    for path in [*PAGES, *tasks]:
        page.goto(path)
        found[path] = violations(page)
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            found[path].append("it scrolls sideways")
    page.goto("/board/demo/")
    page.locator("#new-task summary").click()
    found["new task"] = violations(page)
    stranger = opened("/login/", storage_state=None, color_scheme=scheme, viewport=viewport)
    found["login"] = violations(stranger)
    assert {path: rules for path, rules in found.items() if rules} == {}
    assert len(faults) == 1, faults  # the 404, which the console reports
    faults.clear()


def test_serving_the_pages_writes_no_warning_into_the_log(server: RunningServer, opened: OpenPage) -> None:
    page = opened("/board/demo/")
    page.locator("#live[data-state=live]").wait_for()
    page.goto("/admin/")
    page.goto("/api/docs/")
    lines = [line for line in server.output.splitlines() if "arning" in line and "/nowhere/" not in line]
    assert lines == []
