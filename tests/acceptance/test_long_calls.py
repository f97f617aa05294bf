"""Progress and cancellation with the official client, over every HTTP door, on both ASGI servers."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.acceptance.agents import HANDSHAKE, MODERN, headers_for, http_client_of, sse_client_of
from tests.acceptance.serving import serving
from tests.running import RunningServer

CLIENTS = {"sse": sse_client_of, "http": http_client_of}


@pytest.fixture(scope="module", params=["uvicorn", "daphne"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("long") / "home"
    with serving(home, "tests.acceptance.asgi:application", server=request.param) as running:
        yield running


@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("door", CLIENTS)
async def test_progress_arrives_in_order_before_the_answer(door: str, mode: str, server: RunningServer) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with CLIENTS[door](server, headers=headers_for(server, "walker"), mode=mode) as client:
        answer = await client.call_tool("count_aloud", {"steps": 3}, progress_callback=on_progress)
        assert answer.structured_content == {"text": "counted"}
        assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@pytest.mark.parametrize(("door", "mode"), [("sse", HANDSHAKE), ("sse", MODERN), ("http", MODERN)])
async def test_a_client_that_gives_up_stops_its_call(door: str, mode: str, server: RunningServer) -> None:
    name = f"{door}-{mode}"
    async with CLIENTS[door](server, headers=headers_for(server, "waiter"), mode=mode) as client:
        calling = asyncio.create_task(client.call_tool("hold", {"name": name}))
        assert not (await client.call_tool("was_started", {"name": name})).is_error
        calling.cancel()
        assert not (await client.call_tool("was_cancelled", {"name": name})).is_error
        assert not (await client.call_tool("heartbeat", {})).is_error
