"""Webhooks of a real server to a real receiver: whatever either does, every event is told, and nobody waits for it."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.library import eventually
from tests.fakes.receiver import Receiver, Reply
from tests.running import RunningServer, running

pytestmark = pytest.mark.slow

SETTINGS = {"DEVFLOW_WEBHOOKS_ALLOWED_HOSTS": "127.0.0.1", "DEVFLOW_WEBHOOKS_TIMEOUT_SECONDS": "2"}


class Door:
    """The REST API of a running server."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server

    def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"X-API-Key": self.server.key, "X-Agent-Id": "tests", "X-Project": "demo"}
        answer = httpx.request(method, f"{self.server.url}/api/v1/{path}", json=body, headers=headers, timeout=20)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def hook(self, receiver: Receiver) -> dict[str, Any]:
        body = {"project": "demo", "url": receiver.url, "kinds": ["task.created"]}
        made: dict[str, Any] = self.call("POST", "webhooks/", body)
        return made

    def change(self, words: str) -> None:
        self.call("POST", "tasks/", {"project": "demo", "phase": 1, "description": words})

    def log(self, hook: dict[str, Any]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.call("GET", f"webhook-deliveries/?webhook={hook['id']}")["results"]
        return rows

    def until_logged(self, hook: dict[str, Any], **wanted: Any) -> dict[str, Any]:
        """The newest delivery, once it is like that."""

        def fits() -> bool:
            rows = self.log(hook)
            return bool(rows) and all(rows[0][name] == value for name, value in wanted.items())

        eventually(fits, f"the newest delivery becomes {wanted}", seconds=30, pause=0.1)
        return self.log(hook)[0]


def subjects(receiver: Receiver) -> list[str]:
    return [message.json["data"]["task"]["subject"] for message in receiver.received]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with running(tmp_path_factory.mktemp("webhooks") / "home", env=SETTINGS) as server:
        yield Door(server)


def test_a_change_arrives_signed_within_seconds(door: Door, receiver: Receiver) -> None:
    hook = door.hook(receiver)
    door.change("Tell me")
    (message,) = receiver.wait_for(1, seconds=10)
    assert message.is_signed_with(hook["secret"])
    assert message.json["data"]["task"]["subject"] == "Tell me"
    assert message.json["data"]["actor"] == {"kind": "agent", "name": "tests"}
    row = door.until_logged(hook, status="delivered")
    assert (row["attempts"], row["response_status"], row["message_id"]) == (1, 204, message.id)


def test_a_receiver_that_fails_gets_the_message_again(door: Door, receiver: Receiver) -> None:
    hook = door.hook(receiver)
    receiver.script(Reply(500))
    door.change("Try me")
    first, second = receiver.wait_for(2)
    assert (first.id, first.body) == (second.id, second.body)
    assert second.is_signed_with(hook["secret"])
    assert door.until_logged(hook, status="delivered")["attempts"] == 2


def test_a_receiver_that_hangs_holds_up_neither_writers_nor_other_receivers(door: Door, receiver: Receiver) -> None:
    with Receiver() as well:
        hook = door.hook(receiver)
        door.hook(well)
        receiver.mood = Reply(hangs=True)
        began = time.monotonic()
        for number in range(5):
            door.change(f"number {number}")
        written = time.monotonic() - began
        well.wait_for(5)
        assert written < 10  # five answers of the server; one hanging receiver alone takes 2 s a message
        assert subjects(well) == [f"number {number}" for number in range(5)]
        row = door.until_logged(hook, status="waiting")
        assert len(receiver.received) < 5, row
        receiver.mood = Reply()
        receiver.wait_for(6, seconds=180)
    assert set(subjects(receiver)) == {f"number {number}" for number in range(5)}


def test_a_redirect_is_an_error_and_nothing_is_sent_where_it_leads(door: Door, receiver: Receiver) -> None:
    with Receiver() as elsewhere:
        hook = door.hook(receiver)
        receiver.mood = Reply(307, {"Location": elsewhere.url})
        door.change("Redirect me")
        row = door.until_logged(hook, response_status=307)
        assert "redirects are not followed" in row["error"]
        assert elsewhere.received == []
    door.call("DELETE", f"webhooks/{hook['id']}/")


def test_a_receiver_that_is_gone_is_left_alone(door: Door, receiver: Receiver) -> None:
    hook = door.hook(receiver)
    receiver.mood = Reply(410)
    door.change("Gone")
    door.until_logged(hook, status="failed", response_status=410)
    shown = door.call("GET", f"webhooks/{hook['id']}/")
    assert (shown["active"], "gone for good" in shown["disabled_reason"]) == (False, True)


def test_a_receiver_that_asks_to_wait_is_left_in_peace_so_long(door: Door, receiver: Receiver) -> None:
    hook = door.hook(receiver)
    receiver.script(Reply(429, {"Retry-After": "9"}))
    door.change("Later")
    receiver.wait_for(1)
    door.change("Later, too")
    row = door.until_logged(hook, status="waiting", attempts=0)
    assert row["response_status"] is None
    messages = receiver.wait_for(3, seconds=60)
    times = [int(message.headers["webhook-timestamp"]) for message in messages]
    assert min(times[1:]) - times[0] >= 8
    assert sorted(subjects(receiver)) == ["Later", "Later", "Later, too"]
    assert datetime.now(UTC).timestamp() - times[0] < 60


def test_what_happened_before_a_kill_is_told_by_the_next_start(receiver: Receiver, tmp_path: Path) -> None:
    """Here nothing is sent at all before the kill: this server runs no jobs."""
    home = tmp_path / "home"
    with running(home, env={**SETTINGS, "DEVFLOW_EMBEDDED_JOBS": "false"}) as server:
        hook = Door(server).hook(receiver)
        for number in range(3):
            Door(server).change(f"number {number}")
        server.kill()
    assert receiver.received == []
    with running(home, env=SETTINGS):
        messages = receiver.wait_for(3)
    assert subjects(receiver) == [f"number {number}" for number in range(3)]
    assert all(message.is_signed_with(hook["secret"]) for message in messages)


def test_a_message_in_flight_at_a_kill_comes_again_with_its_id(receiver: Receiver, tmp_path: Path) -> None:
    home = tmp_path / "home"
    receiver.script(Reply(hangs=True))
    with running(home, env={**SETTINGS, "DEVFLOW_WEBHOOKS_TIMEOUT_SECONDS": "10"}) as server:
        hook = Door(server).hook(receiver)
        Door(server).change("In flight")
        receiver.wait_for(1)
        server.kill()
    with running(home, env=SETTINGS) as server:
        first, second = receiver.wait_for(2, seconds=60)
        row = Door(server).until_logged(hook, status="delivered")
    assert (first.id, first.body) == (second.id, second.body)
    assert (row["message_id"], row["attempts"]) == (first.id, 1)
    assert len(receiver.received) == 2
