"""What a caller's hurry, a hostile definition or a request inside a request cannot do to others."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devflow.config import PROJECT_ROOT
from devflow.errors import DevFlowError, ErrorCode
from mcpbridge import dispatcher
from mcpbridge.gateway import discovery
from mcpbridge.gateway.artifacts import shaped
from mcpbridge.gateway.catalog import backend_spec, catalog
from mcpbridge.gateway.changes import look_at
from mcpbridge.gateway.conversing import Session
from mcpbridge.gateway.sessions import pool
from mcpbridge.gateway.specs import ActionSpec
from mcpbridge.models import Action, Backend
from mcpbridge.tooling import Caller
from tests.gateway.conftest import Execute, outcome_of, register
from tests.gateway.faulty import GONE_SECONDS, faulty
from tests.mcpbridge.conftest import in_thread
from workflow.models import Gate, Project

ACTION = ActionSpec(backend="b", name="a")


def change(name: str, **fields: Any) -> None:
    def write() -> None:
        row = Action.objects.get(name=name)
        for field, value in fields.items():
            setattr(row, field, value)
        row.save()

    in_thread(write)
    catalog.forget()


# --- hurry ----------------------------------------------------------------------------------------------------------


async def test_callers_in_a_hurry_do_not_close_a_backend_to_others(
    small: Backend, execute: Execute, make_caller: Callable[..., Caller]
) -> None:
    for _ in range(6):
        hurried = await execute(
            intent="QUERY", action="small.wait", params={"seconds": 5}, constraints={"timeout_ms": 20}
        )
        assert hurried["error"]["type"] == "TIMEOUT"
    answer = await execute(by=make_caller("read"), intent="QUERY", action="small.echo", params={"text": "x"})
    assert answer["ok"], answer


async def test_waiting_for_a_place_says_nothing_of_the_backend(gateway: None, execute: Execute) -> None:
    spec = await faulty("healthy", timeouts={"QUERY": 50})
    async with pool.place(spec):
        for _ in range(spec.concurrency - 1):
            await pool.place(spec).acquire()
        for _ in range(6):
            waited = await execute(intent="QUERY", action="healthy.echo")
            assert waited["error"]["type"] == "TIMEOUT"
    assert pool.breaker(spec).state == "closed"


async def test_a_change_that_ran_out_of_time_at_the_gate_gives_its_marker_back(
    small: Backend, execute: Execute, project: Any, tmp_path: Path
) -> None:
    in_thread(lambda: Project.objects.filter(pk=project.id).update(gates_enabled=True))
    assert (await execute(intent="ANALYZE", action="small.echo", params={"text": "x"}))["ok"]
    request = {"intent": "MODIFY", "action": "small.write_file"}
    params = {"name": str(tmp_path / "made"), "text": "x"}
    for _ in range(5):
        hurried = await execute(**request, params=params, constraints={"timeout_ms": 1})
        assert hurried["error"]["type"] in ("TIMEOUT", "PERMISSION")  # or another's marker is on its way back

    assert not (tmp_path / "made").exists()
    # The marker may be taken after its call has ended, and given back after that: what counts is that it comes back.
    end = time.monotonic() + GONE_SECONDS
    while not (answer := await execute(**request, params=params))["ok"]:
        assert answer["error"]["type"] == "PERMISSION"
        assert time.monotonic() < end, "the marker is lost"
        await asyncio.sleep(0.05)


async def test_a_key_that_may_only_read_leaves_no_marker(
    small: Backend, execute: Execute, project: Any, make_caller: Callable[..., Caller]
) -> None:
    in_thread(lambda: Project.objects.filter(pk=project.id).update(gates_enabled=True))
    reader = make_caller("read", agent="reader")
    assert (await execute(by=reader, intent="ANALYZE", action="small.echo", params={"text": "x"}))["ok"]
    assert not in_thread(Gate.objects.exists)


# --- what stands behind a call --------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["lookup", "references"])
async def test_a_held_back_action_is_not_asked_beside_a_change_either(
    small: Backend, execute: Execute, role: str, tmp_path: Path
) -> None:
    change("write_file", **{role: {"action": "launch", "params": {"what": "{text}"}}})
    change("launch", held={"name": "launch"})
    params = {"name": str(tmp_path / "made"), "text": "x"}
    refused = await execute(intent="MODIFY", action="small.write_file", params=params)
    assert refused["error"]["type"] == "PERMISSION"
    assert "small.launch is held back" in refused["error"]["message"]
    assert not (tmp_path / "made").exists()
    change("launch", held=None, is_enabled=False)  # for callers; the catalog may ask it all the same
    assert (await execute(intent="MODIFY", action="small.write_file", params=params))["ok"]


async def test_a_weak_intent_over_one_of_our_own_changes_is_refused(gateway: None, execute: Execute) -> None:
    refused = await execute(
        intent="QUERY", effect="MUTATING", action="devflow.set_project", params={"project": "gateway"}
    )
    assert refused["error"]["type"] == "PERMISSION"
    assert '"intent": "MODIFY"' in refused["error"]["suggestion"]


async def test_a_change_inside_a_request_keeps_the_request_s_idempotency_key(gateway: None, execute: Execute) -> None:
    await faulty("hang", timeouts={"MODIFY": 300})
    task = {"query": 'hang.change {"text": "x"}', "allow_effects": ["MUTATING"]}
    request = {"intent": "EXECUTE", "action": "devflow.orchestrate_task", "params": task}
    first = await execute(**request, idempotency_key="once")
    assert first["error"]["code"] == "timeout"
    again = await execute(**request, idempotency_key="once")
    assert again["error"]["code"] == "conflict"  # nobody knows what the first did


async def test_a_session_that_was_closed_meanwhile_is_lost_not_a_fault_of_ours(small: Backend) -> None:
    session = Session(backend_spec(small), None)
    await session.client()
    await session.close()
    with pytest.raises(DevFlowError) as lost:
        await session.request("tools/list", None, timeout=5)
    assert lost.value.code is ErrorCode.UNAVAILABLE


async def test_arguments_called_args_reach_a_tool_as_they_are(small: Backend, caller: Caller) -> None:
    change("whoami", input_schema={"type": "object"})
    tool = await dispatcher.call("small__whoami", {"args": {"x": 1}}, caller)
    assert tool.error is None
    change("echo", input_schema={"type": "object"})
    refused = await dispatcher.call("small__echo", {"params": {"text": "inner"}}, caller)
    assert refused.error is not None  # the backend itself refuses it; only the gateway's envelope is read leniently


# --- hostile definitions --------------------------------------------------------------------------------------------

LISTING = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "instructions": "a\\0b"}
        about["serverInfo"] = {"name": "x\\0", "version": "1"}
        result = about if asked["method"] == "initialize" else {"tools": json.loads(sys.argv[1])}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


async def test_tools_that_no_row_can_hold_are_left_out_and_the_others_kept(gateway: None) -> None:
    plain = {"type": "object"}
    listed = [
        {"name": "good", "inputSchema": plain},
        {"name": "a\0b", "inputSchema": plain},
        {"name": "described", "description": "\0", "inputSchema": plain},
        {"name": "deep", "inputSchema": {**plain, "properties": {"x": {"enum": ["\0"]}}}},
        {"name": "n" * 129, "inputSchema": plain},
    ]
    args = ["-c", LISTING, json.dumps(listed)]
    row = in_thread(lambda: Backend.objects.create(backend_id="odd", command=sys.executable, args=args))
    found = await discovery.refresh(backend_spec(row))
    assert not isinstance(found, Exception)
    assert [name for (name,) in in_thread(lambda: list(Action.objects.values_list("name")))] == ["good"]
    row = in_thread(lambda: Backend.objects.get())
    assert (row.server_info["name"], row.server_info["instructions"]) == ("x", "ab")


def test_a_pattern_that_looks_around_takes_no_seconds() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "(?=a)(a*)*b"}}}
    began = time.process_time()
    with pytest.raises(DevFlowError):
        ActionSpec(backend="b", name="a", input_schema=schema).check({"x": "a" * 50_000 + "!"})
    assert time.process_time() - began < 2


def test_a_schema_that_refers_to_itself_twice_takes_no_seconds() -> None:
    one = {"properties": {"a": {"$ref": "#"}}}
    schema = {"type": "object", "anyOf": [{**one, "required": ["x"]}, {**one, "required": ["y"]}]}
    nested: dict[str, Any] = {}
    for _ in range(16):
        nested = {"a": nested}
    began = time.process_time()
    with pytest.raises(DevFlowError) as refused:
        ActionSpec(backend="b", name="a", input_schema=schema).check(nested)
    assert time.process_time() - began < 1
    assert "does not fit the schema" in refused.value.message


@pytest.mark.parametrize(("line", "is_good"), [("x = [1, 2, 3]\n", True), ("x = [1, 2, 3\ny\n", False)])
async def test_much_python_is_looked_at_without_holding_others_up(line: str, is_good: bool) -> None:
    wire = {"content": [{"type": "text", "text": line * 30_000}]}
    longest, last = 0.0, time.monotonic()
    looking = asyncio.create_task(shaped(wire, "CODE_PY", root=None, source=ACTION))
    while not looking.done():
        await asyncio.sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert longest < 0.5
    if is_good:
        assert (await looking)[1] == "CODE_PY"
    else:
        with pytest.raises(DevFlowError, match="it is no Python"):
            await looking


async def test_a_look_at_a_result_ends_with_the_deadline_of_its_call() -> None:
    wire = {"content": [{"type": "text", "text": "x = [1, 2, 3]\n" * 300_000}]}
    began = time.monotonic()
    with pytest.raises(DevFlowError, match="in time"):
        await shaped(wire, "CODE_PY", root=None, source=ACTION, seconds=-5)
    assert time.monotonic() - began < 3


def test_a_composite_cannot_take_the_name_of_a_backend_s_tool(transactional_db: None) -> None:
    from mcpbridge.gateway import composites

    with pytest.raises(DevFlowError) as refused:
        in_thread(lambda: composites.save("memory__read", "Reads.", {}, [{"id": "a", "action": "devflow.get_tasks"}]))
    assert "__" in refused.value.details["name"]


async def test_a_question_back_is_an_error_not_an_empty_success(gateway: None, execute: Execute) -> None:
    await register("asking", args=[str(PROJECT_ROOT / "tests" / "fakes" / "asking_backend.py")])
    answer = await execute(intent="MODIFY", action="asking.who")
    assert answer["error"]["type"] == "MCP_ERROR"
    assert "a question that nobody here can answer" in answer["error"]["message"]


async def test_a_change_is_tried_again_only_where_its_answer_is_kept(gateway: None, caller: Caller) -> None:
    dying = [sys.executable, "-c", "raise SystemExit(3)"]
    await faulty("gone", command=dying[0], args=dying[1:])
    request = {"intent": "MODIFY", "action": "gone.change", "constraints": {"retry_count": 1}}
    plain = await outcome_of(caller, **request)
    kept = await outcome_of(caller, "key", **request)
    assert "backoff" not in dict(plain.facts["spans"])
    assert "backoff" in dict(kept.facts["spans"])


async def test_definitions_under_a_condition_are_among_the_affected_symbols(tmp_path: Path) -> None:
    source = "try:\n    import x\nexcept ImportError:\n    def load(): return {}\n"
    source += "if True:\n    class Cart:\n        size = {}\n"
    (tmp_path / "shop.py").write_text(source.format(1, 1), encoding="utf-8")
    before = await look_at(str(tmp_path))
    (tmp_path / "shop.py").write_text(source.format(2, 22), encoding="utf-8")
    look = await before.compared()
    assert look.symbols == ["shop.py:Cart", "shop.py:load"]
