"""The board's live stream, over the whole ASGI application."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.test import Client

from devflow import actors
from devflow.drain import draining
from workflow.models import Membership, Project
from workflow.services import projects, tasks

WAIT = 10.0


class Listener:
    """One EventSource: the raw ASGI conversation, for httpx's in-process transport does not stream."""

    def __init__(self, path: str, cookies: str) -> None:
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(b"host", b"127.0.0.1"), (b"cookie", cookies.encode())],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self.asked = False

    async def receive(self) -> dict[str, Any]:
        if not self.asked:
            self.asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(WAIT):
            return await self.sent.get()

    async def text(self) -> str:
        while True:
            message = await self.next()
            if message["type"] == "http.response.body":
                body: bytes = message.get("body", b"")
                if body or not message.get("more_body"):
                    return body.decode()


@pytest.fixture
async def listen(transactional_db: None) -> AsyncIterator[Any]:
    from devflow.asgi import application, runtime

    running: list[tuple[Listener, asyncio.Task[None]]] = []

    async def start(path: str, cookies: str) -> Listener:
        listener = Listener(path, cookies)
        running.append(
            (listener, asyncio.ensure_future(application(listener.scope, listener.receive, listener.sent.put)))
        )
        return listener

    yield start
    for listener, task in running:
        listener.gone.set()
        async with asyncio.timeout(WAIT):
            await asyncio.gather(task, return_exceptions=True)
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
def add_task(project: Project) -> str:
    return tasks.create(project_id=project.pk, phase_number=1, description="x", actor=actors.SYSTEM).public_id


async def test_a_change_reaches_the_stream_as_type_and_id_alone(listen: Any) -> None:
    project, cookies = await setting()
    listener = await listen("/board/shop/events", cookies)
    start = await listener.next()
    headers = {name.lower(): value for name, value in start["headers"]}
    assert (start["status"], headers[b"content-type"]) == (200, b"text/event-stream")
    assert headers[b"cache-control"] == b"no-store"
    assert "connected" in await listener.text()
    task_id = await add_task(project)
    assert f'data: {{"type": "task.created", "id": "{task_id}"}}' in await listener.text()


async def test_changes_of_another_project_are_not_heard(listen: Any) -> None:
    project, cookies = await setting()
    other = await sync_to_async(projects.create)(slug="other", name="Other")
    listener = await listen("/board/shop/events", cookies)
    await listener.text()
    foreign = await add_task(other)
    own = await add_task(project)
    heard = await listener.text()
    assert own in heard
    assert f'"{foreign}"' not in heard


async def test_strangers_hear_nothing(listen: Any) -> None:
    _, cookies = await setting(member=False)
    assert (await (await listen("/board/shop/events", cookies)).next())["status"] == 404
    assert (await (await listen("/board/shop/events", "")).next())["status"] == 401


async def test_the_stream_ends_when_the_server_drains(listen: Any) -> None:
    _, cookies = await setting()
    listener = await listen("/board/shop/events", cookies)
    await listener.text()
    draining.set()
    try:
        assert await listener.text() == ""
    finally:
        draining.clear()
