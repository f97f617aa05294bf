"""Who is calling, in which project, and what they are shown: with real clients."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import jsonschema_rs
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.acceptance.agents import (
    HANDSHAKE,
    MODERN,
    McpAgent,
    RefusedError,
    RestAgent,
    headers_for,
    http_client_of,
    over_rest,
    sse_client_of,
)
from tests.running import RunningServer

CLIENTS = {"sse": sse_client_of, "http": http_client_of}
BOTH_ERAS = pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
AS_ANN: Any = {"devflow/agent": "ann"}
EVERY_DOOR = pytest.mark.parametrize("door", CLIENTS)


@asynccontextmanager
async def connected(
    server: RunningServer,
    project: str,
    *,
    door: str = "http",
    name: str | None = None,
    mode: str = HANDSHAKE,
    key: str | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    """A client whose calls are in `project`."""
    headers = {**headers_for(server, name, key), "X-Project": project}
    async with CLIENTS[door](server, headers=headers, mode=mode, **options) as client:
        yield client


async def names_in(server: RunningServer, project: str) -> set[str]:
    """The agents of a project; whoever looks is one of them."""
    async with over_rest(server, "onlooker") as rest:
        rest.http.headers["X-Project"] = project
        found = await rest.call("get_agent_status", {})
    return {agent["id"] for agent in found["agents"]} - {"onlooker"}


async def told(client: Client, tool: str, args: dict[str, Any] | None = None) -> dict[str, Any]:
    return await McpAgent("", client).call(tool, args or {})


# --- the agent --------------------------------------------------------------------------------------------------------


@BOTH_ERAS
@EVERY_DOOR
async def test_an_agent_is_who_its_header_says(
    door: str, mode: str, live_server_process: RunningServer, project: str
) -> None:
    async with connected(live_server_process, project, door=door, name="ann", mode=mode) as client:
        assert (await told(client, "heartbeat"))["agent_id"] == "ann"
    assert await names_in(live_server_process, project) == {"ann"}


@EVERY_DOOR
async def test_without_a_name_two_sessions_of_one_client_are_two_agents(
    door: str, live_server_process: RunningServer, project: str
) -> None:
    async with (
        connected(live_server_process, project, door=door) as one,
        connected(live_server_process, project, door=door) as other,
    ):
        names = {(await told(client, "heartbeat"))["agent_id"] for client in (one, other, one)}
    assert len(names) == 2
    assert await names_in(live_server_process, project) == names


async def test_a_caller_nothing_tells_apart_is_told_how_to_identify_itself(
    live_server_process: RunningServer, project: str
) -> None:
    for _ in range(2):
        async with connected(live_server_process, project, mode=MODERN) as client:
            answer = await client.call_tool("heartbeat", {})
            assert answer.meta is not None
            assert "X-Agent-Id" in answer.meta["devflow/identify"]
    async with connected(live_server_process, project, mode=MODERN) as client:
        answer = await client.call_tool("heartbeat", {}, meta=AS_ANN)
        assert "devflow/identify" not in (answer.meta or {})
        assert answer.structured_content is not None
        assert answer.structured_content["agent_id"] == "ann"


@BOTH_ERAS
@EVERY_DOOR
async def test_a_claim_handed_out_again_says_that_it_is_resumed(
    door: str, mode: str, live_server_process: RunningServer, project: str
) -> None:
    async with connected(live_server_process, project, door=door, name="ann", mode=mode) as client:
        made = await told(client, "create_task", {"description": "Only one", "phase_id": 2})
        first = await told(client, "claim_task", {"phase_id": 2})
        again = await told(client, "claim_task", {"phase_id": 2})
        mine = await told(client, "get_my_task")
    assert (first["id"], first["resumed"]) == (made["task_id"], False)
    assert (again["id"], again["resumed"], again["lease_token"]) == (first["id"], True, first["lease_token"])
    assert mine["id"] == first["id"]


@EVERY_DOOR
async def test_another_run_of_an_agent_does_not_get_its_claim(
    door: str, live_server_process: RunningServer, project: str
) -> None:
    async with (
        connected(live_server_process, project, door=door, name="ann") as one,
        connected(live_server_process, project, door=door, name="ann") as other,
    ):
        await told(one, "create_task", {"description": "Only one", "phase_id": 2})
        assert (await told(one, "claim_task", {"phase_id": 2}))["resumed"] is False
        assert (await told(other, "claim_task", {"phase_id": 2}))["task"] is None


@BOTH_ERAS
@EVERY_DOOR
async def test_every_answer_says_how_much_mail_waits(
    door: str, mode: str, live_server_process: RunningServer, project: str
) -> None:
    async with connected(live_server_process, project, door=door, name="ann", mode=mode) as ann:
        await told(ann, "heartbeat")
        async with over_rest(live_server_process, "bob") as bob:
            bob.http.headers["X-Project"] = project
            for text in ("one", "two"):
                await bob.call("send_message_to_agent", {"agent_id": "ann", "message": text})
        assert ((await ann.call_tool("get_tasks", {})).meta or {})["devflow/unread"] == 2
        await told(ann, "ack_message")
        assert "devflow/unread" not in ((await ann.call_tool("get_tasks", {})).meta or {})


async def test_rest_answers_say_how_much_mail_waits_too(live_server_process: RunningServer, project: str) -> None:
    async with over_rest(live_server_process, "bob") as bob, over_rest(live_server_process, "ann") as ann:
        bob.http.headers["X-Project"] = ann.http.headers["X-Project"] = project
        await ann.call("heartbeat", {})
        await bob.call("send_message_to_agent", {"agent_id": "ann", "message": "one"})
        answer = (await ann.http.post("/mcp/execute", json=ann.request("get_tasks", {}))).json()
    assert answer["unread"] == 1


# --- the project ------------------------------------------------------------------------------------------------------


@BOTH_ERAS
@EVERY_DOOR
async def test_an_ambiguous_project_is_refused_with_what_to_choose_from(
    door: str, mode: str, live_server_process: RunningServer, project: str
) -> None:
    headers = headers_for(live_server_process, f"ann-{door}-{mode}")
    async with CLIENTS[door](live_server_process, headers=headers, mode=mode) as client:
        with pytest.raises(RefusedError) as refused:
            await told(client, "get_tasks")
        assert refused.value.code == "invalid_input"
        assert "demo" in json.dumps(refused.value.told)
        assert "set_project" in json.dumps(refused.value.told)
        with pytest.raises(RefusedError) as unknown:
            await told(client, "set_project", {"project": "nowhere"})
        assert unknown.value.code == "not_found"
        await told(client, "set_project", {"project": project})
        assert (await told(client, "get_tasks"))["total"] == 0


@EVERY_DOOR
async def test_the_project_in_the_address_or_a_header_counts_for_the_call(
    door: str, live_server_process: RunningServer, project: str
) -> None:
    headers = headers_for(live_server_process, "ann")
    query = f"?project={project}"
    async with CLIENTS[door](live_server_process, headers=headers, mode=HANDSHAKE, query=query) as client:
        await told(client, "create_task", {"description": "Here", "phase_id": 2})
    async with connected(live_server_process, project, door=door, name="ann") as client:
        assert (await told(client, "get_tasks"))["total"] == 1
    async with CLIENTS[door](live_server_process, headers=headers, mode=HANDSHAKE, query="?project=nowhere") as client:
        with pytest.raises(RefusedError) as refused:
            await told(client, "get_tasks")
        assert refused.value.code == "not_found"


async def test_a_key_of_a_project_works_in_it_and_in_no_other(
    live_server_process: RunningServer, projects: Iterator[str]
) -> None:
    ours, theirs = next(projects), next(projects)
    key = live_server_process.create_key("bound", "--project", ours, "--rate", "0")["key"]
    async with http_client_of(live_server_process, headers={"X-API-Key": key}, mode=HANDSHAKE) as client:
        await told(client, "create_task", {"description": "Here", "phase_id": 2})
    async with connected(live_server_process, theirs, key=key) as client:
        with pytest.raises(RefusedError) as refused:
            await told(client, "get_tasks")
        assert refused.value.code == "not_found"
    async with connected(live_server_process, ours) as client:
        assert (await told(client, "get_tasks"))["total"] == 1


# --- what is shown ----------------------------------------------------------------------------------------------------


async def shown(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


@EVERY_DOOR
async def test_a_url_narrows_the_tools_that_are_listed(door: str, live_server_process: RunningServer) -> None:
    headers = headers_for(live_server_process, "ann")

    async def listed(query: str) -> set[str]:
        async with CLIENTS[door](live_server_process, headers=headers, mode=HANDSHAKE, query=query) as client:
            return await shown(client)

    everything = await listed("")
    agents = await listed("?toolsets=agents")
    assert {"claim_task", "get_kanban_board", "send_message_to_agent"} <= everything
    assert {"send_message_to_agent", "get_messages"} <= agents
    assert "claim_task" not in agents
    assert await listed("?toolsets=agents,workflow") >= agents | {"claim_task"}
    assert await listed("?expose=search") == {"search_tools", "call_tool"}
    assert not any("." in name for name in await listed("?names=underscore"))


@EVERY_DOOR
async def test_tools_are_found_and_called_through_search(
    door: str, live_server_process: RunningServer, project: str
) -> None:
    async with connected(live_server_process, project, door=door, name="ann", query="?expose=search") as client:
        found = await told(client, "search_tools", {"query": "create a new task"})
        create = next(tool for tool in found["tools"] if tool["name"] == "create_task")
        arguments = {"description": "Found by searching", "phase_id": 2}
        jsonschema_rs.validator_for(create["parameters"]).validate(arguments)
        made = await told(client, "call_tool", {"name": "create_task", "arguments": arguments})
        assert made["status"] == "ready"
        with pytest.raises(RefusedError) as refused:
            await told(client, "call_tool", {"name": "create_task", "arguments": {"phase_id": 2}})
        assert refused.value.code == "invalid_input"


async def test_an_unknown_exposure_is_refused_with_the_known_ones(live_server_process: RunningServer) -> None:
    headers = headers_for(live_server_process, "ann")
    async with http_client_of(live_server_process, headers=headers, mode=HANDSHAKE, query="?expose=all") as client:
        with pytest.raises(MCPError, match="direct, search"):
            await client.list_tools()


# --- the examples of the PRD ------------------------------------------------------------------------------------------


async def execute(rest: RestAgent, tool: str, args: dict[str, Any], request_id: str) -> dict[str, Any]:
    response = await rest.http.post("/mcp/execute", json={"tool": tool, "args": args, "request_id": request_id})
    answer: dict[str, Any] = response.json()
    return answer


async def test_the_prds_examples_hold(live_server_process: RunningServer, project: str) -> None:
    async with over_rest(live_server_process, "prd") as rest:
        rest.http.headers["X-Project"] = project
        response = await execute(
            rest, "create_task", {"description": "Test task", "phase_id": 2, "priority": "high"}, "test-456"
        )
        assert response["request_id"] == "test-456"
        assert response["error"] is None
        assert "task_id" in response["result"]

        task_response = await execute(rest, "create_task", {"description": "Implement auth", "phase_id": 2}, "e2e-2")
        task_id = task_response["result"]["task_id"]
        update_response = await execute(rest, "update_task_status", {"task_id": task_id, "status": "done"}, "e2e-3")
        assert update_response["result"]["status"] == "done"


async def test_the_prds_endpoints_have_its_keys(live_server_process: RunningServer) -> None:
    async with httpx.AsyncClient(base_url=live_server_process.url, headers=headers_for(live_server_process)) as http:
        tools = (await http.get("/mcp/tools")).json()["tools"]
        health = (await http.get("/mcp/health")).json()
        metrics = (await http.get("/mcp/metrics")).json()
    assert all({"name", "description", "parameters"} <= tool.keys() for tool in tools)
    assert health["status"] in ("healthy", "degraded")
    assert health["backend_services"]["workflow_engine"] == "up"
    wanted = {"requests_total", "requests_per_minute", "errors_total", "error_rate", "avg_response_time_ms", "tools"}
    assert wanted <= metrics.keys()
    assert all({"calls", "avg_time_ms"} <= tool.keys() for tool in metrics["tools"].values())
