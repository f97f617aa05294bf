"""Each intent x effect x scope x isolation x gate state answers as written."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from devflow.errors import DevFlowError
from mcpbridge import dispatcher
from mcpbridge.gateway import calling, policy
from mcpbridge.gateway.catalog import catalog
from mcpbridge.gateway.protocol import GatewayRequest
from mcpbridge.gateway.specs import ActionSpec, BackendSpec
from mcpbridge.models import Action
from mcpbridge.tooling import Caller, Effect, Intent
from tests.gateway.conftest import Execute
from tests.mcpbridge.conftest import in_thread

NEEDS = {"READ_ONLY": "read", "MUTATING": "write", "EXTERNAL_EXEC": "execute"}
STRONGER = {
    "READ_ONLY": {"READ_ONLY", "MUTATING", "EXTERNAL_EXEC"},
    "MUTATING": {"MUTATING", "EXTERNAL_EXEC"},
    "EXTERNAL_EXEC": {"EXTERNAL_EXEC"},
}
"""The effects a request may declare for an action of each effect."""
INTENTS = {
    "READ_ONLY": {"QUERY", "ANALYZE", "GENERATE", "MODIFY", "EXECUTE"},
    "MUTATING": {"MODIFY", "EXECUTE"},
    "EXTERNAL_EXEC": {"EXECUTE"},
}
"""The intents a request may declare for an action of each effect."""
DEFAULTS = {
    "QUERY": ("READ_ONLY", 30_000),
    "ANALYZE": ("READ_ONLY", 60_000),
    "GENERATE": ("READ_ONLY", 120_000),
    "MODIFY": ("MUTATING", 120_000),
    "EXECUTE": ("EXTERNAL_EXEC", 300_000),
}
OF_EFFECT = {"READ_ONLY": "QUERY", "MUTATING": "MODIFY", "EXTERNAL_EXEC": "EXECUTE"}
SPEC = BackendSpec(id="b", transport="stdio", command="true")


def action(effect: str) -> ActionSpec:
    return ActionSpec(backend="b", name="a", intent=Intent(OF_EFFECT[effect]), effect=Effect(effect), input_schema={})


@pytest.mark.parametrize("isolation", ["agent", "subprocess"])
@pytest.mark.parametrize("scope", ["read", "write", "execute", "admin"])
@pytest.mark.parametrize("of_action", list(STRONGER))
@pytest.mark.parametrize("declared", [None, *STRONGER])
@pytest.mark.parametrize("intent", list(DEFAULTS))
def test_what_is_admitted(intent: str, declared: str | None, of_action: str, scope: str, isolation: str) -> None:
    caller = Caller(scope=None, key_name="", scopes=frozenset([scope]), agent_name="a")  # type: ignore[arg-type]  # unused
    request = GatewayRequest.model_validate(
        {"intent": intent, "action": "b.a", "effect": declared, "constraints": {"isolation": isolation}}
    )
    effect = declared or DEFAULTS[intent][0]
    is_honest = effect in STRONGER[of_action] and intent in INTENTS[of_action]
    may = scope == "admin" or scope == NEEDS[of_action]
    if is_honest and may:
        work = calling.admitted(caller, request, SPEC, action(of_action))
        assert work.isolation == isolation
        assert work.timeout == (300 if isolation == "subprocess" else DEFAULTS[intent][1] / 1000)
        assert work.is_change is (of_action != "READ_ONLY")
        return
    with pytest.raises(DevFlowError) as refused:
        calling.admitted(caller, request, SPEC, action(of_action))
    assert refused.value.code == "forbidden"
    if not is_honest:
        assert f'"effect": "{of_action}"' in refused.value.suggestion
        assert f'"intent": "{OF_EFFECT[of_action]}"' in refused.value.suggestion


@pytest.mark.parametrize("read_only", [True, False, None])
@pytest.mark.parametrize("destructive", [True, False, None])
@pytest.mark.parametrize("open_world", [True, False, None])
def test_annotations_give_an_action_its_effect(
    read_only: bool | None, destructive: bool | None, open_world: bool | None
) -> None:
    given = {"readOnlyHint": read_only, "destructiveHint": destructive, "openWorldHint": open_world}
    _, effect = policy.classify({name: value for name, value in given.items() if value is not None})
    if read_only and not destructive:
        assert effect is Effect.READ_ONLY
    elif open_world:
        assert effect is Effect.EXTERNAL_EXEC
    else:
        assert effect is Effect.MUTATING


@pytest.mark.parametrize("hint", ["yes", 1, "true", None, [], {}])
def test_an_annotation_that_is_no_boolean_makes_nothing_read_only(hint: object) -> None:
    assert policy.classify({"readOnlyHint": hint})[1] is Effect.MUTATING


@pytest.mark.parametrize("intent", list(DEFAULTS))
def test_the_time_a_call_has(intent: str) -> None:
    its = Intent(intent)
    assert policy.timeout_ms(its, "agent", wished=None, of_backend={}) == DEFAULTS[intent][1]
    assert policy.timeout_ms(its, "subprocess", wished=None, of_backend={}) == 300_000
    assert policy.timeout_ms(its, "agent", wished=None, of_backend={intent: 5}) == 5
    assert policy.timeout_ms(its, "subprocess", wished=7, of_backend={intent: 5}) == 7


async def test_a_tool_named_read_all_that_says_it_destroys_cannot_run_as_read_only(
    small: Any, execute: Execute
) -> None:
    for intent in ("QUERY", "ANALYZE", "GENERATE"):
        answer = await execute(intent=intent, action="small.read_all", effect="READ_ONLY")
        assert (answer["error"]["type"], answer["error"]["details"]["effect"]) == ("PERMISSION", "MUTATING")
    changed = await execute(intent="MODIFY", action="small.read_all")
    assert changed["ok"], changed


@pytest.mark.parametrize("intent", ["QUERY", "EXECUTE"])
async def test_another_intent_over_a_changing_action_does_not_slip_past_its_gate(
    small: Any, execute: Execute, project: Any, intent: str
) -> None:
    turn_gates_on(project)
    effect = "EXTERNAL_EXEC" if intent == "EXECUTE" else "MUTATING"
    answer = await execute(intent=intent, action="small.read_all", effect=effect)
    assert answer["error"]["type"] == "PERMISSION"
    assert answer["error"]["code"] == ("precondition_failed" if intent == "EXECUTE" else "forbidden")


def turn_gates_on(project: Any) -> None:
    in_thread(lambda: type(project).objects.filter(pk=project.pk).update(gates_enabled=True))


GATE_CASES = list(
    itertools.product([True, False], [True, False], ["QUERY", "MODIFY", "EXECUTE"], ["agent", "subprocess"])
)


@pytest.mark.parametrize(("gates_on", "is_set", "intent", "isolation"), GATE_CASES)
async def test_gates_stop_changes_only_and_only_where_they_are_on(
    small: Any,
    execute: Execute,
    caller: Caller,
    project: Any,
    gates_on: bool,
    is_set: bool,
    intent: str,
    isolation: str,
) -> None:
    if gates_on:
        turn_gates_on(project)
    if is_set:
        await set_marker(caller)
    action = {"QUERY": ("echo", {"text": "x"}), "MODIFY": ("read_all", {}), "EXECUTE": ("launch", {"what": "it"})}[
        intent
    ]
    answer = await execute(
        intent=intent, action=f"small.{action[0]}", params=action[1], constraints={"isolation": isolation}
    )
    is_stopped = gates_on and not is_set and intent != "QUERY"
    assert answer["ok"] is not is_stopped, answer
    if is_stopped:
        assert (answer["error"]["type"], answer["error"]["code"]) == ("PERMISSION", "precondition_failed")
        assert "set_gate" in answer["error"]["suggestion"]
    else:
        assert answer["meta"]["isolation_used"] == isolation
    was_taken = gates_on and is_set and intent != "QUERY"
    markers = await standing(caller)
    assert markers == ({"execution-done"} if was_taken else {"analysis-done"} if is_set else set())


def change(row: Any, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(row, name, value)
    row.save()


async def set_marker(caller: Caller) -> None:
    outcome = await dispatcher.call("set_gate", {"name": "analysis-done", "reason": "read it"}, caller)
    assert outcome.error is None, outcome.error


async def standing(caller: Caller) -> set[str]:
    outcome = await dispatcher.call("get_gates", {}, caller)
    assert outcome.value is not None, outcome.error
    return {gate["name"] for gate in outcome.value["gates"] if gate["is_set"]}


async def test_two_racing_changes_pass_one_marker_once(
    small: Any, make_caller: Callable[..., Caller], execute: Execute, caller: Caller, project: Any
) -> None:
    turn_gates_on(project)
    await set_marker(caller)
    others = [make_caller(agent=f"racer-{number}") for number in range(4)]
    answers = await asyncio.gather(*(execute(by=by, intent="MODIFY", action="small.read_all") for by in others))
    assert sorted(answer["ok"] for answer in answers) == [False, False, False, True]
    refused = [answer["error"]["code"] for answer in answers if not answer["ok"]]
    assert refused == ["precondition_failed"] * 3
    assert await standing(caller) == {"execution-done"}


async def test_a_change_refused_before_it_reached_the_backend_keeps_its_marker(
    small: Any, execute: Execute, caller: Caller, project: Any
) -> None:
    turn_gates_on(project)
    await set_marker(caller)
    lookup = {"action": "fail", "params": {"why": "there is none"}}
    in_thread(lambda: change(Action.objects.get(name="read_all"), lookup=lookup))
    catalog.forget()
    answer = await execute(intent="MODIFY", action="small.read_all")
    assert answer["error"]["code"] == "not_found", answer
    assert await standing(caller) == {"analysis-done"}


async def test_a_successful_analysis_leaves_the_marker(
    small: Any, execute: Execute, caller: Caller, project: Any
) -> None:
    turn_gates_on(project)
    assert (await execute(intent="ANALYZE", action="small.echo", params={"text": "x"}))["ok"]
    assert await standing(caller) == {"analysis-done"}
    assert (await execute(intent="MODIFY", action="small.read_all"))["ok"]
    assert not (await execute(intent="MODIFY", action="small.read_all"))["ok"]
