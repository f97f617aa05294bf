"""Connect, keys, the gateway and webhooks in a real browser, in front of a real server, with a real client."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.acceptance.agents import HANDSHAKE, http_client_of
from tests.fakes.receiver import Receiver, Reply
from tests.pages.test_browser import PHONE, OpenPage, browser, faults, login, opened, violations
from tests.running import RunningServer, running

__all__ = ["browser", "faults", "login", "opened"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    env = {"DEVFLOW_WEBHOOKS_ALLOWED_HOSTS": "127.0.0.1"}
    with running(tmp_path_factory.mktemp("connect") / "home", env=env) as server:
        yield server


def call_board_with(server: RunningServer, headers: dict[str, str]) -> None:
    """What the client does that was given a snippet's headers."""

    async def work() -> None:
        async with http_client_of(server, headers=headers, mode=HANDSHAKE) as client:
            result = await client.call_tool("get_kanban_board", {})
            assert not result.is_error, result

    faults: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as exc:
            faults.append(exc)

    thread = threading.Thread(target=run)  # this thread's loop is Playwright's
    thread.start()
    thread.join()
    assert faults == []


def test_a_client_that_uses_a_snippet_lights_the_page_up_without_a_reload(
    server: RunningServer, opened: OpenPage
) -> None:
    page = opened("/connect/")
    page.get_by_label("For", exact=True).select_option("demo")
    page.get_by_role("button", name="Create a fresh key").click()
    page.get_by_text("Your key is in every snippet below").wait_for()
    page.get_by_text("Waiting for the first call").wait_for()
    page.evaluate("window.notReloaded = true")
    given = json.loads(page.locator("#snippet-vscode").inner_text())["servers"]["devflow"]
    assert given["url"] == f"{server.url}/mcp"
    call_board_with(server, given["headers"])
    page.get_by_text(f"{given['headers']['X-Agent-Id']} is connected").wait_for()
    assert page.evaluate("window.notReloaded") is True


def test_a_webhook_is_added_tested_and_sent_again_by_hand(opened: OpenPage) -> None:
    with Receiver() as receiver:
        receiver.script(Reply(500, {"Content-Type": "text/plain"}, b"not today"))
        page = opened("/projects/demo/webhooks/")
        page.get_by_role("link", name="Add the first webhook").click()
        page.get_by_label("Address").fill(receiver.url)
        page.get_by_label("Name").fill("Our CI")
        page.get_by_label("Only what I choose").check()
        page.get_by_label("task.done").check()
        page.get_by_role("button", name="Add webhook").click()
        secret = page.locator("#fresh-secret").inner_text()
        page.get_by_role("button", name="Send a test").click()
        page.get_by_text("It answered 500.").wait_for()
        assert "not today" in page.inner_text("main")
        page.get_by_role("button", name="Send again").click()
        page.locator(".chip", has_text="delivered").wait_for()
        messages = receiver.wait_for(2)
        assert all(message.is_signed_with(secret) for message in messages)
        page.get_by_role("link", name="Our CI").click()
        page.get_by_role("cell", name="webhook.test").wait_for()


@pytest.fixture(scope="module")
def hook(server: RunningServer) -> str:
    """The page of a webhook whose receiver does not answer well, with one delivery in its log."""
    with Receiver() as receiver, httpx.Client(base_url=server.url, headers={"X-API-Key": server.key}) as api:
        receiver.mood = Reply(500, {"Content-Type": "text/plain"}, b"not today " * 30)
        body = {"project": "demo", "url": receiver.url, "name": "ساعي البريد " + "long" * 15, "kinds": ["task.*"]}
        made = api.post("/api/v1/webhooks/", json=body).raise_for_status().json()
        api.post(f"/api/v1/webhooks/{made['id']}/ping/").raise_for_status()
        receiver.wait_for(1)
        until = time.monotonic() + 10
        while not api.get(f"/api/v1/webhooks/{made['id']}/").json()["failures"] and time.monotonic() < until:
            pass
    return f"/projects/demo/webhooks/{made['id']}/"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [None, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_on_these_pages(opened: OpenPage, hook: str, scheme: str, viewport: Any) -> None:
    page = opened(hook, color_scheme=scheme, viewport=viewport, reduced_motion="reduce")
    listed = "/projects/demo/webhooks/"
    delivery = page.locator("table.sent a").first.get_attribute("href")
    found: dict[str, list[str]] = {}
    for path in ("/connect/", "/keys/", "/gateway/", listed, f"{listed}add/", hook, f"{hook}delete/", delivery):
        page.goto(path)
        wide, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= window, f"{path} is wider than the window"
        found[path] = violations(page)
    assert {path: rules for path, rules in found.items() if rules} == {}


def test_a_key_is_revoked_after_a_second_look(opened: OpenPage) -> None:
    page = opened("/keys/")
    page.get_by_label("What will use it?").fill("to be revoked")
    page.get_by_role("button", name="Create key").click()
    page.get_by_role("button", name="Revoke to be revoked").click()
    page.get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Revoke to be revoked").click()
    page.get_by_role("button", name="Revoke it").click()
    page.get_by_text("to be revoked was revoked").wait_for()
