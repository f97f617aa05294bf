"""The pages' WebSocket, over the whole ASGI application."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.contrib.auth import get_user_model
from django.db import OperationalError
from django.test import Client

from devflow import actors
from devflow.drain import draining
from devflow.events import EVERY_PROJECT, REJOINED, LiveEvent, bus
from tests.workflow.scenes import joined
from workflow.models import Event, Membership, Project, Task
from workflow.services import board, claims, projects, tasks
from workflow.views import live

WAIT = 10.0
ORIGIN = (b"origin", b"http://127.0.0.1:8051")

Connect = Callable[..., Awaitable["Line"]]


class Line:
    """One page's connection."""

    def __init__(self, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        from devflow.asgi import application

        self.socket = WebsocketCommunicator(application, path, headers=headers)  # type: ignore[no-untyped-call]  # channels has no types

    async def open(self) -> "Line":
        self.accepted, self.code = await self.socket.connect(timeout=WAIT)  # type: ignore[no-untyped-call]  # as above
        return self

    async def next(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.socket.receive_from(timeout=WAIT))  # type: ignore[no-untyped-call]  # as above
        return found

    async def told(self, wanted: str) -> dict[str, Any]:
        """The first message with this key."""
        async with asyncio.timeout(WAIT):
            while wanted not in (message := await self.next()):
                pass
        return message

    async def closed(self) -> int:
        async with asyncio.timeout(WAIT):
            while (message := await self.socket.receive_output(timeout=WAIT))["type"] != "websocket.close":
                pass
        return int(message["code"])


@pytest.fixture
async def connect(transactional_db: None) -> AsyncIterator[Connect]:
    from devflow.asgi import runtime

    lines: list[Line] = []

    async def start(path: str, cookies: str, *, origin: tuple[bytes, bytes] = ORIGIN) -> Line:
        headers = [(b"host", b"127.0.0.1:8051"), (b"cookie", cookies.encode()), origin]
        lines.append(await Line(path, headers).open())
        return lines[-1]

    yield start
    for line in lines:
        await line.socket.disconnect(timeout=WAIT)  # type: ignore[no-untyped-call]  # as above
    await runtime.stop()


def _cookies(project: Project | None) -> str:
    user = get_user_model().objects.create_user("mia")
    if project is not None:
        Membership.objects.create(user=user, project=project, role="viewer")
    client = Client()
    client.force_login(user)
    return client.cookies.output(attrs=[], header="", sep=";").strip()


@sync_to_async
def setting(slug: str = "shop", *, member: bool = True) -> tuple[Project, str]:
    project = projects.create(slug=slug, name=slug)
    return project, _cookies(project if member else None)


@sync_to_async
def add_task(project: Project, **more: Any) -> Task:
    values: dict[str, Any] = {"phase_number": 1, "description": "x", "actor": actors.SYSTEM, **more}
    return tasks.create(project_id=project.pk, **values)


@sync_to_async
def claim(project: Project) -> Task:
    found = claims.claim(project_id=project.pk, phase_number=1, actor=joined(project, "ada")).task
    assert found is not None
    return found


async def test_a_page_hears_what_changed_by_type_and_id(connect: Connect) -> None:
    project, cookies = await setting()
    line = await connect("/ws/shop/", cookies)
    assert set(await line.next()) == {"seq"}
    made = await add_task(project)
    message = await line.told("changes")
    assert ["task.created", made.public_id] in message["changes"]
    assert "cards" not in message
    assert message["seq"] == await sync_to_async(lambda: Event.objects.latest("pk").pk)()


async def test_a_board_is_told_the_card_its_column_and_the_counts(connect: Connect) -> None:
    project, cookies = await setting()
    made = await add_task(project, description="Look around")
    line = await connect("/ws/shop/?view=board", cookies)
    await line.next()
    await claim(project)
    message = await line.told("cards")
    (card,) = message["cards"]
    assert (card["id"], card["column"]) == (made.public_id, "in_progress")
    assert "Look around" in card["html"]
    assert "ada" in card["html"]
    assert message["counts"]["columns"] == {"backlog": 0, "ready": 0, "in_progress": 1, "review": 0, "done": 0}


async def test_what_waits_for_a_task_is_told_with_it(connect: Connect) -> None:
    project, cookies = await setting()
    first = await add_task(project)
    second = await add_task(project, blocked_by=[first.pk])
    line = await connect("/ws/shop/?view=board", cookies)
    await line.next()
    await claim(project)
    message = await line.told("cards")
    assert {card["id"] for card in message["cards"]} == {first.public_id, second.public_id}


async def test_a_card_that_the_filter_leaves_out_is_gone(connect: Connect) -> None:
    project, cookies = await setting()
    made = await add_task(project, tags=["auth"])
    line = await connect("/ws/shop/?view=board&tag=auth", cookies)
    await line.next()
    await sync_to_async(tasks.edit)(project_id=project.pk, task_id=made.pk, actor=actors.SYSTEM, tags=["other"])
    message = await line.told("gone")
    assert message["gone"] == [made.public_id]
    assert message["cards"] == []
    assert sum(message["counts"]["columns"].values()) == 0


async def test_a_cancelled_card_is_gone(connect: Connect) -> None:
    from workflow.services import transitions

    project, cookies = await setting()
    made = await add_task(project)
    line = await connect("/ws/shop/?view=board", cookies)
    await line.next()
    await sync_to_async(transitions.cancel)(project_id=project.pk, task_id=made.pk, actor=actors.SYSTEM)
    assert (await line.told("gone"))["gone"] == [made.public_id]


async def test_a_page_that_was_away_is_told_what_it_missed(connect: Connect) -> None:
    project, cookies = await setting()
    line = await connect("/ws/shop/?view=board", cookies)
    seen = (await line.next())["seq"]
    one, two = await add_task(project), await add_task(project)
    back = await connect(f"/ws/shop/?view=board&since={seen}", cookies)
    message = await back.next()
    assert [card["id"] for card in message["cards"]] == [one.public_id, two.public_id]
    assert ["task.created", two.public_id] in message["changes"]
    up_to_date = await connect(f"/ws/shop/?view=board&since={message['seq']}", cookies)
    assert (await up_to_date.next())["changes"] == []


@pytest.mark.parametrize("since", ["0", "999999999"], ids=["too much", "of another database"])
async def test_a_page_that_missed_too_much_looks_again(
    since: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_MISSED", 2)
    project, cookies = await setting()
    for _ in range(3):
        await add_task(project)
    line = await connect(f"/ws/shop/?view=board&since={since}", cookies)
    assert (await line.next())["reload"] is True


@pytest.mark.parametrize("since", ["-1", "x", "", "1" * 400, "%00"])
async def test_an_address_that_means_nothing_starts_from_now(since: str, connect: Connect) -> None:
    _, cookies = await setting()
    line = await connect(f"/ws/shop/?view=board&since={since}", cookies)
    assert set(await line.next()) == {"seq"}


async def test_changes_of_another_project_are_not_heard(connect: Connect) -> None:
    project, cookies = await setting()
    other = await sync_to_async(projects.create)(slug="other", name="Other")
    line = await connect("/ws/shop/?view=board", cookies)
    await line.next()
    foreign, own = await add_task(other), await add_task(project)
    message = await line.told("changes")
    assert ["task.created", own.public_id] in message["changes"]
    assert foreign.public_id not in json.dumps(message)


async def test_strangers_hear_nothing(connect: Connect) -> None:
    _, cookies = await setting(member=False)
    assert await (await connect("/ws/shop/", cookies)).closed() == live.NOT_FOUND
    assert await (await connect("/ws/nowhere/", cookies)).closed() == live.NOT_FOUND
    assert await (await connect("/ws/shop/", "")).closed() == live.LOGGED_OUT


async def test_a_page_of_another_site_is_refused(connect: Connect) -> None:
    _, cookies = await setting()
    assert not (await connect("/ws/shop/", cookies, origin=(b"origin", b"http://evil.example"))).accepted
    assert not (await connect("/ws/shop/", cookies, origin=(b"x-origin", b""))).accepted
    assert not (await connect("/ws/", cookies)).accepted


async def test_who_leaves_the_project_is_told_no_more(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.05)
    _, cookies = await setting()
    line = await connect("/ws/shop/", cookies)
    await line.next()
    await sync_to_async(Membership.objects.all().delete)()
    assert await line.closed() == live.NOT_FOUND


async def test_a_session_that_was_ended_is_told_no_more(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.contrib.sessions.models import Session

    monkeypatch.setattr(live, "LOOK_SECONDS", 0.05)
    _, cookies = await setting()
    line = await connect("/ws/shop/", cookies)
    await line.next()
    await sync_to_async(Session.objects.all().delete)()
    assert await line.closed() == live.NOT_FOUND


async def test_a_changed_phase_or_limit_is_on_every_card_so_the_board_looks_again(connect: Connect) -> None:
    project, cookies = await setting()
    line = await connect("/ws/shop/?view=board", cookies)
    await line.next()
    configure = sync_to_async(projects.configure)
    await configure(project_id=project.pk, actor=actors.SYSTEM, column_limits={"in_progress": 2})
    assert (await line.told("reload"))["reload"] is True


async def test_a_page_whose_database_is_away_comes_back_later(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    project, cookies = await setting()
    line = await connect("/ws/shop/", cookies)
    await line.next()

    def away(**_: object) -> int:
        raise OperationalError("the database is away")

    monkeypatch.setattr(live.activity, "newest", away)
    await add_task(project)
    assert await line.closed() == live.FAULT
    assert "cannot be followed" in caplog.text


async def test_a_quiet_board_is_told_how_long_its_leases_are(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.05)
    project, cookies = await setting()
    await add_task(project)
    held = await claim(project)
    line = await connect("/ws/shop/?view=board", cookies)
    left = (await line.told("leases"))["leases"]
    assert 0 < left[held.public_id] <= 24 * 3600


async def test_the_line_ends_when_the_server_drains(connect: Connect) -> None:
    _, cookies = await setting()
    line = await connect("/ws/shop/", cookies)
    await line.next()
    draining.set()
    try:
        assert await line.closed() == live.RESTART
    finally:
        draining.clear()


async def test_a_page_that_cannot_keep_up_or_whose_server_was_deaf_looks_again(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, cookies = await setting()
    line = await connect("/ws/shop/?view=board", cookies)
    await line.next()
    bus.deliver(LiveEvent(REJOINED, EVERY_PROJECT))
    assert (await line.told("reload"))["reload"] is True
    for number in range(2 * live.MOST_WAITING):
        bus.deliver(LiveEvent("task.edited", project.pk, f"task-{number}"))
    assert (await line.told("reload"))["reload"] is True


async def test_the_undo_of_a_drag_takes_back_the_column_and_the_place(connect: Connect) -> None:
    project, cookies = await setting()
    one, two = await add_task(project), await add_task(project)
    actor = actors.person(user_id=1, name="mia", tool="browser")
    await sync_to_async(board.move)(project_id=project.pk, task_id=two.pk, column="in_progress", actor=actor)
    moved = sync_to_async(board.move)
    await moved(project_id=project.pk, task_id=one.pk, column="in_progress", after_id=two.pk, actor=actor)
    line = await connect("/ws/shop/?view=board", cookies)
    await line.next()
    await sync_to_async(board.undo_last_move)(project_id=project.pk, task_id=one.pk, actor=actor)
    (card,) = [card for card in (await line.told("cards"))["cards"] if card["id"] == one.public_id]
    assert card["column"] == "ready"
    row = await sync_to_async(Task.objects.get)(pk=one.pk)
    assert row.position == one.position
