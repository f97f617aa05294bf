"""The board in a real browser, in front of a real server."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import StartServer
from tests.running import RunningServer

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHROMIUM = Path(os.environ.get("DEVFLOW_TEST_CHROMIUM", "/usr/bin/chromium"))
WAIT = 10_000


@pytest.fixture
def server(start_server: StartServer) -> RunningServer:
    return start_server()


@pytest.fixture
def faults() -> list[str]:
    """What the browser's console complained about; a test that expects complaints clears it."""
    return []


@pytest.fixture
def page(server: RunningServer, faults: list[str]) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page(base_url=server.url)
        page.set_default_timeout(WAIT)
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        yield page
        browser.close()
        assert faults == []


def password_of(server: RunningServer) -> str:
    match = re.search(r"admin / (\S+)", server.output)
    assert match is not None, server.output
    return match[1]


def log_in(page: Any, server: RunningServer) -> None:
    page.goto("/board/demo/")
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill(password_of(server))
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Board").wait_for()


def test_a_task_made_by_an_agent_appears_without_a_reload(server: RunningServer, page: Any) -> None:
    log_in(page, server)
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


def test_a_person_makes_a_task_on_the_board(server: RunningServer, page: Any) -> None:
    log_in(page, server)
    page.get_by_text("New task").click()
    page.get_by_label("What has to be done?").fill("By hand\n\nwith care")
    page.get_by_role("button", name="Add task").click()
    page.get_by_role("link", name="By hand").wait_for()


def test_a_lost_connection_is_said_on_the_page(server: RunningServer, page: Any, faults: list[str]) -> None:
    log_in(page, server)
    page.locator("#live[data-state=live]").wait_for()
    server.stop()
    page.locator("#live[data-state=stale]").wait_for()
    assert "may be out of date" in page.locator("#live").inner_text()
    faults.clear()  # the browser itself reports the refused connection


def test_a_fresh_key_from_the_connect_page_calls_a_tool(server: RunningServer, page: Any) -> None:
    log_in(page, server)
    page.goto("/connect/")
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


def test_the_api_documentation_works_under_its_policy(server: RunningServer, page: Any) -> None:
    log_in(page, server)
    page.goto("/api/docs/")
    page.get_by_text("/mcp/execute").first.wait_for()
