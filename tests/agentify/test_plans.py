"""Plans: signed, good for ten minutes, run once, by who asked or who administers."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.utils import timezone

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.agentify import orchestrator, plans
from mcpbridge.envelopes import gateway_envelope
from mcpbridge.gateway.catalog import catalog
from mcpbridge.models import Action, Backend, Plan
from mcpbridge.tooling import Caller
from tests.agentify.conftest import Ask
from tests.mcpbridge.conftest import in_thread

LAUNCH = 'small.launch {"what": "it"}'


@pytest.fixture
async def plan(small: Backend, ask: Ask) -> dict[str, Any]:
    made: dict[str, Any] = gateway_envelope(await ask(LAUNCH))["result"]["data"]["plan"]
    return made


def row(plan: dict[str, Any]) -> Plan:
    return in_thread(lambda: Plan.objects.select_related("key", "project").get(plan_id=plan["plan_id"]))


def change(plan: dict[str, Any], **fields: Any) -> None:
    in_thread(lambda: Plan.objects.filter(plan_id=plan["plan_id"]).update(**fields))


async def test_a_confirmed_plan_runs_and_keeps_its_answer(plan: dict[str, Any], confirm: Ask) -> None:
    outcome = await confirm(plan["plan_id"], signature=plan["signature"])
    envelope = gateway_envelope(outcome)
    assert envelope["result"]["data"] == {"result": "launched it"}
    assert envelope["meta"]["orchestration"] == {"mode": "plan", "plan_id": plan["plan_id"]}
    kept = row(plan)
    assert (kept.state, kept.decided_by) == ("done", "agent-1")
    assert kept.answer is not None
    assert kept.answer["result"]["data"] == {"result": "launched it"}


async def test_a_plan_runs_once_even_when_many_confirm_at_the_same_moment(
    plan: dict[str, Any], confirm: Ask, small: Backend
) -> None:
    outcomes = await asyncio.gather(*(confirm(plan["plan_id"]) for _ in range(8)))
    assert sorted(outcome.code for outcome in outcomes) == ["conflict"] * 7 + ["ok"]
    again = await confirm(plan["plan_id"])
    assert again.error is not None
    assert "has run" in again.error.message


async def test_a_plan_expires(plan: dict[str, Any], confirm: Ask) -> None:
    kept = row(plan)
    assert abs((kept.expires_at - timezone.now()) - timedelta(minutes=10)) < timedelta(seconds=30)
    snapshot = await catalog.current()
    action, spec = snapshot.actions["small", "launch"], snapshot.backend("small")
    kept.expires_at = timezone.now() - timedelta(seconds=1)
    kept.signature = plans.signature_of(kept, action, spec)
    in_thread(kept.save)
    outcome = await confirm(plan["plan_id"])
    assert outcome.code == "precondition_failed"
    assert row(plan).state == "waiting"


@pytest.mark.parametrize(
    "tampered",
    [
        {"request": {"intent": "EXECUTE", "action": "small.launch", "params": {"what": "something else"}}},
        {"expires_at": timezone.now() + timedelta(days=1)},
        {"effect": "READ_ONLY"},
        {"signature": "0" * 64},
    ],
)
async def test_a_tampered_plan_is_void(plan: dict[str, Any], confirm: Ask, tampered: dict[str, Any]) -> None:
    change(plan, **tampered)
    assert (await confirm(plan["plan_id"])).code == "conflict"
    assert row(plan).state == "waiting"


async def test_a_plan_whose_backend_is_another_now_is_void(plan: dict[str, Any], confirm: Ask) -> None:
    in_thread(lambda: Backend.objects.update(args=["-c", "print('another program')"]))
    catalog.__init__()  # type: ignore[misc]  # `update` leaves no trace that a process would look for
    assert (await confirm(plan["plan_id"])).code == "conflict"
    assert row(plan).state == "waiting"


async def test_a_plan_whose_tool_changed_is_void(plan: dict[str, Any], confirm: Ask) -> None:
    def alter() -> None:
        action = Action.objects.get(name="launch")
        action.fingerprint = "another"
        action.save()

    in_thread(alter)
    catalog.forget()
    assert (await confirm(plan["plan_id"])).code == "conflict"


async def test_another_signature_is_refused(plan: dict[str, Any], confirm: Ask) -> None:
    assert (await confirm(plan["plan_id"], signature="f" * 64)).code == "forbidden"
    assert row(plan).state == "waiting"


async def test_only_the_same_key_or_an_administrator_confirms(
    plan: dict[str, Any], confirm: Ask, make_caller: Callable[..., Caller]
) -> None:
    stranger = make_caller("read", "write", "execute")
    assert (await confirm(plan["plan_id"], by=stranger)).code == "not_found"
    assert (await confirm("0" * 32, by=stranger)).code == "not_found"
    administrator = make_caller("admin", agent="boss")
    assert (await confirm(plan["plan_id"], by=administrator)).code == "ok"
    assert row(plan).decided_by == "boss"


async def test_a_plan_that_fails_does_not_run_again(small: Backend, ask: Ask, confirm: Ask) -> None:
    def worsen() -> None:
        action = Action.objects.get(name="fail")
        action.effect_override, action.intent_override = "MUTATING", "MODIFY"
        action.save()

    in_thread(worsen)
    catalog.forget()
    plan = gateway_envelope(await ask('small.fail {"why": "because"}'))["result"]["data"]["plan"]
    assert (await confirm(plan["plan_id"])).code == "backend_error"
    assert row(plan).state == "failed"
    assert (await confirm(plan["plan_id"])).code == "conflict"


async def test_own_tools_that_change_something_are_planned_too(small: Backend, ask: Ask, confirm: Ask) -> None:
    plan = gateway_envelope(await ask("devflow.heartbeat"))["result"]["data"]["plan"]
    assert (await confirm(plan["plan_id"])).code == "ok"


async def test_a_person_who_administers_confirms_for_the_key(plan: dict[str, Any]) -> None:
    users = get_user_model()
    nobody = in_thread(lambda: users.objects.create_user(username="nobody"))
    chief = in_thread(lambda: users.objects.create_superuser(username="chief", email="", password="x"))
    with pytest.raises(DevFlowError) as refused:
        await orchestrator.confirm_as_person(row(plan), nobody)
    assert refused.value.code is ErrorCode.FORBIDDEN
    outcome = await orchestrator.confirm_as_person(row(plan), chief)
    assert outcome.code == "ok", outcome.error
    assert row(plan).decided_by == "chief"


async def test_a_refused_plan_never_runs(plan: dict[str, Any], confirm: Ask) -> None:
    in_thread(lambda: plans.refuse(Plan.objects.get(plan_id=plan["plan_id"]), by="chief"))
    outcome = await confirm(plan["plan_id"])
    assert outcome.code == "conflict"
    assert "refused" in str(outcome.error)


async def test_old_plans_are_deleted(plan: dict[str, Any]) -> None:
    assert in_thread(plans.expire) == 0
    change(plan, created_at=timezone.now() - timedelta(days=8))
    assert in_thread(plans.expire) == 1


async def test_nobody_who_is_not_logged_in_decides(plan: dict[str, Any]) -> None:
    kept = row(plan)
    assert in_thread(lambda: plans.may_decide(kept, AnonymousUser())) is False
