"""The gateway's fixtures, a model to ask, and tasks sent through the dispatcher."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from devflow import config
from mcpbridge import dispatcher
from mcpbridge.envelopes import Outcome
from mcpbridge.tooling import Caller
from tests.fakes.chat_server import ChatServer
from tests.gateway.conftest import caller, gateway, make_caller, project, small

__all__ = ["caller", "gateway", "make_caller", "project", "small"]

Ask = Callable[..., Awaitable[Outcome]]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """A model that the configuration names."""
    with ChatServer(api_key="sk-server-secret") as server:
        monkeypatch.setenv("DEVFLOW_LLM_BASE_URL", server.url)
        monkeypatch.setenv("DEVFLOW_LLM_MODEL", "chooser")
        monkeypatch.setenv("DEVFLOW_LLM_API_KEY", "sk-server-secret")
        monkeypatch.setenv("DEVFLOW_LLM_TIMEOUT_SECONDS", "1")
        config.current.cache_clear()
        yield server
    monkeypatch.undo()
    config.current.cache_clear()


@pytest.fixture
def ask(caller: Caller) -> Ask:
    """Send a task and give how it ended."""

    async def run(query: str, *, by: Caller | None = None, **more: Any) -> Outcome:
        return await dispatcher.call("orchestrate_task", {"query": query, **more}, by or caller)

    return run


@pytest.fixture
def confirm(caller: Caller) -> Ask:
    async def run(plan_id: str, *, by: Caller | None = None, **more: Any) -> Outcome:
        return await dispatcher.call("confirm_plan", {"plan_id": plan_id, **more}, by or caller)

    return run
