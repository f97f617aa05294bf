"""A task, the agents and what happens, in a real browser while a real agent works."""

from typing import Any

import httpx
import pytest

from tests.pages.test_browser import PHONE, OpenPage, browser, faults, login, opened, server, violations
from tests.running import RunningServer

__all__ = ["browser", "faults", "login", "opened", "server"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONG_NAME = "averylongname" * 7
WIDE = {"width": 1280, "height": 900}


def call(server: RunningServer, agent: str, tool: str, **args: Any) -> dict[str, Any]:
    """What an agent's call answers."""
    response = httpx.post(
        f"{server.url}/mcp/execute",
        json={"tool": tool, "args": args},
        headers={"X-API-Key": server.key, "X-Agent-Id": agent, "X-Project": "demo"},
    )
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()["result"]
    return result


def made(server: RunningServer, text: str, **more: Any) -> int:
    """A new task of an agent's; gives its number."""
    task = call(server, "planner", "create_task", description=text, phase_id=1, **more)
    return int(task["task_id"].removeprefix("task-"))


def test_what_an_agent_does_appears_while_a_person_writes(server: RunningServer, opened: OpenPage) -> None:
    number = made(server, "Watched task\n\nLook at it")
    page = opened(f"/tasks/{number}/")
    page.locator("#live[data-state=live]").wait_for()
    page.evaluate("window.notReloaded = true")
    note = page.get_by_label("Write a note")
    note.fill("Half a thou")
    page.locator("#prove-1 summary").click()
    page.locator("#proof-1").fill("Half a proof")
    call(server, "nova", "update_task_status", task_id=f"task-{number}", status="in_progress")
    page.locator("#status", has_text="in progress").wait_for()
    page.locator("#part-facts", has_text="nova").wait_for()
    call(server, "nova", "add_task_note", task_id=f"task-{number}", note="I am **on** it")
    page.locator("#part-notes strong", has_text="on").wait_for()
    page.locator("#part-calls code", has_text="update_task_status").wait_for()
    page.get_by_label("Write to nova").fill("Careful with the key")
    evidence = [{"definition": 1, "content": "seen by the agent"}]
    call(server, "nova", "update_task_status", task_id=f"task-{number}", status="done", evidence=evidence)
    page.locator("#status", has_text="done").wait_for()
    page.get_by_text("This changed while you were writing.").wait_for()
    assert note.input_value() == "Half a thou"
    assert page.locator("#proof-1").input_value() == "Half a proof"
    assert page.get_by_label("Write to nova").input_value() == "Careful with the key"
    page.locator("#proof-1").fill("")
    note.focus()  # nobody writes there any more
    page.locator("#part-checks", has_text="seen by the agent").wait_for()
    assert page.evaluate("window.notReloaded") is True


def test_a_person_decides_on_a_review_and_takes_it_back(
    server: RunningServer, opened: OpenPage, faults: list[str]
) -> None:
    task = call(server, "ada-2", "create_task", description="Reviewed task", phase_id=2)["task_id"]
    call(server, "ada-2", "update_task_status", task_id=task, status="in_progress")
    proofs = [{"definition": n, "content": "seen"} for n in (1, 2, 3)]
    handed = call(server, "ada-2", "update_task_status", task_id=task, status="done", result="Done", evidence=proofs)
    page = opened(f"/tasks/{task.removeprefix('task-')}/")
    if handed["status"] == "review":
        page.get_by_role("button", name="Send back").click()
        page.get_by_text("Say what has to change.").wait_for()
        faults.clear()  # the console reports the refusal
        page.get_by_label("Feedback").fill("One more test")
        page.get_by_role("button", name="Send back").click()
        page.locator("#status", has_text="in progress").wait_for()
        page.get_by_role("button", name="Undo").click()
        page.locator("#status", has_text="review").wait_for()
        page.get_by_role("button", name="Approve").click()
    page.locator("#status", has_text="done").wait_for()


@pytest.mark.parametrize("screen", ["desktop", "phone"])
def test_the_dependencies_are_drawn_and_walked_with_the_keys(
    server: RunningServer, opened: OpenPage, faults: list[str], screen: str
) -> None:
    before = made(server, f"Before {screen} " + "long " * 30)
    middle = made(server, f"Middle {screen}", blocked_by=[f"task-{before}"])
    after = made(server, f"مرحبا بالعالم {screen}", blocked_by=[f"task-{middle}"])
    page = opened(f"/tasks/{middle}/", viewport=PHONE if screen == "phone" else WIDE)
    page.locator(".graph svg").wait_for()
    assert page.locator(".graph .node").count() == 3
    assert page.locator(".graph .edge").count() == 2
    page.get_by_label("Number of a task it waits for").fill(f"task-{after}")
    page.get_by_role("button", name="Let it wait").press("Enter")
    page.get_by_text("That would close a circle").wait_for()
    faults.clear()  # the console reports the refusal
    first = page.locator(f'.graph a[href="/tasks/{before}/"]')
    page.locator("#part-around summary, #part-around .btn").last.focus()
    for _ in range(6):
        page.keyboard.press("Tab")
        if first.evaluate("link => link === document.activeElement"):
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name=f"Before {screen}").wait_for()


def test_two_people_edit_one_task_and_choose(server: RunningServer, opened: OpenPage, faults: list[str]) -> None:
    number = made(server, "Contested\n\nAs it was")
    one, two = opened(f"/tasks/{number}/edit/"), opened(f"/tasks/{number}/edit/")
    one.get_by_label("Title").fill("Mine first")
    one.get_by_role("button", name="Save").click()
    one.get_by_role("heading", level=1, name="Mine first").wait_for()
    two.get_by_label("Title").fill("No, mine")
    two.get_by_role("button", name="Save").click()
    two.get_by_role("heading", level=1, name="changed while you were editing").wait_for()
    faults.clear()  # the console reports the conflict
    assert two.locator(".was").inner_text() == "Mine first"
    assert two.get_by_label("Your Title").input_value() == "No, mine"
    assert violations(two) == []
    two.get_by_label("Take yours").check()
    two.get_by_role("button", name="Save what I chose").click()
    two.get_by_role("heading", level=1, name="No, mine").wait_for()
    one.get_by_role("heading", level=1, name="No, mine").wait_for()  # it appears to who looks


def test_an_agent_appears_with_its_first_call_and_reads_its_messages(server: RunningServer, opened: OpenPage) -> None:
    page = opened("/agents/")
    page.locator("#live[data-state=live]").wait_for()
    call(server, "newcomer", "get_messages")
    page.get_by_role("link", name="newcomer", exact=True).click()
    page.get_by_label("Write to newcomer").fill("Good **morning**")
    page.get_by_role("button", name="Send message").click()
    page.locator("#part-inbox", has_text="unread").wait_for()
    page.locator("#live[data-state=live]").wait_for()
    call(server, "newcomer", "ack_message")
    call(server, "newcomer", "create_task", description="My first", phase_id=1)
    page.locator("#part-inbox", has_text="acknowledged").wait_for()
    page.locator("#part-calls code", has_text="ack_message").first.wait_for()
    page.locator("#part-history", has_text="My first").wait_for()
    page.locator("#retire summary").click()
    page.get_by_role("button", name="Retire it").click()
    page.get_by_text("newcomer is retired.").wait_for()


def test_new_events_wait_to_be_shown(server: RunningServer, opened: OpenPage) -> None:
    page = opened("/activity/?kind=task.created")
    page.locator("#live[data-state=live]").wait_for()
    number = made(server, "Fresh from the wire")
    page.get_by_role("link", name="new", exact=False).filter(has_text="1 new").click()
    page.locator(".trail", has_text="Fresh from the wire").wait_for()
    assert "kind=task.created" in page.url
    home = opened("/")
    home.locator("#live[data-state=live]").wait_for()
    call(server, "nova", "add_task_note", task_id=f"task-{number}", note="Seen at home")
    home.locator(".trail", has_text="Seen at home").wait_for()


@pytest.fixture(scope="module")
def crowded(server: RunningServer) -> list[str]:
    """The addresses of a task, of one that waits for it, and of the form, where names and tables are too long."""
    table = "| a wide column | another wide column | one more column | and the last one here |\n|---|---|---|---|\n"
    row = "| x | `code` | " + "y" * 90 + " | z |\n"
    wide = made(server, f"{'Wordwithoutanyspace' * 10}\n\n{table}{row}")
    number = made(server, "Crowded", tags=["مرحبا", "t" * 60], blocked_by=[f"task-{wide}"])
    made(server, "Behind", blocked_by=[f"task-{number}"])
    call(server, LONG_NAME, "update_task_status", task_id=f"task-{wide}", status="in_progress")
    for _ in range(6):
        call(server, LONG_NAME, "get_tasks", status="ready")
    return [f"/tasks/{wide}/", f"/tasks/{number}/", f"/tasks/{number}/edit/"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["desktop", "phone"])
def test_full_pages_break_no_rule_and_fit_the_screen(
    crowded: list[str], opened: OpenPage, scheme: str, viewport: dict[str, int]
) -> None:
    page = opened("/agents/", color_scheme=scheme, viewport=viewport)
    agent = page.get_by_role("link", name=LONG_NAME, exact=True).get_attribute("href")
    found = {}
    for path in [*crowded, agent, "/agents/", "/", "/activity/"]:
        page.goto(path)
        page.evaluate("for (const one of document.querySelectorAll('details:not(.menu)')) one.open = true")
        found[path] = violations(page)
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            found[path].append("it scrolls sideways")
    assert {path: rules for path, rules in found.items() if rules} == {}
