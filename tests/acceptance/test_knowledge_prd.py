"""The PRD's own tests of its tools, against the demo project, by every door a client has."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.agents import HTTP_DOORS, PROCESS_DOORS, Agent, Checked, over_stdio
from tests.acceptance.library import eventually, library
from tests.running import RunningServer, running

STDIO_BRIDGE = PROCESS_DOORS["stdio-bridge"]
DOORS = {**HTTP_DOORS, "stdio-bridge": STDIO_BRIDGE}
READ_SECONDS = 60


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A first start with the demo project."""
    with running(tmp_path_factory.mktemp("prd") / "home") as server:
        yield server


async def the_unit_tests(agent: Agent) -> None:
    """`test_search_knowledge_tool` and `test_create_task_tool`."""
    found = await agent.call("search_knowledge", {"query": "authentication", "top_k": 5})
    assert 0 < len(found["results"]) <= 5
    made = await agent.call("create_task", {"description": "Test task", "phase_id": 2, "priority": "high"})
    assert "task_id" in made


async def the_end_to_end_test(agent: Agent) -> None:
    """`test_end_to_end_workflow`: search, create, update."""
    found = await agent.call("search_knowledge", {"query": "authentication patterns"})
    assert len(found["results"]) > 0
    task = await agent.call("create_task", {"description": "Implement auth", "phase_id": 2})
    updated = await agent.call("update_task_status", {"task_id": task["task_id"], "status": "done"})
    assert updated["status"] == "done"


def test_the_demo_is_searchable_right_after_the_first_start(demo: RunningServer) -> None:
    with library(demo) as reader:
        found = eventually(
            lambda: reader.search("authentication patterns")["results"], "the demo answers", seconds=READ_SECONDS
        )
        assert found[0]["source"] == "Signing in"
        listed = reader.wait_for_all(seconds=READ_SECONDS)
        assert {one["status"] for one in listed["sources"]} == {"active"}
        again = reader.search("authentication patterns")
        assert again["results"][0]["source"] == "Signing in"
        assert (again["degraded"], again["reason"]) == (False, "")
        assert again["total_results"] == len(again["results"])
        assert again["search_time_ms"] >= 0


@pytest.mark.parametrize("door", DOORS)
async def test_the_prds_tests_hold(door: str, demo: RunningServer) -> None:
    async with AsyncExitStack() as stack:
        agent = Checked(await stack.enter_async_context(DOORS[door](demo, f"prd-{door}")))
        await the_unit_tests(agent)
        await the_end_to_end_test(agent)


@pytest.mark.slow
async def test_the_prds_tests_hold_on_stdio_in_front_of_a_data_directory(tmp_path: Path) -> None:
    """`devflow mcp` alone, on an empty data directory: it makes the demo, reads it and answers."""
    async with over_stdio(tmp_path / "alone", "prd-alone") as opened:
        agent = Checked(opened)
        await _until_found(agent)
        await the_unit_tests(agent)
        await the_end_to_end_test(agent)


async def _until_found(agent: Agent) -> None:
    import asyncio

    async with asyncio.timeout(READ_SECONDS):
        while not (await agent.call("search_knowledge", {"query": "authentication patterns"}))["results"]:
            await asyncio.sleep(0.1)


async def test_every_key_the_prd_names_is_in_the_answers(demo: RunningServer) -> None:
    async with DOORS["execute"](demo, "prd-keys") as opened:
        agent = Checked(opened)
        found = await agent.call(
            "search_knowledge",
            {
                "query": "How to implement JWT authentication?",
                "mode": "reranked",
                "filters": {"tags": ["authentication", "security"]},
                "include_code_examples": True,
            },
        )
        assert {"results", "total_results", "search_time_ms"} <= found.keys()
        assert {"content", "source", "url", "score", "metadata", "code_examples"} <= found["results"][0].keys()
        assert any(hit["code_examples"] for hit in found["results"])
        examples = await agent.call("get_code_examples", {"topic": "JWT token validation", "language": "python"})
        assert examples["examples"]
        assert {"code", "language", "context", "source", "url"} <= examples["examples"][0].keys()
        listed = (await agent.call("list_knowledge_sources", {}))["sources"]
        assert all(
            {"id", "title", "type", "url", "tags", "chunk_count", "last_updated"} <= one.keys() for one in listed
        )
        info = await agent.call("get_source_info", {"source_id": listed[0]["id"]})
        assert {
            *("id", "title", "description", "type", "url", "tags", "priority"),
            *("chunk_count", "created_at", "updated_at", "metadata"),
        } <= info.keys()
        await the_memory_examples(agent)


async def the_memory_examples(agent: Agent) -> None:
    saved: dict[str, Any] = await agent.call(
        "save_memory",
        {
            "content": "Found that authentication caching pattern reduces database queries by 60%. Applied to all "
            "API routes with significant performance improvement.",
            "category": "pattern",
            "tags": ["performance", "caching", "authentication"],
        },
    )
    assert saved["status"] == "saved"
    found = await agent.call("query_memories", {"query": "authentication caching", "category": "pattern"})
    assert saved["memory_id"] in {one["memory_id"] for one in found["memories"]}
    assert {"content", "category", "tags", "created_at", "score"} <= found["memories"][0].keys()
    deleted = await agent.call("delete_memory", {"memory_id": saved["memory_id"]})
    assert deleted == {"memory_id": saved["memory_id"], "status": "deleted"}
