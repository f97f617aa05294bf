"""Tools another DevFlow runs: what of the caller goes over there."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from devflow import config
from mcpbridge import access, dispatcher, remote
from mcpbridge.models import ApiKey
from mcpbridge.tooling import Caller
from tests.mcpbridge.conftest import MakeCaller
from workflow.services import projects


@pytest.fixture
def over_there(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[httpx.Request]]:
    """What another DevFlow is asked; it answers that nobody is there."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"result": {"agents": [], "coherence_method": ""}, "error": None})

    now = config.current()
    gateway = now.mcp_gateway.model_copy(update={"workflow_engine_url": "http://there.test"})
    monkeypatch.setattr(config, "current", lambda: now.model_copy(update={"mcp_gateway": gateway}))
    monkeypatch.setattr(remote, "_client", lambda: httpx.AsyncClient(transport=httpx.MockTransport(answer)))
    yield asked


async def bound_to_a_project(**more: str) -> Caller:
    def made() -> access.Identity | None:
        ours, _theirs = projects.create(slug="ours"), projects.create(slug="theirs")
        key, _ = ApiKey.objects.issue(name="bound", scopes=["read"], project_id=ours.pk, rate_per_minute=0)
        return access.keyring.look_up(key.digest)

    identity = await asyncio.to_thread(made)
    assert identity is not None
    return access.caller_for(identity, transport="rest", query=more)


@pytest.mark.usefixtures("transactional_db")
async def test_a_key_of_one_project_stays_in_it_over_there(over_there: list[httpx.Request]) -> None:
    assert (await dispatcher.call("get_agent_status", {}, await bound_to_a_project())).code == "ok"
    assert over_there[0].headers["X-Project"] == "ours"


@pytest.mark.usefixtures("transactional_db")
async def test_a_key_of_one_project_reaches_no_other_over_there(over_there: list[httpx.Request]) -> None:
    outcome = await dispatcher.call("get_agent_status", {}, await bound_to_a_project(project="theirs"))
    assert (outcome.code, over_there) == ("not_found", [])


async def test_an_agent_with_any_name_can_be_named_over_there(
    over_there: list[httpx.Request], make_caller: MakeCaller
) -> None:
    caller = make_caller(meta={"devflow/agent": "\N{GREEK SMALL LETTER ALPHA}da"})
    assert (await dispatcher.call("get_agent_status", {}, caller)).code == "ok"
    assert over_there[0].headers["X-Agent-Id"] == "\\u03b1da"
