"""What happens in a project, to every page that looks at it: one WebSocket a page, `/ws/<project>/`.

Each message is JSON. `seq` is the Event the page is up to; a page that was away says the last one it had
(`?since=`) and gets what it missed, or `reload` where that is too much. `changes` lists `[type, id]`. A board
(`?view=board` and its filters) also gets `cards` (their HTML, column, lane and place), `gone` (ids that are not on it
any more), `counts` and, every few seconds, how long its `leases` still are.
"""

import asyncio
import json
import logging
from functools import partial
from importlib import import_module
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import get_user
from django.db.models import Q
from django.http import HttpRequest, QueryDict
from django.utils import timezone

from devflow.digits import whole
from devflow.drain import draining
from devflow.events import EVERY_PROJECT, REJOINED, LiveEvent, bus
from workflow.models import Event, Project, Task
from workflow.selectors import activity
from workflow.selectors import board as board_selectors
from workflow.selectors import projects as project_selectors
from workflow.selectors.filters import TaskFilter
from workflow.views import cards

logger = logging.getLogger(__name__)

_in_a_thread = partial(database_sync_to_async, thread_sensitive=False)  # else all pages share one thread

LOOK_SECONDS = 10.0
"""How often a quiet page is told the leases, and whether its person may still see the project is asked."""
GATHER_SECONDS = 0.02
MOST_WAITING = 500
MOST_MISSED = 200

NOT_FOUND, LOGGED_OUT, RESTART, FAULT = 4404, 4401, 1012, 1011


class Live(AsyncWebsocketConsumer):
    """One page that looks. A page that does not keep up loses messages, not our memory: it is told to reload."""

    project: Project
    wanted: TaskFilter | None
    _task: "asyncio.Task[None] | None" = None

    async def connect(self) -> None:
        await self.accept()
        self.slug = self.scope["url_route"]["kwargs"]["slug"]
        is_logged_in, found = await self._visible()
        if found is None:
            await self.close(NOT_FOUND if is_logged_in else LOGGED_OUT)
            return
        self.project = found
        asked = QueryDict(self.scope["query_string"])
        self.wanted = TaskFilter.of(asked) if asked.get("view") == "board" else None
        self._waiting: asyncio.Queue[LiveEvent | None] = asyncio.Queue(MOST_WAITING)
        self._is_behind = False
        self._loop = asyncio.get_running_loop()
        self._leave_bus = bus.subscribe(self._hear)
        self._leave_drain = draining.subscribe(lambda: self._loop.call_soon_threadsafe(self._end))
        self._task = asyncio.create_task(self._follow(whole(asked.get("since", ""))))

    async def disconnect(self, code: int) -> None:
        if self._task is not None:
            self._leave_bus()
            self._leave_drain()
            self._task.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Pages say nothing here: they change things over the API."""

    def _hear(self, event: LiveEvent) -> None:
        if event.project_id not in (self.project.pk, EVERY_PROJECT):
            return
        if self._waiting.full():
            self._is_behind = True
        else:
            self._waiting.put_nowait(event)

    def _end(self) -> None:
        while not self._waiting.empty():
            self._waiting.get_nowait()
        self._waiting.put_nowait(None)

    @_in_a_thread
    def _visible(self) -> tuple[bool, Project | None]:
        """Whether the session has not ended, and the project, if that person may see it now."""
        asking = HttpRequest()
        asking.session = import_module(settings.SESSION_ENGINE).SessionStore(self.scope["session"].session_key)
        user = get_user(asking)
        if not user.is_authenticated:
            return False, None
        return True, project_selectors.visible_to(user).filter(slug=self.slug).first()

    async def _follow(self, since: int | None) -> None:
        try:
            await self._tell(since)
        except Exception:  # such as a database that is away: the page comes back and says what it has
            logger.exception("a page cannot be followed any more")
            await self.close(FAULT)

    async def _tell(self, since: int | None) -> None:
        await self._say(await self._missed(since))
        look = self._loop.time() + LOOK_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(look):
                    event = await self._waiting.get()
            except TimeoutError:
                _, seen = await self._visible()
                if seen is None:
                    await self.close(NOT_FOUND)
                    return
                await self._say(await self._leases())
                look = self._loop.time() + LOOK_SECONDS
                continue
            await asyncio.sleep(GATHER_SECONDS)
            events = [event]
            while not self._waiting.empty():
                events.append(self._waiting.get_nowait())
            if None in events:
                await self.close(RESTART)
                return
            await self._say(await self._changed([one for one in events if one is not None]))

    async def _say(self, message: dict[str, Any]) -> None:
        if message:
            await self.send(text_data=json.dumps(message))

    @_in_a_thread
    def _missed(self, since: int | None) -> dict[str, Any]:
        """Where the page stands, and what it does not know yet."""
        newest = activity.newest(project_id=self.project.pk)
        if since is None:
            return {"seq": newest}
        events = activity.since(project_id=self.project.pk, sequence=since, limit=MOST_MISSED + 1)
        known = not since or Event.objects.filter(project=self.project, pk=since).exists()
        if len(events) > MOST_MISSED or not known:
            return {"seq": newest, "reload": True}
        told = [LiveEvent(one.kind, self.project.pk, f"task-{one.task_id}" if one.task_id else "") for one in events]
        return {"seq": newest, **self._told(told), "leases": self._left()}

    @_in_a_thread
    def _changed(self, events: list[LiveEvent]) -> dict[str, Any]:
        newest = activity.newest(project_id=self.project.pk)  # before anything is read: what comes later is told later
        if self._is_behind or any(one.type == REJOINED for one in events):
            self._is_behind = False
            return {"seq": newest, "reload": True}
        return {"seq": newest, **self._told(events)}

    def _told(self, events: list[LiveEvent]) -> dict[str, Any]:
        changes = list(dict.fromkeys((one.type, one.id) for one in events))
        told: dict[str, Any] = {"changes": changes}
        if self.wanted is not None and any(one.type.startswith(("phase.", "project.")) for one in events):
            return told | {"reload": True}  # names and limits stand on every card and column
        plans = self.wanted is not None and (self.wanted.epics or self.wanted.lanes in ("epic", "story"))
        if plans and any(one.type.startswith(("epic.", "story.")) for one in events):
            return told | {"reload": True}  # which lane is whose, and what it is called
        numbers = dict.fromkeys(int(one.id[5:]) for one in events if one.id.startswith("task-"))
        if self.wanted is not None and any(one.type.startswith("story.") and not one.id for one in events):
            return told | {"reload": True}
        stories = {int(one.id[6:]) for one in events if one.id.startswith("story-")}  # their names stand on cards
        if self.wanted is None or not (numbers or stories):
            return told
        around = Task.objects.filter(
            Q(dependencies__blocker__in=numbers) | Q(parent__in=numbers) | Q(user_story__in=stories)
        )
        around_ids = around.order_by("pk").distinct().values_list("pk", flat=True)
        touched = [*numbers, *(pk for pk in around_ids[:MOST_MISSED] if pk not in numbers)]  # their badges change too
        shown = cards.by_id(self.project, self.wanted, touched)
        here = {one.card.pk for one in shown}
        told["cards"] = [
            {
                "id": one.card.public_id,
                "column": one.column,
                "lane": one.lane,
                "place": one.place,
                "html": one.html,
            }
            for one in shown
        ]
        told["gone"] = [f"task-{pk}" for pk in touched if pk not in here]
        tasks = self.wanted.apply(Task.objects.filter(project=self.project))
        counts = board_selectors.counts(tasks=tasks, at=timezone.now())
        told["counts"] = {"columns": counts.columns, "failed": counts.failed, "blocked": counts.blocked}
        return told

    @_in_a_thread
    def _leases(self) -> dict[str, Any]:
        return {"leases": self._left()} if self.wanted is not None else {}

    def _left(self) -> dict[str, int]:
        """Seconds left of every lease in the project."""
        now = timezone.now()
        held = Task.objects.filter(project=self.project, lease_token__isnull=False)
        rows = held.values_list("pk", "lease_expires_at")[:1000]
        return {f"task-{pk}": max(0, int((until - now).total_seconds())) for pk, until in rows if until is not None}
