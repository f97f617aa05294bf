"""What backends notify: a changed tool list is looked at again, everything reaches who listens to that session."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import mcp.types as types
from mcp import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ServerEvent, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from devflow.errors import DevFlowError
from devflow.events import NO_PROJECT, LiveEvent, bus
from mcpbridge.asking import EVERYTHING
from mcpbridge.gateway import discovery
from mcpbridge.gateway.conversing import told
from mcpbridge.gateway.sessions import Session, pool
from mcpbridge.subscriptions import TOOLS_CHANGED
from mcpbridge.threads import run_blocking

logger = logging.getLogger(__name__)

QUIET_SECONDS = 0.5
"""A backend that announces several changes at once is asked once, and others are told once, this long after the
first."""

AGAIN_SECONDS = 5.0
PROMPTS_CHANGED = "prompts.changed"
RESOURCES_CHANGED = "resources.changed"
LISTS: Mapping[str, type[ToolsListChanged | PromptsListChanged | ResourcesListChanged]] = {
    TOOLS_CHANGED: ToolsListChanged,
    PROMPTS_CHANGED: PromptsListChanged,
    RESOURCES_CHANGED: ResourcesListChanged,
}
"""The kinds of live events that say which list of a backend changed, with what 2026-07-28 streams for them."""

_KINDS: Mapping[type[Any], str] = {
    **{streamed: kind for kind, streamed in LISTS.items()},
    types.ToolListChangedNotification: TOOLS_CHANGED,
    types.PromptListChangedNotification: PROMPTS_CHANGED,
    types.ResourceListChangedNotification: RESOURCES_CHANGED,
}

Listener = Callable[[types.ServerNotification], None]


def listens(client: Client) -> bool:
    """Whether the backend's changes are asked for with one stream, as since 2026-07-28."""
    return client.protocol_version in MODERN_PROTOCOL_VERSIONS


class Notices:
    """Those who listen to open sessions, in this process."""

    def __init__(self) -> None:
        self._listeners: WeakKeyDictionary[Session, list[Listener]] = WeakKeyDictionary()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._telling: set[tuple[str, str]] = set()
        self._following: set[asyncio.Task[None]] = set()

    def begin(self, session: Session) -> None:
        """Follow the lists of a new session: a backend of 2026-07-28 tells only those who ask to be told."""
        if session.spec.pk is not None:
            task = asyncio.create_task(self._follow(session))
            self._following.add(task)
            task.add_done_callback(self._following.discard)

    async def _follow(self, session: Session) -> None:
        try:
            client = await session.client()
            has = client.server_capabilities
            tools, prompts, resources = (
                one is not None and bool(one.list_changed) for one in (has.tools, has.prompts, has.resources)
            )
            while listens(client) and (tools or prompts or resources) and not session.is_over:
                async with client.listen(
                    tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
                ) as changes:
                    with suppress(SubscriptionLost):
                        async for event in changes:
                            self._note(session, event)
                await asyncio.sleep(AGAIN_SECONDS)
        except (DevFlowError, MCPError, RuntimeError, TimeoutError) as exc:
            logger.debug("changes of %s are not followed: %s", session.spec.id, exc)

    def hear(self, session: Session, message: types.ServerNotification) -> None:
        for listener in list(self._listeners.get(session, ())):
            listener(message)
        self._note(session, message)

    def _note(self, session: Session, said: types.ServerNotification | ServerEvent) -> None:
        """Look at the tools again, or tell who listens, where a list has changed."""
        kind, spec = _KINDS.get(type(said)), session.spec
        if kind == TOOLS_CHANGED:
            self.ask_again(session)
        elif kind is not None and spec.pk is not None and (about := (kind, spec.id)) not in self._telling:
            self._telling.add(about)
            asyncio.get_running_loop().call_later(QUIET_SECONDS, self._tell, about)

    def _tell(self, about: tuple[str, str]) -> None:
        self._telling.discard(about)
        kind, backend = about
        bus.deliver(LiveEvent(kind, NO_PROJECT, backend))

    def listen(self, session: Session, listener: Listener) -> Callable[[], None]:
        """Hear what the backend notifies on this session. Returns the way out."""
        listeners = self._listeners.setdefault(session, [])
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def ask_again(self, session: Session) -> None:
        """Ask for the tools in this very session soon, and hold back what changed."""
        spec = session.spec
        if spec.pk is None or spec.id in self._asking:
            return
        task = self._asking[spec.id] = asyncio.create_task(self._ask(session))
        task.add_done_callback(lambda _: self._asking.pop(spec.id, None))

    @staticmethod
    async def _ask(session: Session) -> None:
        await asyncio.sleep(QUIET_SECONDS)
        try:
            found = await discovery.ask(session)
            is_all = session.features == told(session.spec, EVERYTHING)
            await run_blocking(discovery.keep, session.spec, found, is_all=is_all)
        except DevFlowError as exc:
            logger.info("the changed tools of %s could not be read: %s", session.spec.id, exc)


notices = Notices()
pool.begun, pool.heard = notices.begin, notices.hear
