"""The log of calls: complete, redacted, and hard to change unseen."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from devflow.ports import CallSeen
from mcpbridge import audit, dispatcher
from mcpbridge.audit import recorder
from mcpbridge.models import ApiKey, AuditCheckpoint, ToolCall
from mcpbridge.tooling import Caller
from tests.mcpbridge.conftest import MakeCaller
from workflow.models import Agent
from workflow.services import projects
from workflow.services.directory import WorkflowDirectory


async def some_calls(caller: Caller) -> None:
    for number in range(3):
        await dispatcher.call("test_echo", {"text": f"read {number}"}, caller)
        await dispatcher.call("test_make_key", {"name": f"write {number}"}, caller)
    await asyncio.to_thread(recorder.flush)


async def test_the_chain_of_a_worker_covers_reads_and_writes(caller: Caller) -> None:
    await some_calls(caller)
    assert await ToolCall.objects.filter(seal_position__isnull=False).acount() == 6
    assert await asyncio.to_thread(audit.verify) == []


async def test_a_changed_row_is_found(caller: Caller) -> None:
    await some_calls(caller)
    row = await ToolCall.objects.filter(tool="test_make_key").afirst()
    assert row is not None
    await ToolCall.objects.filter(pk=row.pk).aupdate(agent_name="somebody-else")
    assert [f"call {row.pk}" in fault for fault in await asyncio.to_thread(audit.verify)] == [True]


async def test_a_deleted_row_is_found(caller: Caller) -> None:
    await some_calls(caller)
    await ToolCall.objects.filter(seal_position=2).adelete()
    assert ["is missing" in fault for fault in await asyncio.to_thread(audit.verify)] == [True]


async def test_retention_deletes_old_calls_and_leaves_the_chain_whole(caller: Caller) -> None:
    await some_calls(caller)
    assert await asyncio.to_thread(lambda: audit.expire(retention=timedelta(0))) == 6
    assert await AuditCheckpoint.objects.acount() == 1
    await some_calls(caller)
    assert await asyncio.to_thread(audit.verify) == []


async def test_what_a_killed_worker_left_unsealed_is_sealed_later(caller: Caller) -> None:
    await some_calls(caller)
    await ToolCall.objects.filter(seal_position__gt=4).aupdate(
        seal_position=None, seal="", at=timezone.now() - timedelta(minutes=6)
    )
    assert await asyncio.to_thread(audit.seal_left_behind) == 1
    assert await asyncio.to_thread(audit.verify) == []


async def test_secrets_in_arguments_are_not_kept(caller: Caller) -> None:
    _, raw = await asyncio.to_thread(lambda: ApiKey.objects.issue(name="leak", scopes=["read"]))
    await dispatcher.call("test_echo", {"text": f"my key is {raw}"}, caller)
    await dispatcher.call("test_echo", {"text": "x", "password": "hunter2"}, caller)
    await asyncio.to_thread(recorder.flush)
    kept = [str(call.arguments) async for call in ToolCall.objects.all()]
    assert not any(raw in text or "hunter2" in text for text in kept)


async def test_long_arguments_are_shortened(caller: Caller) -> None:
    await dispatcher.call("test_echo", {"text": "x" * 50_000}, caller)
    await asyncio.to_thread(recorder.flush)
    call = await ToolCall.objects.aget()
    assert len(call.arguments["text"]) < 2100


async def test_the_last_use_of_a_key_is_noted(caller: Caller) -> None:
    await dispatcher.call("test_echo", {"text": "x"}, caller)
    await asyncio.to_thread(recorder.flush)
    key = await ApiKey.objects.aget(pk=caller.scope.key_id)
    assert key.last_used_at is not None


async def test_a_call_of_a_key_that_is_gone_meanwhile_holds_nothing_back(make_caller: MakeCaller) -> None:
    gone, stays = make_caller(), make_caller()
    await dispatcher.call("test_echo", {"text": "before the key went"}, gone)
    await ApiKey.objects.filter(pk=gone.scope.key_id).adelete()
    await dispatcher.call("test_echo", {"text": "after"}, stays)
    await asyncio.to_thread(recorder.flush)
    assert await ToolCall.objects.acount() == 2


async def test_a_row_the_database_refuses_does_not_hold_back_the_others(caller: Caller) -> None:
    await dispatcher.call("test_echo", {"text": "good"}, caller)
    await dispatcher.call("test_echo", {"text": "bad"}, caller.with_changes(trace_id=None))
    await dispatcher.call("test_echo", {"text": "good too"}, caller)
    await asyncio.to_thread(recorder.flush)
    assert [call.arguments["text"] async for call in ToolCall.objects.order_by("id")] == ["good", "good too"]
    assert recorder.lost == 1
    assert await asyncio.to_thread(audit.verify) == []


async def test_reads_are_recorded_after_another_process_sealed_this_chain(caller: Caller) -> None:
    await some_calls(caller)
    entry = await ToolCall.objects.order_by("-id").afirst()
    assert entry is not None
    entry.pk, entry.seal_position, entry.seal = None, None, ""
    entry.at = timezone.now() - timedelta(minutes=6)
    await entry.asave()  # a write whose seal failed
    assert await asyncio.to_thread(audit.seal_left_behind) == 1
    await some_calls(caller)
    assert (recorder.lost, await ToolCall.objects.acount()) == (0, 13)
    assert await asyncio.to_thread(audit.verify) == []


async def test_heartbeats_that_could_not_be_passed_on_stay_buffered(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(lambda: projects.create(slug="apollo"))
    for _ in range(3):
        await dispatcher.call("get_agent_status", {}, caller)
    faults = [OperationalError("deadlock detected")] * 2
    record_calls = WorkflowDirectory.record_calls

    def failing(self: WorkflowDirectory, agent_id: int, calls: Sequence[CallSeen]) -> None:
        if faults:
            raise faults.pop()
        record_calls(self, agent_id, calls)

    monkeypatch.setattr(WorkflowDirectory, "record_calls", failing)
    while faults:
        with suppress(OperationalError):
            await asyncio.to_thread(recorder.flush)
    await asyncio.to_thread(recorder.flush)
    agent = await Agent.objects.aget()
    assert (len(agent.observations), agent.last_action) == (3, "get agent status")
