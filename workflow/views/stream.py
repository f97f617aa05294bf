"""What happens in a project, as server-sent events that say no more than `{type, id}`.

The page fetches what changed through its own view, so that there is one permission check. A listener that does not
keep up loses events, not memory: it is told to look at everything again.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse

from devflow.drain import draining
from devflow.events import EVERY_PROJECT, LiveEvent, bus
from workflow.models import Project
from workflow.selectors import projects as project_selectors

PING_SECONDS = 15.0
MOST_WAITING = 100


async def events(request: HttpRequest, slug: str) -> HttpResponse | StreamingHttpResponse:
    """`/board/<project>/events`."""
    user = await request.auser()
    if not user.is_authenticated:
        return JsonResponse({"error": "Log in first."}, status=401)
    project = await _visible(user.pk, slug)
    if project is None:
        return JsonResponse({"error": "There is no such project, or it is not yours."}, status=404)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingHttpResponse(_stream(project, user.pk), content_type="text/event-stream", headers=headers)


@sync_to_async
def _visible(user_id: Any, slug: str) -> Project | None:
    """The project, if that person may see it now."""
    user = get_user_model()._default_manager.filter(pk=user_id, is_active=True).first()
    return None if user is None else project_selectors.visible_to(user).filter(slug=slug).first()


async def _stream(project: Project, user_id: Any) -> AsyncIterator[bytes]:
    waiting: asyncio.Queue[LiveEvent | None] = asyncio.Queue(MOST_WAITING)

    def hear(event: LiveEvent) -> None:
        if event.project_id in (project.pk, EVERY_PROJECT) and not waiting.full():
            waiting.put_nowait(event)

    loop = asyncio.get_running_loop()
    leave = bus.subscribe(hear)
    drained = draining.subscribe(lambda: loop.call_soon_threadsafe(_end, waiting))
    try:
        yield b"retry: 1000\n: connected\n\n"
        look = loop.time() + PING_SECONDS
        while True:
            if loop.time() >= look:
                if await _visible(user_id, project.slug) is None:
                    return
                look = loop.time() + PING_SECONDS
            try:
                async with asyncio.timeout_at(look):
                    event = await waiting.get()
            except TimeoutError:
                yield b": ping\n\n"
                continue
            if event is None:
                return
            yield _line(event)
    finally:
        leave()
        drained()


def _end(waiting: "asyncio.Queue[LiveEvent | None]") -> None:
    while not waiting.empty():
        waiting.get_nowait()
    waiting.put_nowait(None)


def _line(event: LiveEvent) -> bytes:
    number = f"id: {event.sequence}\n" if event.sequence is not None else ""
    return f"{number}data: {json.dumps({'type': event.type, 'id': event.id})}\n\n".encode()
