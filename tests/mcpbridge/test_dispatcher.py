"""The pipeline: what every call, through whatever door, can rely on."""

import asyncio

import pytest

from devflow.errors import ErrorCode
from mcpbridge import dispatcher
from mcpbridge.audit import recorder
from mcpbridge.models import ApiKey, StoredAnswer, ToolCall
from mcpbridge.tooling import Caller
from tests.mcpbridge import declared
from tests.mcpbridge.conftest import MakeCaller


async def rows(name: str) -> int:
    return await ApiKey.objects.filter(name=name).acount()


async def test_a_call_answers_what_the_tool_answers(caller: Caller) -> None:
    outcome = await dispatcher.call("test_echo", {"text": "hello"}, caller)
    assert (outcome.code, outcome.value) == ("ok", {"text": "hello"})


async def test_an_unknown_tool_is_not_found_and_near_names_are_offered(caller: Caller) -> None:
    outcome = await dispatcher.call("test_ecko", {}, caller)
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.NOT_FOUND
    assert "test_echo" in outcome.error.suggestion


async def test_a_key_without_the_scope_changes_nothing(make_caller: MakeCaller) -> None:
    reader = make_caller(scopes=("read",))
    outcome = await dispatcher.call("test_make_key", {"name": "unwanted"}, reader)
    assert outcome.code == "forbidden"
    assert await rows("unwanted") == 0


@pytest.mark.parametrize(
    ("scopes", "tool", "allowed"),
    [
        (("read",), "test_count_keys", True),
        (("write",), "test_count_keys", False),
        (("write",), "test_make_key", True),
        (("read", "write"), "test_run_outside", False),
        (("execute",), "test_run_outside", True),
        (("admin",), "test_run_outside", True),
    ],
)
async def test_the_scope_of_a_key_is_compared_with_the_effect_of_a_tool(
    make_caller: MakeCaller, scopes: tuple[str, ...], tool: str, allowed: bool
) -> None:
    arguments = {} if tool == "test_run_outside" else {"name": "n"}
    outcome = await dispatcher.call(tool, arguments, make_caller(scopes=scopes))
    assert (outcome.code == "ok") is allowed


async def test_a_key_bound_to_toolsets_does_not_know_the_others(make_caller: MakeCaller) -> None:
    outcome = await dispatcher.call("test_echo", {"text": "x"}, make_caller(toolsets=["memory"]))
    assert outcome.code == "not_found"


async def test_refused_arguments_name_every_field(caller: Caller) -> None:
    outcome = await dispatcher.call("test_echo", {"txt": 1}, caller)
    assert outcome.error is not None
    assert outcome.code == "invalid_input"
    assert dict(outcome.error.details) == {"text": "is required", "txt": "unknown argument"}


async def test_a_failed_write_leaves_nothing(caller: Caller) -> None:
    outcome = await dispatcher.call("test_write_and_fail", {"name": "ghost"}, caller)
    assert outcome.code == "conflict"
    assert await rows("ghost") == 0


async def test_an_unexpected_fault_is_internal_and_tells_no_details(caller: Caller) -> None:
    outcome = await dispatcher.call("test_break_it", {}, caller)
    assert outcome.error is not None
    assert outcome.code == "internal"
    assert "secret" not in outcome.error.message
    assert caller.trace_id in outcome.error.message


async def test_a_result_outside_the_published_schema_never_reaches_a_client(caller: Caller) -> None:
    assert (await dispatcher.call("test_lie", {}, caller)).code == "internal"


async def test_a_tool_is_stopped_at_its_deadline(caller: Caller) -> None:
    assert (await dispatcher.call("test_linger", {}, caller)).code == "timeout"


async def test_a_write_that_outlives_its_deadline_is_rolled_back(caller: Caller) -> None:
    outcome = await dispatcher.call("test_write_slowly", {"name": "late"}, caller)
    assert outcome.code == "timeout"
    declared.release.set()
    # The next write waits for the transaction of the stopped one to end.
    await dispatcher.call("test_make_key", {"name": "after"}, caller)
    assert (await rows("late"), await rows("after")) == (0, 1)


async def test_a_cancelled_write_is_rolled_back(caller: Caller) -> None:
    task = asyncio.create_task(dispatcher.call("test_write_slowly", {"name": "dropped"}, caller))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    declared.release.set()
    await dispatcher.call("test_make_key", {"name": "after"}, caller)
    assert await rows("dropped") == 0


async def test_a_call_its_client_gave_up_is_in_the_log(caller: Caller) -> None:
    task = asyncio.create_task(dispatcher.call("test_linger", {}, caller))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(recorder.flush)
    row = await ToolCall.objects.aget()
    assert (row.tool, row.outcome) == ("test_linger", "timeout")


async def test_a_transient_database_fault_is_tried_again(caller: Caller) -> None:
    declared.faults.extend([declared.database_away(), declared.database_away()])
    outcome = await dispatcher.call("test_make_key", {"name": "stubborn"}, caller)
    assert outcome.value == {"count": 1}
    assert await rows("stubborn") == 1


async def test_a_database_that_stays_away_is_unavailable(caller: Caller) -> None:
    declared.faults.extend([declared.database_away() for _ in range(dispatcher.TRANSIENT_TRIES)])
    outcome = await dispatcher.call("test_count_keys", {"name": "n"}, caller)
    assert outcome.error is not None
    assert outcome.code == "unavailable"
    assert outcome.error.retry_after_ms == 1000


async def test_the_same_idempotency_key_has_one_effect_and_one_answer(caller: Caller) -> None:
    first = await dispatcher.call("test_make_key", {"name": "once"}, caller, idempotency_key="k-1")
    again = await dispatcher.call("test_make_key", {"name": "once"}, caller, idempotency_key="k-1")
    assert first.value == again.value == {"count": 1}
    assert (first.replayed, again.replayed) == (False, True)
    assert await rows("once") == 1


async def test_an_idempotency_key_with_another_body_is_a_conflict(caller: Caller) -> None:
    await dispatcher.call("test_make_key", {"name": "one"}, caller, idempotency_key="k-2")
    other = await dispatcher.call("test_make_key", {"name": "two"}, caller, idempotency_key="k-2")
    assert other.code == "conflict"
    assert await rows("two") == 0


async def test_a_failed_call_does_not_use_its_idempotency_key_up(caller: Caller) -> None:
    failed = await dispatcher.call("test_write_and_fail", {"name": "x"}, caller, idempotency_key="k-3")
    assert failed.code == "conflict"
    assert not await StoredAnswer.objects.filter(idempotency_key="k-3").aexists()


async def test_two_callers_do_not_share_idempotency_keys(make_caller: MakeCaller) -> None:
    one, two = make_caller(), make_caller()
    await dispatcher.call("test_make_key", {"name": "mine"}, one, idempotency_key="same")
    outcome = await dispatcher.call("test_make_key", {"name": "yours"}, two, idempotency_key="same")
    assert outcome.value == {"count": 1}


@pytest.mark.parametrize("key", ["", "x" * 256, "späße", "a\nb", 7])
async def test_a_malformed_idempotency_key_is_refused(caller: Caller, key: object) -> None:
    outcome = await dispatcher.call("test_make_key", {"name": "never"}, caller, idempotency_key=key)
    assert outcome.code == "invalid_input"
    assert await rows("never") == 0


async def test_parallel_repeats_of_one_call_have_one_effect(caller: Caller) -> None:
    outcomes = await asyncio.gather(
        *(dispatcher.call("test_make_key", {"name": "burst"}, caller, idempotency_key="k-4") for _ in range(16))
    )
    assert {outcome.code for outcome in outcomes} == {"ok"}
    assert await rows("burst") == 1


async def test_call_tool_is_recorded_as_the_tool_it_calls(caller: Caller) -> None:
    outcome = await dispatcher.call("call_tool", {"name": "test_echo", "arguments": {"text": "in"}}, caller)
    assert outcome.value == {"text": "in"}
    assert outcome.name == "test_echo"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"name": 1}, {"name": "test_echo", "arguments": []}, {"name": "call_tool"}, {"name": "test_echo", "x": 1}],
)
async def test_call_tool_refuses_what_it_cannot_unwrap(caller: Caller, arguments: dict[str, object]) -> None:
    assert (await dispatcher.call("call_tool", arguments, caller)).code == "invalid_input"


async def test_call_tool_is_no_way_round_a_scope(make_caller: MakeCaller) -> None:
    reader = make_caller(scopes=("read",))
    outcome = await dispatcher.call("call_tool", {"name": "test_make_key", "arguments": {"name": "x"}}, reader)
    assert outcome.code == "forbidden"


async def test_search_tools_finds_by_what_a_tool_does(caller: Caller) -> None:
    outcome = await dispatcher.call("search_tools", {"query": "say it again"}, caller)
    assert outcome.value is not None
    assert outcome.value["tools"][0]["name"] == "test_echo"


async def test_every_call_is_recorded_with_its_outcome(caller: Caller) -> None:
    await dispatcher.call("test_echo", {"text": "hello"}, caller)
    await dispatcher.call("test_make_key", {"name": "row"}, caller)
    await dispatcher.call("test_fail_with", {"code": "conflict"}, caller)
    await dispatcher.call("no_such_tool", {}, caller)
    await asyncio.to_thread(recorder.flush)
    recorded = {call.tool: call.outcome async for call in ToolCall.objects.all()}
    assert recorded == {
        "test_echo": "ok",
        "test_make_key": "ok",
        "test_fail_with": "conflict",
        "no_such_tool": "not_found",
    }


async def test_a_write_and_its_record_commit_together(caller: Caller) -> None:
    await dispatcher.call("test_make_key", {"name": "pair"}, caller)
    assert await ToolCall.objects.filter(tool="test_make_key").acount() == 1  # before any flush


async def test_a_batch_of_concurrent_reads_does_not_queue_on_one_thread(caller: Caller) -> None:
    outcomes = await asyncio.gather(*(dispatcher.call("test_count_keys", {"name": "tests"}, caller) for _ in range(40)))
    assert {outcome.code for outcome in outcomes} == {"ok"}


async def test_two_named_agents_of_one_key_do_not_get_each_others_answer(make_caller: MakeCaller) -> None:
    ada = make_caller(headers={"x-agent-id": "ada"})
    ben = ada.with_changes(agent_name="ben")
    first = await dispatcher.call("test_make_key", {"name": "same"}, ada, idempotency_key="k-5")
    second = await dispatcher.call("test_make_key", {"name": "same"}, ben, idempotency_key="k-5")
    assert (first.code, second.code) == ("ok", "conflict")
