"""What a backend asks while a call runs reaches the client's person or model, and the call goes on with the answer."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import mcp.types as types
import pytest
from django.utils import timezone
from mcp import Client
from mcp.shared.exceptions import MCPError

from devflow.config import PROJECT_ROOT
from devflow.errors import DevFlowError
from mcpbridge import asking
from mcpbridge.gateway import catalog
from mcpbridge.gateway.deadlines import Deadline
from mcpbridge.gateway.sessions import pool
from mcpbridge.models import Action, ToolCall
from tests.gateway.serving import add, on_server, opened, passed
from tests.mcpbridge.conftest import in_thread
from tests.transports.site import WAIT, Site, http_session, sse_session

ASKING = PROJECT_ROOT / "tests" / "fakes" / "asking_backend.py"
ROUTES = pytest.mark.parametrize("route", ["sse", "http", "passed", "posted", "passed-posted"])
"""Over SSE; on 2026-07-28 over HTTP, in the main list and passed through; both again with a handshake."""
BACKENDS = pytest.mark.parametrize("backend", ["old", "new"])
SOME = pytest.mark.parametrize(
    ("route", "backend"),
    [("sse", "old"), ("http", "new"), ("http", "old"), ("posted", "old"), ("passed-posted", "new")],
)


@pytest.fixture
def site(_served: Site, transactional_db: None) -> Iterator[Site]:
    with opened(_served) as fresh:
        yield fresh


@pytest.fixture
def backends(site: Site, request: pytest.FixtureRequest) -> None:
    """The backend a test is for, its tools in the main list: `old` has the handshake, `new` speaks 2026-07-28. Without
    the parameter `backend` it is the old one, `both` brings the other too."""
    parameters = getattr(request.node, "callspec", None)
    wanted = {str(parameters.params.get("backend", "old")) if parameters else "old"}
    if "both" in request.fixturenames:
        wanted.add("new")
    for name in wanted:
        add(site, name, sys.executable, str(ASKING), *(["handshake"] if name == "old" else []))
    in_thread(lambda: Action.objects.update(is_federated=True, changed_at=timezone.now()))
    catalog.catalog.forget()


@pytest.fixture
def both(backends: None) -> None:
    """Asks `backends` for the new one beside the old."""


def changed(**fields: Any) -> None:
    """Change the rows of the backends."""
    in_thread(lambda: catalog.Backend.objects.update(changed_at=timezone.now(), **fields))
    catalog.catalog.forget()


class Person:
    """Who sits at the client, and its model."""

    def __init__(self, name: str = "Ada") -> None:
        self.name = name
        self.asked: list[Any] = []
        self.seconds = 0.0

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult | types.ErrorData:
        self.asked.append(params)
        await asyncio.sleep(self.seconds)
        if not self.name:
            return types.ErrorData(code=-1, message="Nobody is here.")
        return types.ElicitResult(action="accept", content={"name": self.name})

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self.asked.append(params)
        answer = types.TextContent(type="text", text="I think so")
        return types.CreateMessageResult(role="assistant", content=answer, model="small")

    @property
    def options(self) -> dict[str, Any]:
        return {"elicitation_callback": self.elicit, "sampling_callback": self.sample}


@asynccontextmanager
async def client_by(route: str, site: Site, backend: str, **options: Any) -> AsyncIterator[tuple[Client, str]]:
    """A client at the door `route`, and what goes before the names of the backend's tools there."""
    if route.startswith("passed"):
        async with passed(site, backend, mode="legacy" if "posted" in route else "auto", **options) as client:
            yield client, ""
    elif route == "sse":
        async with sse_session(site, mode="legacy", **options) as client:
            yield client, f"{backend}__"
    else:
        async with http_session(site, mode="legacy" if route == "posted" else "auto", **options) as client:
            yield client, f"{backend}__"


def words(result: Any) -> str:
    return " ".join(part.text for part in result.content)


@ROUTES
@BACKENDS
async def test_a_person_and_a_model_answer_and_the_call_goes_on(
    site: Site, backends: None, route: str, backend: str
) -> None:
    person = Person()
    async with client_by(route, site, backend, **person.options) as (client, before):
        assert words(await client.call_tool(f"{before}who", {})) == "accept Ada"
        assert words(await client.call_tool(f"{before}think", {})) == "I think so"
        assert words(await client.call_tool(f"{before}both", {})) == "accept Ada, I think so"
    message, thought = person.asked[0], person.asked[1]
    # A client that knows DevFlow only is told who asks, and its other servers' context is not for the backend.
    assert message.message == ("Who?" if "passed" in route else f"{backend}: Who?")
    assert message.requested_schema["required"] == ["name"]
    assert (thought.include_context is None) == ("passed" not in route)
    assert thought.max_tokens == 10


@SOME
async def test_a_client_that_cannot_be_asked_is_told_so(site: Site, backends: None, route: str, backend: str) -> None:
    async with client_by(route, site, backend) as (client, before):
        result = await client.call_tool(f"{before}who", {})
        assert "accept" not in words(result)
        assert result.is_error or "refused" in words(result)


@SOME
async def test_a_refusal_of_the_client_reaches_the_backend(
    site: Site, backends: None, route: str, backend: str
) -> None:
    person = Person(name="")
    async with client_by(route, site, backend, **person.options) as (client, before):
        if route in ("http", "passed"):
            with pytest.raises(MCPError) as refused:  # the client itself ends a call whose question it refuses
                await client.call_tool(f"{before}who", {})
            assert "Nobody is here." in str(refused.value)
        else:
            assert "Nobody is here." in words(await client.call_tool(f"{before}who", {}))
    assert len(person.asked) == 1


@pytest.mark.parametrize("route", ["sse", "http", "posted"])
async def test_the_time_a_person_takes_is_not_the_backends(site: Site, backends: None, route: str) -> None:
    slow, quick = Person(), Person("Bob")
    async with (
        client_by(route, site, "old", **slow.options) as (client, _),
        client_by(route, site, "old", key=site.other_key, **quick.options) as (other, _),
    ):
        for one in (client, other):
            await one.call_tool("old__again", {})  # its session is open
        changed(timeouts={"QUERY": 2000})
        slow.seconds = 2.5
        waiting = asyncio.create_task(client.call_tool("old__who", {}))
        async with asyncio.timeout(WAIT):
            while not slow.asked:
                await asyncio.sleep(0.02)
        assert words(await other.call_tool("old__who", {})) == "accept Bob"
        assert not waiting.done()
        assert words(await waiting) == "accept Ada"
        slow.seconds = 0.0
        late = await client.call_tool("old__slow", {})
        assert late.is_error  # its own time counts
        assert "did not finish within" in words(late)


@BACKENDS
async def test_tools_only_some_clients_may_have_are_known_and_listed_to_those(
    site: Site, backends: None, backend: str
) -> None:
    async with passed(site, backend, **Person().options) as client:
        assert "think" in [tool.name for tool in (await client.list_tools()).tools]
    async with passed(site, backend) as client:
        assert "think" not in [tool.name for tool in (await client.list_tools()).tools]
    assert not in_thread(lambda: Action.objects.get(backend__backend_id=backend, name="think").is_gone)


async def test_a_backend_that_may_not_ask_is_told_of_no_client(site: Site) -> None:
    in_thread(lambda: add(site, "mute", sys.executable, str(ASKING), may_ask=False))
    person = Person()
    async with passed(site, "mute", **person.options) as client:
        assert "think" not in [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("who", {})
        assert result.is_error
        assert "nobody here can answer" in words(result)
    assert person.asked == []


@ROUTES
async def test_roots_and_addresses_are_asked_of_no_client_that_did_not_offer_them(
    site: Site, both: None, route: str
) -> None:
    person = Person()
    async with client_by(route, site, "new", **person.options) as (client, before):
        result = await client.call_tool(f"{before}roots", {})
        assert result.is_error
        assert words(await client.call_tool(f"{before}where", {})) == "accept Ada"  # this client opens addresses
        assert words(await client.call_tool(f"{before}again", {})) == "at last"
        endless = await client.call_tool(f"{before}endless", {})
        assert endless.is_error
    assert len([one for one in person.asked if one.message.endswith("Who?")]) <= 12


async def test_progress_goes_to_the_request_that_waits(site: Site, backends: None) -> None:
    heard: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    for route in ("sse", "http"):
        async with client_by(route, site, "old", **Person().options) as (client, before):
            await client.call_tool(f"{before}both", {}, progress_callback=on_progress)
            assert heard[-1] == (2.0, "I think so"), route
            heard.clear()


async def test_gateway_execute_and_call_tool_ask_too(site: Site, backends: None) -> None:
    request = {"intent": "QUERY", "action": "old.who"}
    for session in (sse_session(site, mode="legacy", **Person().options), http_session(site, **Person().options)):
        async with session as client:
            answer = await client.call_tool("gateway_execute", request)
            assert "accept Ada" in words(answer)
            inner = {"name": "gateway_execute", "arguments": request}
            assert "accept Ada" in words(await client.call_tool("call_tool", inner))


async def test_a_fresh_process_asks_too_and_spares_are_kept_by_what_their_clients_can(
    site: Site, backends: None
) -> None:
    changed(warm_spares=1)
    request = {"intent": "QUERY", "action": "old.who", "constraints": {"isolation": "subprocess"}}
    async with sse_session(site, mode="legacy", **Person().options) as client:
        for _ in range(2):
            assert "accept Ada" in words(await client.call_tool("gateway_execute", request))
    async with sse_session(site, mode="legacy") as client:
        assert "refused" in words(await client.call_tool("gateway_execute", request))
    assert pool.spares("old") == 2


async def test_another_caller_a_changed_call_and_a_wrong_state_go_on_with_nothing(site: Site, backends: None) -> None:
    """By hand: what a client gets in between, and what it may do with it."""
    name, answer = "old__who", {"question": {"action": "accept", "content": {"name": "Eve"}}}
    async with (
        http_session(site, **Person().options) as client,
        http_session(site, key=site.other_key, **Person().options) as other,
    ):
        first = await client.session.call_tool(name, {}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        assert first.input_requests is not None
        assert list(first.input_requests) == ["question"]
        repeat = {"input_responses": answer, "request_state": first.request_state, "allow_input_required": True}
        for wrong in (
            other.session.call_tool(name, {}, **repeat),
            client.session.call_tool("old__slow", {}, **repeat),
            client.session.call_tool(name, {"x": 1}, **repeat),
            client.session.call_tool(name, {}, **{**repeat, "request_state": "guess"}),
        ):
            with pytest.raises(MCPError) as refused:
                await wrong
            assert "No call waits for this answer" in str(refused.value)
        # Nothing answered: the same question again.
        same = await client.session.call_tool(name, {}, **{**repeat, "input_responses": {}})
        assert isinstance(same, types.InputRequiredResult)
        done = await client.session.call_tool(name, {}, **repeat)
        assert words(done) == "accept Eve"
        with pytest.raises(MCPError):
            await client.session.call_tool(name, {}, **repeat)  # once
    calls = in_thread(lambda: list(ToolCall.objects.filter(tool="old.who").values_list("outcome", flat=True)))
    assert len(calls) <= 1


async def test_a_question_nobody_answers_ends_and_too_many_wait_for_nobody(
    site: Site, backends: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ANSWER_SECONDS", 3.0)
    monkeypatch.setattr(asking, "MOST_OF_ONE_KEY", 2)
    async with http_session(site, **Person().options) as client:
        first, second = [await client.session.call_tool("old__who", {}, allow_input_required=True) for _ in range(2)]
        assert isinstance(second, types.InputRequiredResult)
        third = await client.session.call_tool("old__who", {}, allow_input_required=True)
        assert "Too many calls wait" in words(third)
        await asyncio.sleep(3.5)
        late = await client.session.call_tool(
            "old__who", {}, request_state=first.request_state, allow_input_required=True
        )
        assert "did not answer within" in words(late)
    assert on_server(site, _at_work()) == 0


async def test_a_question_belongs_to_the_youngest_call_and_no_deadline_runs_meanwhile(
    site: Site, backends: None
) -> None:
    """Until 2026-07-28 a question names no call: of two that are at work the later one is asked."""
    person = Person()
    person.seconds = 3.0
    async with sse_session(site, mode="legacy", **person.options) as client:
        await client.call_tool("old__again", {})  # the session is open
        changed(timeouts={"QUERY": 2500})
        waiting = asyncio.create_task(client.call_tool("old__wait", {}))
        asked = asyncio.create_task(client.call_tool("old__who", {}))
        assert words(await asked) == "accept Ada"
        assert not (await waiting).is_error


@pytest.mark.parametrize("route", ["sse", "http"])
async def test_more_and_longer_questions_than_a_client_can_read_are_refused(site: Site, both: None, route: str) -> None:
    person = Person()
    async with client_by(route, site, "old", **person.options) as (client, _):
        many = words(await client.call_tool("old__many", {})).split(", ")
        assert (many.count("accept Ada"), len(many)) == (len(person.asked), 40)
        assert 0 < len(person.asked) <= 16
        assert "asks more than" in words(await client.call_tool("old__long", {}))
        assert "asks more than" in words(await client.call_tool("new__long", {}))
        assert words(await client.call_tool("old__who", {})) == "accept Ada"  # the connection is whole


@BACKENDS
async def test_a_client_that_answers_nothing_says_nothing_of_the_backend(
    site: Site, backends: None, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "MOST_OF_ONE_KEY", 1)
    tool = f"{backend}__who"
    async with (
        http_session(site, **Person().options) as client,
        http_session(site, key=site.other_key, **Person().options) as other,
    ):
        for _ in range(8):
            await client.session.call_tool(tool, {}, allow_input_required=True)
        assert pool.breaker_state(backend) == "closed"
        assert words(await other.call_tool(tool, {})) == "accept Ada"


async def test_an_answer_of_another_shape_is_refused_and_the_question_stays(site: Site, backends: None) -> None:
    async with http_session(site, **Person().options) as client:
        first = await client.session.call_tool("old__who", {}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        }
        for action, expected in (("perhaps", "error"), ("decline", "result")):
            params = {"name": "old__who", "arguments": {}, "requestState": first.request_state, "_meta": meta}
            params["inputResponses"] = {"question": {"action": action}}
            headers = {
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28",
                "Mcp-Method": "tools/call",
                "Mcp-Name": "old__who",
            }
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            answer = await asyncio.to_thread(site.request, "POST", "/mcp", json=message, headers=headers)
            assert expected in answer.text
            assert "internal" not in answer.text


async def test_a_stopping_server_gives_up_what_waits(site: Site, backends: None) -> None:
    async with http_session(site, **Person().options) as client:
        first = await client.session.call_tool("old__who", {}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        on_server(site, asking.close())
        with pytest.raises(MCPError) as refused:
            await client.session.call_tool("old__who", {}, request_state=first.request_state)
        assert "No call waits" in str(refused.value)
    assert on_server(site, _at_work()) == 0


async def test_a_deadline_rests_as_long_as_a_question_is_open() -> None:
    async with Deadline(0.2) as deadline:
        with deadline.resting():
            await asyncio.sleep(0.15)
            with deadline.resting():
                await asyncio.sleep(0.15)
            await asyncio.sleep(0.1)
        assert deadline.rested == pytest.approx(0.4, abs=0.1)
    with pytest.raises(TimeoutError):
        async with Deadline(0.2) as deadline:
            with deadline.resting():
                await asyncio.sleep(0.3)
            await asyncio.sleep(1)
    with pytest.raises(DevFlowError), deadline.resting():  # it is over
        pass


async def _at_work() -> int:
    return sum(session.at_work for session in pool._sessions.values())
