"""Projects in a real browser: from an empty instance to a first claim, and files that come in before one's eyes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.pages.test_browser import PHONE, OpenPage, browser, faults, opened, violations
from tests.running import RunningServer, running

__all__ = ["browser", "faults", "opened"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WAIT = 20_000
SCREENS = {"desktop": {"width": 1280, "height": 900}, "phone": PHONE}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """An instance nobody has made anything in."""
    with running(tmp_path_factory.mktemp("projects") / "home", arguments=("--no-demo",)) as server:
        yield server


@pytest.fixture(scope="module")
def login(browser: Any, server: RunningServer) -> Any:
    password = re.search(r"admin / (\S+)", server.output)
    assert password is not None, server.output
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/")
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill(password[1])
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Start with a project").wait_for()
    state = context.storage_state()
    context.close()
    return state


def call(server: RunningServer, key: str, tool: str, project: str, **args: Any) -> Any:
    answer = httpx.post(
        f"{server.url}/mcp/execute",
        json={"tool": tool, "args": args},
        headers={"X-API-Key": key, "X-Agent-Id": "first-agent", "X-Project": project},
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def make_project(page: Any, name: str) -> None:
    page.goto("/projects/new")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Make the project").click()
    page.get_by_role("heading", name="Getting started").wait_for()


def test_an_empty_instance_leads_to_a_connected_client_and_a_first_claimed_task(
    server: RunningServer, opened: OpenPage
) -> None:
    page = opened("/")
    page.set_default_timeout(WAIT)
    assert violations(page) == []
    page.get_by_role("link", name="New project").click()
    page.get_by_label("Name", exact=True).fill("First Steps")
    assert page.get_by_label("Slug").input_value() == "first-steps"
    assert violations(page) == []
    page.get_by_role("button", name="Make the project").click()
    page.get_by_text("1 of 4").wait_for()
    assert violations(page) == []

    page.get_by_role("link", name="Connect a client").last.click()
    page.get_by_role("button", name="Create a fresh key").click()
    key = page.locator("#fresh-key").inner_text().strip()
    page.goto("/")
    page.locator("#live[data-state=live]").wait_for()
    page.evaluate("window.notReloaded = true")
    call(server, key, "get_kanban_board", "first-steps")
    page.get_by_text("2 of 4").wait_for()
    assert page.locator(".onboarding").get_by_text("first-agent").is_visible()
    assert page.evaluate("window.notReloaded") is True

    page.get_by_role("button", name="Add this task").click()
    page.get_by_text("3 of 4").wait_for()
    assert page.locator("#say-this").inner_text() == "Claim the next task of phase 1 and work on it."
    page.locator("#live[data-state=live]").wait_for()
    page.evaluate("window.notReloaded = true")
    assert call(server, key, "claim_task", "first-steps", phase_id=1)["id"]
    page.get_by_role("heading", name="An agent is at work").wait_for()
    assert "#1 Read the README" in page.locator(".onboarding").inner_text()
    assert page.evaluate("window.notReloaded") is True
    assert violations(page) == []
    page.reload()
    page.get_by_role("heading", name="Agents").wait_for()
    assert page.locator(".onboarding").count() == 0


def test_a_table_is_looked_at_put_right_and_imported(opened: OpenPage, tmp_path: Path) -> None:
    page = opened("/projects/new")
    page.set_default_timeout(WAIT)
    make_project(page, "Tables")
    page.goto("/projects/tables/import")
    button = page.get_by_role("button", name="Import the tasks")
    assert button.is_disabled()
    file = tmp_path / "tasks.csv"
    file.write_text("Titel,Stage\nErstes,1\nZweites,nowhere\n")
    page.get_by_label("Table").set_input_files(file)
    page.get_by_text("no column holds a title").wait_for()
    assert violations(page) == []
    page.get_by_label("What column Titel becomes").select_option("subject")
    page.get_by_text("there is no phase “nowhere”").wait_for()
    assert page.locator(".problems").inner_text().startswith("line 3, phase")
    assert button.is_disabled()
    better = tmp_path / "better.csv"
    better.write_text("Titel,Stage\nErstes,1\nZweites,2\n")
    page.get_by_label("Table").set_input_files(better)
    page.get_by_text("no column holds a title").wait_for()
    page.get_by_label("What column Titel becomes").select_option("subject")
    page.get_by_text("This can be imported: 2 tasks").wait_for()
    assert violations(page) == []
    button.click()
    page.get_by_text("2 tasks imported").wait_for()
    page.get_by_role("link", name="Zweites").wait_for()


def test_a_project_file_is_looked_at_and_comes_in_under_another_slug(opened: OpenPage, tmp_path: Path) -> None:
    page = opened("/projects/new")
    page.set_default_timeout(WAIT)
    make_project(page, "Traveller")
    page.goto("/projects/traveller/")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the project").click()
    file = tmp_path / "traveller.json"
    download.value.save_as(file)
    assert json.loads(file.read_text())["project"]["name"] == "Traveller"
    page.goto("/projects/import")
    page.get_by_label("Project file").set_input_files(file)
    page.get_by_text("there is a project traveller here already").wait_for()
    page.get_by_label("Slug of the new project").fill("arrived")
    page.get_by_label("Slug of the new project").press("Tab")
    page.get_by_text("can be imported as arrived: 3 phases, 0 tasks").wait_for()
    page.get_by_role("button", name="Import the project").click()
    page.get_by_text("Traveller was imported").wait_for()
    assert page.url.endswith("/board/arrived/")


def test_a_project_is_archived_and_brought_back(opened: OpenPage) -> None:
    page = opened("/projects/new")
    page.set_default_timeout(WAIT)
    make_project(page, "Old Things")
    page.goto("/projects/old-things/")
    page.get_by_text("Archive…").click()
    page.get_by_role("button", name="Archive Old Things").click()
    page.get_by_text("is archived: nobody sees it").wait_for()
    assert violations(page) == []
    page.get_by_role("button", name="Bring back Old Things").click()
    page.get_by_text("Old Things is back").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_no_page_of_projects_breaks_a_rule_or_is_wider_than_the_screen(
    opened: OpenPage, server: RunningServer, scheme: str, screen: str
) -> None:
    page = opened("/projects/new", color_scheme=scheme, viewport=SCREENS[screen])
    name = f"پروژه {scheme} {screen} " + "long" * 15
    page.set_default_timeout(WAIT)
    make_project(page, name)
    slug = page.url.rpartition("project=")[2]
    found = {}
    for path in (
        "/",
        "/projects/",
        "/projects/new",
        "/projects/import",
        f"/projects/{slug}/",
        f"/projects/{slug}/import",
    ):
        page.goto(path)
        found[path] = violations(page)
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            found[path].append("it scrolls sideways")
    assert {path: rules for path, rules in found.items() if rules} == {}
