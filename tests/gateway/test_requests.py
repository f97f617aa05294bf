"""What callers get wrong about a request: put right where it can mean one thing only, refused with advice otherwise."""

import json
from typing import Any

import pytest

from mcpbridge.gateway import protocol
from mcpbridge.gateway.sessions import pool
from mcpbridge.gateway.specs import ActionSpec, schema_fault
from mcpbridge.models import Action, ToolCall
from mcpbridge.tooling import Caller
from tests.gateway.conftest import Execute, outcome_of, register
from tests.mcpbridge.conftest import in_thread

GOOD = {"intent": "QUERY", "action": "small.echo", "params": {"text": "hi"}}

SAME_THING = [
    {"request": GOOD},
    {"arguments": {"request": GOOD}},
    {"request": json.dumps(GOOD)},
    {"intent": "query", "action": "small.echo", "params": {"text": "hi"}},
    {"intent": "QUERY", "tool_name": "small.echo", "params": {"text": "hi"}},
    {"intent": "QUERY", "tool": "small.echo", "arguments": {"text": "hi"}},
    {"intent": "QUERY", "action": "small.echo", "params": '{"text": "hi"}'},
    {"intent": "QUERY", "action": "small.echo", "params": {"params": {"text": "hi"}}},
    {"intent": "QUERY", "action": "small.echo", "params": {"arguments": '{"text": "hi"}'}},
    {"intent": "QUERY", "action": "echo", "params": {"text": "hi"}, "effect": None, "context": None},
    {"intent": "QUERY", "action": "small__echo", "params": {"text": "hi"}, "constraints": "{}"},
]


@pytest.mark.parametrize("body", SAME_THING, ids=str)
async def test_a_half_right_envelope_that_can_mean_one_thing_is_understood(
    small: Any, execute: Execute, body: dict[str, Any]
) -> None:
    answer = await execute(**body)
    assert answer["ok"], answer
    assert answer["result"]["data"] == {"result": "hi"}
    assert answer["request"] == {"intent": "QUERY", "action": "small.echo", "effect": "READ_ONLY"}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "intent"),
    ({"action": "small.echo"}, "intent"),
    ({"intent": "QUERY"}, "action"),
    ({**GOOD, "intent": "LOOK"}, "intent"),
    ({**GOOD, "intent": 1}, "intent"),
    ({**GOOD, "intent": None}, "intent"),
    ({**GOOD, "effect": "NONE"}, "effect"),
    ({**GOOD, "artifact": "HTML"}, "artifact"),
    ({**GOOD, "action": ""}, "action"),
    ({**GOOD, "action": ["small.echo"]}, "action"),
    ({**GOOD, "action": "x" * 201}, "action"),
    ({**GOOD, "command": "rm"}, "command"),
    ({**GOOD, "env": {"A": "b"}}, "env"),
    ({**GOOD, "tool": "small.count"}, "tool"),
    ({**GOOD, "arguments": {"text": "other"}}, "arguments"),
    ({**GOOD, "params": "text=hi"}, "params"),
    ({**GOOD, "params": ["hi"]}, "params"),
    ({**GOOD, "constraints": {"timeout_ms": 0}}, "constraints.timeout_ms"),
    ({**GOOD, "constraints": {"timeout_ms": -1}}, "constraints.timeout_ms"),
    ({**GOOD, "constraints": {"timeout_ms": 600_001}}, "constraints.timeout_ms"),
    ({**GOOD, "constraints": {"timeout_ms": 10**9}}, "constraints.timeout_ms"),
    ({**GOOD, "constraints": {"timeout_ms": "1000"}}, "constraints.timeout_ms"),
    ({**GOOD, "constraints": {"timeout_ms": True}}, "constraints.timeout_ms"),
    ({**GOOD, "constraints": {"retry_count": 6}}, "constraints.retry_count"),
    ({**GOOD, "constraints": {"retry_count": -1}}, "constraints.retry_count"),
    ({**GOOD, "constraints": {"isolation": "docker"}}, "constraints.isolation"),
    ({**GOOD, "constraints": {"command": "x"}}, "constraints.command"),
    ({**GOOD, "context": {"user": "root"}}, "context.user"),
    ({**GOOD, "context": {"caller": "x" * 201}}, "context.caller"),
    ({**GOOD, "context": {"project_root": ""}}, "context.project_root"),
    ({**GOOD, "context": {"project_root": "relative"}}, "context.project_root"),
    ({**GOOD, "context": {"project_root": "/nowhere/at/all"}}, "context.project_root"),
    ({**GOOD, "params": {}}, "params"),
    ({**GOOD, "params": {"text": 1}}, "text"),
    ({**GOOD, "params": {"params": {"params": {"text": "hi"}}}}, "params"),
]


@pytest.mark.parametrize(("body", "where"), REFUSED, ids=str)
async def test_a_wrong_request_is_refused_with_a_corrected_call_and_starts_nothing(
    small: Any, execute: Execute, body: dict[str, Any], where: str
) -> None:
    answer = await execute(**body)
    assert answer.keys() == {"ok", "error"}, answer
    error = answer["error"]
    assert (answer["ok"], error["type"], error["code"], error["recoverable"]) == (
        False,
        "VALIDATION",
        "invalid_input",
        True,
    )
    assert where in error["details"], error
    assert error["message"] and error["suggestion"]
    assert pool.open_sessions("small") == 0, "nothing was started"


@pytest.mark.parametrize(("body", "where"), [case for case in REFUSED if "context" not in case[1]], ids=str)
def test_the_corrected_call_is_one_that_parses(body: dict[str, Any], where: str) -> None:
    try:
        protocol.parse(body)
    except Exception as exc:
        suggestion: str = exc.suggestion  # type: ignore[attr-defined]  # a DevFlowError, or the test fails here
        protocol.parse(json.loads(suggestion.removeprefix("Send for instance: ")))


@pytest.mark.parametrize("timeout", [1, 600_000])
def test_the_bounds_of_a_timeout_are_accepted(timeout: int) -> None:
    assert protocol.parse({**GOOD, "constraints": {"timeout_ms": timeout}}).constraints.timeout_ms == timeout


async def test_a_missing_parameter_is_named_with_an_example_of_the_right_call(small: Any, execute: Execute) -> None:
    answer = await execute(intent="MODIFY", action="small.write_file", params={"name": "a"})
    assert "text" in answer["error"]["message"]
    assert '"params": {"name": "text", "text": "text"}' in answer["error"]["suggestion"]


async def test_an_unknown_action_and_backend_are_told_the_near_ones(small: Any, execute: Execute) -> None:
    for action in ("small.ecco", "smal.echo"):
        answer = await execute(intent="QUERY", action=action)
        assert (answer["error"]["type"], answer["error"]["code"]) == ("VALIDATION", "not_found")
        assert "small.echo" in answer["error"]["suggestion"]
    nothing_like_it = await execute(intent="QUERY", action="xyz.zzz")
    assert "list_gateway_actions" in nothing_like_it["error"]["suggestion"]


async def test_an_action_two_backends_have_must_be_named_in_full(small: Any, execute: Execute) -> None:
    await register("second")
    answer = await execute(intent="QUERY", action="echo", params={"text": "x"})
    assert answer["error"]["type"] == "VALIDATION"
    assert "second.echo" in answer["error"]["message"] and "small.echo" in answer["error"]["message"]
    assert (await execute(intent="QUERY", action="second.echo", params={"text": "x"}))["meta"]["mcp_name"] == "second"


async def test_a_root_outside_the_allowed_ones_is_forbidden(small: Any, execute: Execute) -> None:
    answer = await execute(**GOOD, context={"project_root": "/etc"})
    assert (answer["error"]["type"], answer["error"]["code"]) == ("PERMISSION", "forbidden")
    assert "DEVFLOW_ALLOWED_ROOTS" in answer["error"]["suggestion"]
    assert pool.open_sessions("small") == 0


HELD = {"description": "something else"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"is_enabled": False}, "forbidden"),
        ({"held": HELD}, "forbidden"),
        ({"problem": "A $ref elsewhere."}, "forbidden"),
    ],
)
async def test_an_action_that_is_off_or_held_back_cannot_be_called(
    small: Any, execute: Execute, fields: dict[str, Any], code: str
) -> None:
    def change() -> None:
        row = Action.objects.get(name="echo")
        for name, value in fields.items():
            setattr(row, name, value)
        row.save()

    in_thread(change)
    from mcpbridge.gateway.catalog import catalog

    catalog.forget()
    answer = await execute(**GOOD)
    assert (answer["error"]["type"], answer["error"]["code"]) == ("PERMISSION", code)


SCHEMAS: list[tuple[object, str]] = [
    ({"type": "object"}, ""),
    ({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}}, ""),
    ({"type": "object", "properties": {"a": {"$ref": "https://example.com/schema.json"}}}, "another place"),
    ({"type": "object", "allOf": [{"items": {"$dynamicRef": "file:///etc/passwd"}}]}, "another place"),
    ({"type": "object", "properties": {"a": {"type": "strange"}}}, "not valid"),
    ({"type": "object", "properties": {"a": {"pattern": "("}}}, "not valid"),
    ({"type": "object", "description": "x" * 300_000}, "more than"),
    (["object"], "no object"),
    (None, "no object"),
]


@pytest.mark.parametrize(("schema", "fault"), SCHEMAS, ids=lambda value: str(value)[:60])
def test_a_schema_that_cannot_be_trusted_is_refused(schema: object, fault: str) -> None:
    found = schema_fault(schema)
    assert (fault in found) if fault else found == ""


def test_a_hostile_pattern_costs_no_time() -> None:
    import time

    action = ActionSpec("b", "a", input_schema={"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}})
    started = time.perf_counter()
    with pytest.raises(Exception, match="does not match"):
        action.check({"a": "a" * 50_000 + "!"})
    assert time.perf_counter() - started < 1


async def test_every_way_in_gives_the_same_envelope(small: Any, caller: Caller) -> None:
    outcome = await outcome_of(caller, **{**GOOD, "intent": "LOOK"})
    from mcpbridge import envelopes

    mcp = envelopes.as_mcp(outcome)
    status, rest = envelopes.as_rest(outcome, "r")
    assert mcp["isError"] is True and mcp["structuredContent"] == rest["result"]
    assert (status, rest["error"]) == (422, outcome.error.message if outcome.error else "")


async def test_a_call_is_recorded_as_its_action_with_the_steps_it_took(
    small: Any, execute: Execute, project: Any
) -> None:
    await execute(**GOOD)
    await execute(intent="MODIFY", action="small.read_all", effect="MUTATING")
    from mcpbridge.audit import recorder

    in_thread(recorder.stop)
    rows = {row.tool: row for row in in_thread(lambda: list(ToolCall.objects.all()))}
    assert rows.keys() >= {"small.echo", "small.read_all"}
    assert (rows["small.read_all"].backend, rows["small.read_all"].effect) == ("small", "MUTATING")
    assert {name for name, _ in rows["small.echo"].spans} >= {"session", "call"}


async def test_a_change_with_an_idempotency_key_happens_once(small: Any, execute: Execute, caller: Caller) -> None:
    request = {"intent": "EXECUTE", "action": "small.count", "effect": "EXTERNAL_EXEC"}
    answers = [await execute(**request, idempotency_key="k-1") for _ in range(3)]
    assert [answer["result"]["data"] for answer in answers] == [{"result": 1}] * 3
    other = await execute(**{**request, "intent": "MODIFY", "effect": "MUTATING"}, idempotency_key="k-1")
    assert other["error"]["code"] == "conflict"
    fresh = await execute(**request, idempotency_key="k-2")
    assert fresh["result"]["data"] == {"result": 2}


async def test_a_refused_change_gives_its_idempotency_key_back(small: Any, execute: Execute) -> None:
    refused = await execute(intent="QUERY", action="small.launch", params={"what": "it"}, idempotency_key="k")
    assert refused["error"]["code"] == "forbidden"
    again = await execute(intent="QUERY", action="small.launch", params={"what": "it"}, idempotency_key="k")
    assert again["error"]["code"] == "forbidden", "not a conflict: nothing ran"


async def test_own_tools_answer_through_the_gateway_under_the_same_policy(small: Any, execute: Execute) -> None:
    board = await execute(intent="QUERY", action="devflow.get_kanban_board")
    assert board["meta"]["mcp_name"] == "devflow" and "columns" in board["result"]["data"]
    weak = await execute(intent="QUERY", action="create_task", params={"description": "x", "phase_id": 1})
    assert weak["error"]["details"]["effect"] == "MUTATING"
    made = await execute(intent="MODIFY", action="create_task", params={"description": "x", "phase_id": 1})
    assert made["result"]["data"]["task_id"].startswith("task-")


async def test_a_repeat_of_a_change_that_failed_is_given_the_same_failure(small: Any, execute: Execute) -> None:
    request = {"intent": "MODIFY", "action": "small.fail", "params": {"why": "of course"}}
    first = await execute(**request, idempotency_key="k")
    again = await execute(**request, idempotency_key="k")
    assert first["error"]["type"] == again["error"]["type"] == "MCP_ERROR"
    assert first["error"]["message"] == again["error"]["message"]


async def test_own_tools_give_the_artifact_that_is_asked_for(small: Any, execute: Execute) -> None:
    said = await execute(intent="QUERY", action="devflow.get_phase_info", params={"phase_id": 1}, artifact="TEXT")
    assert said["result"]["artifact_type"] == "TEXT"
    assert json.loads(said["result"]["data"]["text"])["name"]
    wrong = await execute(intent="QUERY", action="devflow.get_phase_info", params={"phase_id": 1}, artifact="BINARY")
    assert (wrong["error"]["type"], wrong["error"]["code"]) == ("VALIDATION", "invalid_input")
