"""Composite tools: checked when saved, versioned, run step by step under the caller's own key."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from devflow.errors import DevFlowError
from mcpbridge import dispatcher
from mcpbridge.envelopes import Outcome
from mcpbridge.gateway import catalog, composites
from mcpbridge.gateway.composed import composed, filled
from mcpbridge.models import Action, Backend, CompositeTool
from mcpbridge.registry import registry
from mcpbridge.tooling import Caller, Effect
from tests.mcpbridge.conftest import in_thread

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ECHO = {"id": "say", "action": "small.echo", "params": {"text": "{{input.text}}"}}
AGAIN = {"id": "again", "action": "small.echo", "params": {"text": "{{say.result}}, {{ say.result }}!"}}
Call = Callable[..., Awaitable[Outcome]]


async def save(name: str = "twice", steps: Any = None, schema: Any = None, **more: Any) -> CompositeTool:
    made = await asyncio.to_thread(
        in_thread, lambda: composites.save(name, "Say it twice.", schema or TEXT, steps or [ECHO, AGAIN], **more)
    )
    composed.forget()
    return made


async def retire(name: str, version: int | None = None) -> list[CompositeTool]:
    retired = await asyncio.to_thread(in_thread, lambda: composites.retire(name, version))
    composed.forget()
    return retired


async def listed(caller: Caller) -> list[str]:
    await registry.refresh()
    return [tool.name for tool in registry.shown(caller)]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    composed.__init__()  # type: ignore[misc]  # a new process knows nothing


@pytest.fixture
def call(small: Backend, caller: Caller) -> Call:
    async def run(name: str, *, by: Caller | None = None, key: str | None = None, **arguments: Any) -> Outcome:
        composed.forget()
        return await dispatcher.call(name, arguments, by or caller, idempotency_key=key)

    return run


async def test_a_saved_composite_is_a_tool_that_hands_answers_on(call: Call, caller: Caller) -> None:
    await save()
    assert "twice" in await listed(caller)
    outcome = await call("twice", text="ha")
    assert outcome.value == {
        "result": {"result": "ha, ha!"},
        "steps": {"say": {"result": "ha"}, "again": {"result": "ha, ha!"}},
    }
    assert outcome.tool is not None
    assert outcome.tool.effect is Effect.READ_ONLY
    assert [name for name, _ in outcome.facts["spans"]] == ["say: small.echo", "again: small.echo"]


async def test_arguments_are_checked_against_its_own_schema(call: Call) -> None:
    await save()
    refused = await call("twice", text=5)
    assert refused.error is not None
    assert (refused.code, list(refused.error.details)) == ("invalid_input", ["text"])
    assert (await call("twice")).code == "invalid_input"


async def test_a_change_makes_the_next_version_and_old_ones_answer_until_they_are_retired(
    call: Call, caller: Caller
) -> None:
    assert (await save()).version == 1
    assert (await save()).version == 1  # the same again
    assert (await save(steps=[ECHO])).version == 2
    assert [name for name in await listed(caller) if name.startswith("twice")] == ["twice"]
    assert list(((await call("twice", text="a")).value or {})["steps"]) == ["say"]
    assert list(((await call("twice_v1", text="a")).value or {})["steps"]) == ["say", "again"]
    assert (await call("twice_v2", text="a")).code == "ok"
    await retire("twice", 2)
    assert list(((await call("twice", text="a")).value or {})["steps"]) == ["say", "again"]
    assert (await call("twice_v2", text="a")).code == "not_found"
    await retire("twice")
    assert (await call("twice", text="a")).code == "not_found"
    assert (await save(steps=[ECHO])).version == 3  # a number never comes again
    with pytest.raises(DevFlowError, match="was not found"):
        await retire("never_there")


async def test_its_effect_is_the_strongest_of_its_steps_as_the_catalog_says_now(
    call: Call, caller: Caller, make_caller: Callable[..., Caller]
) -> None:
    launch = {"id": "go", "action": "small.launch", "params": {"what": "{{say.result}}"}}
    await save("go", [ECHO, launch])
    await registry.refresh()
    tool = registry.find("go")
    assert tool is not None
    assert tool.effect is Effect.EXTERNAL_EXEC
    writer = await asyncio.to_thread(make_caller, "read", "write")
    assert "go" not in await listed(writer)
    assert (await call("go", by=writer, text="x")).code == "forbidden"

    def lower() -> None:
        row = Action.objects.get(name="launch")
        row.effect_override = "MUTATING"
        row.save()

    await asyncio.to_thread(in_thread, lower)
    catalog.catalog.forget()
    assert "go" in await listed(writer)


async def test_a_step_that_fails_stops_it_and_says_which_and_what_was_done(call: Call) -> None:
    fail = {"id": "fail", "action": "small.fail", "params": {"why": "no {{say.result}} today"}}
    await save("stops", [ECHO, fail, AGAIN])
    outcome = await call("stops", text="luck")
    assert outcome.error is not None
    assert outcome.code == "backend_error"
    assert "stopped at its step fail (small.fail)" in outcome.error.message
    assert outcome.error.details["answers"] == {"say": {"result": "luck"}}
    missing = {"id": "next", "action": "small.echo", "params": {"text": "{{say.nothing.here}}"}}
    await save("misses", [ECHO, missing])
    outcome = await call("misses", text="x")
    assert outcome.error is not None
    assert "there is no nothing; there is: result" in outcome.error.message


async def test_a_step_that_is_held_back_makes_it_unavailable_with_the_reason(call: Call) -> None:
    await save()

    def hold() -> None:
        row = Action.objects.get(name="echo")
        row.held = {"name": "echo"}
        row.save()

    await asyncio.to_thread(in_thread, hold)
    catalog.catalog.forget()
    outcome = await call("twice", text="x")
    assert outcome.error is not None
    assert outcome.code in ("unavailable", "forbidden")
    assert "held back" in outcome.error.message


async def test_devflows_own_tools_are_steps_as_well(call: Call) -> None:
    board = {"id": "board", "action": "devflow.get_kanban_board", "params": {}}
    await save("look", [ECHO, board])
    outcome = await call("look", text="x")
    assert outcome.code == "ok"
    assert "columns" in str(outcome.value)
    create = {"id": "note", "action": "devflow.store_memory", "params": {"content": "{{input.text}}"}}
    if registry.find("store_memory"):
        await save("keep", [create])
        tool = registry.find("keep") or (await listed_tool("keep"))
        assert tool.effect is Effect.MUTATING


async def listed_tool(name: str) -> Any:
    await registry.refresh()
    return registry.find(name)


async def test_a_change_with_an_idempotency_key_happens_once(call: Call, tmp_path: Path) -> None:
    write = {
        "id": "write",
        "action": "small.write_file",
        "params": {"name": str(tmp_path / "{{input.text}}"), "text": "x"},
    }
    await save("writes", [write])
    first = await call("writes", key="k", text="one")
    assert first.code == "ok"
    (tmp_path / "one").unlink()
    again = await call("writes", key="k", text="one")
    assert (again.value, again.replayed) == (first.value, True)
    assert not (tmp_path / "one").exists()


async def test_what_cannot_work_is_refused_when_it_is_saved(call: Call) -> None:
    async def refused(name: str = "x", steps: Any = None, schema: Any = None) -> dict[str, Any]:
        with pytest.raises(DevFlowError) as caught:
            await save(name, steps, schema)
        return dict(caught.value.details)

    assert "name" in await refused("Bad Name")
    assert "name" in await refused("x_v2")
    assert "taken" in (await refused("get_kanban_board"))["name"]
    assert "input_schema" in await refused(schema={"type": "object", "$ref": "https://elsewhere.example"})
    assert "input_schema" in await refused(schema={"type": "string"})
    assert "steps" in await refused(steps=[ECHO] * 21)
    assert "steps.1.id" in await refused(steps=[ECHO, ECHO])
    assert "steps.0.action" in await refused(steps=[{**ECHO, "action": "small.nothing"}])
    for action in ("gateway_execute", "devflow.call_tool"):
        assert "steps.0.action" in await refused(steps=[{**ECHO, "action": action}])
    assert (
        "earlier step again" in (await refused(steps=[{**ECHO, "params": {"text": "{{again.x}}"}}]))["steps.0.params"]
    )
    assert "no property" in (await refused(steps=[{**ECHO, "params": {"text": "{{input.name}}"}}]))["steps.0.params"]
    assert "steps.0.params" in await refused(steps=[{**ECHO, "params": {"text": "{{ 1 + 1 }}"}}])
    assert "steps.0.more" in await refused(steps=[{**ECHO, "more": 1}])
    assert "steps.0" in await refused(steps=["echo"])
    await save("inner", [ECHO])
    await registry.refresh()
    assert "steps.0.action" in await refused(steps=[{**ECHO, "action": "inner"}])
    assert "steps.0.action" in await refused(steps=[{**ECHO, "action": "devflow.inner"}])


async def test_steps_cost_the_keys_budget(call: Call, make_caller: Callable[..., Caller]) -> None:
    from mcpbridge import ratelimit

    await save()
    slow = (await asyncio.to_thread(make_caller)).with_changes(rate_per_minute=1)
    allowed = ratelimit.allowance(1)
    outcomes = [(await call("twice", by=slow, text="x")).code for _ in range(allowed // 2 + 1)]
    assert outcomes == ["ok"] * (allowed // 2) + ["rate_limited"]


def test_placeholders_keep_types_and_are_never_looked_at_twice() -> None:
    answers = {"input": {"n": 3, "text": "{{secret.x}}"}, "find": {"items": [{"name": "a"}, {"name": "b"}]}}
    assert filled({"n": "{{input.n}}", "s": "n is {{input.n}}"}, answers) == {"n": 3, "s": "n is 3"}
    assert filled("{{find.items.1.name}}", answers) == "b"
    assert filled(["{{find.items}}"], answers) == [[{"name": "a"}, {"name": "b"}]]
    assert filled("{{input.text}}", answers) == "{{secret.x}}"
    assert filled({"a": "{{input.more}}", "b": 1}, answers, frozenset({"more"})) == {"b": 1}
    for wrong in ("{{find.items.7}}", "{{find.items.x}}", "{{input.more}}"):
        with pytest.raises(DevFlowError):
            filled(wrong, answers)
