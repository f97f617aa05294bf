"""One request and its answer, without a server: who gives up when."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp.types import JSONRPCNotification, JSONRPCRequest

from devflow.errors import DevFlowError
from devflow.events import LiveEvent
from mcpbridge.transports import exchange
from mcpbridge.transports.exchange import CANCELLED, Exchange

Work = Callable[[], Awaitable[dict[str, Any]]]
NOBODY: Any = None


class Client:
    """What the ASGI server gives an exchange, and what it was sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(part.get("body", b"") for part in self.sent)


def asked(client: Client, work: Work, *, identifier: int | str = 1, session: str = "s") -> Exchange:
    message = JSONRPCRequest(jsonrpc="2.0", id=identifier, method="tools/call", params={})
    made = Exchange(message, {"type": "http", "headers": []}, client.receive, client.send, session=session)

    async def outcome(server: object, version: str) -> dict[str, Any]:
        return {"result": await work()}

    made._outcome = outcome  # type: ignore[method-assign]  # the SDK's part
    return made


async def begun(made: Exchange) -> "asyncio.Task[None]":
    task = asyncio.create_task(made.answer(NOBODY, "2025-11-25"))
    await asyncio.sleep(0)
    return task


async def for_ever() -> dict[str, Any]:
    await asyncio.sleep(60)
    return {}


@pytest.mark.parametrize("leaves", [True, False])
async def test_giving_up_while_a_deadline_passes_is_not_lost(leaves: bool) -> None:
    client = Client()
    limits: list[asyncio.Timeout] = []

    async def work() -> dict[str, Any]:
        try:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                await asyncio.sleep(60)
        except TimeoutError:
            await asyncio.sleep(60)  # it would go on
        return {}

    made = asked(client, work)
    task = await begun(made)
    limits[0].reschedule(0)  # both in one turn of the loop
    if leaves:
        client.gone.set()
    else:
        exchange.cancel("s", 1)
    await asyncio.wait_for(task, 5)
    assert task.cancelling() == 0
    assert client.sent == [] if leaves else b"-32800" in client.body


async def test_a_request_is_cancelled_by_its_own_client_and_id_from_any_process() -> None:
    clients = [Client() for _ in range(4)]
    named: list[tuple[int | str, str]] = [(1, "s"), ("1", "s"), (1, "other"), (1, "")]
    tasks = [
        await begun(asked(client, for_ever, identifier=identifier, session=session))
        for client, (identifier, session) in zip(clients, named, strict=True)
    ]
    exchange.cancel("s", 2)
    exchange.cancel("", 1)
    exchange.hear(LiveEvent(CANCELLED, 0, json.dumps(["s", 1])))
    exchange.hear(LiveEvent(CANCELLED, 0, json.dumps(["s", 1])))
    await asyncio.wait_for(tasks[0], 5)
    assert json.loads(clients[0].body)["error"]["code"] == -32800
    assert not any(task.done() for task in tasks[1:])
    for client in clients[1:]:
        client.gone.set()
    await asyncio.gather(*tasks)
    assert exchange._at_work == {}


async def test_a_server_that_stops_ends_the_request_as_it_ends_any() -> None:
    task = await begun(asked(Client(), for_ever))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert exchange._at_work == {}


async def test_what_was_said_before_makes_the_answer_a_stream_that_a_leaving_client_ends() -> None:
    client = Client()

    async def work() -> dict[str, Any]:
        await made.notify("notifications/message", {"data": float("nan")})
        return await for_ever()

    made = asked(client, work)
    task = await begun(made)
    while not client.body:
        await asyncio.sleep(0)
    client.gone.set()
    await task
    start, event = client.sent
    assert (b"content-type", b"text/event-stream") in start["headers"]
    assert json.loads(event["body"].split(b"data: ")[1])["params"] == {"data": None}
    with pytest.raises(DevFlowError):
        await made.send({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create"})


async def test_half_of_a_surrogate_pair_is_escaped() -> None:
    client = Client()

    async def work() -> dict[str, Any]:
        return {"text": "\ud800 é"}

    await asked(client, work).answer(NOBODY, "2025-11-25")
    assert json.loads(client.body)["result"] == {"text": "\ud800 é"}


@pytest.mark.parametrize("params", [None, {}, {"requestId": True}, {"requestId": None}, {"requestId": "x" * 1001}])
def test_a_cancellation_of_nothing_says_nothing(params: dict[str, Any] | None) -> None:
    said = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)
    assert exchange.cancelled(said) is None
    assert exchange.cancelled(JSONRPCNotification(jsonrpc="2.0", method="notifications/other")) is None
    good = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": "x" * 1000})
    assert exchange.cancelled(good) == "x" * 1000
