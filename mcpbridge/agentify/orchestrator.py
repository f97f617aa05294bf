"""A task in words, from the choice of an action to the gateway's envelope; what changes things becomes a plan first.

Everything runs through `gateway.calling`: the policy, the gates and the log are those of `gateway_execute`.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from devflow import config
from devflow.errors import DevFlowError, ErrorCode, forbidden, not_found
from mcpbridge import access
from mcpbridge.agentify import llm, plans, realms
from mcpbridge.agentify.planner import choose, own_action
from mcpbridge.agentify.tasks import Choice, Task
from mcpbridge.envelopes import Outcome
from mcpbridge.gateway import calling, own
from mcpbridge.gateway.own import OWN
from mcpbridge.gateway.protocol import Context, GatewayRequest
from mcpbridge.gateway.specs import ActionSpec, BackendSpec
from mcpbridge.models import Plan
from mcpbridge.registry import registry
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import SCOPE_FOR, Caller, Effect, Tool

PAGE = "page"
"""The transport of what a person did on a page."""


async def orchestrate(caller: Caller, task: Task) -> dict[str, Any]:
    """Do a task, or plan it. Notes in `caller.facts`: `chosen`, then `wire` (the backend's result) or `plan`.

    Raises `NoActionError`, `ModelFaultError`, and what the gateway raises.
    """
    realm = realms.current()
    snapshot = await realm.snapshot()
    choice = await choose(caller, task, snapshot, llm.configured(realm.openai_key))
    action = choice.action
    caller.facts["chosen"] = action.full_name
    spec = None if action.backend == OWN else snapshot.backend(action.backend)
    request = _request(choice, task, spec)
    if action.effect is Effect.READ_ONLY or action.effect in (task.allow_effects or ()):
        return await _run(caller, request, spec, action, choice.as_meta())
    return await _planned(caller, task, request, spec, choice)


def _request(choice: Choice, task: Task, spec: BackendSpec | None) -> GatewayRequest:
    root = project_root(task.around.directory, spec) if spec else None
    if choice.request is not None:
        context = choice.request.context
        context = context.model_copy(update={"project_root": context.project_root or root})
        return choice.request.model_copy(update={"action": choice.action.full_name, "context": context})
    return GatewayRequest(
        intent=choice.intent or choice.action.intent,
        action=choice.action.full_name,
        effect=None if choice.intent else choice.action.effect,
        params=choice.params,
        context=Context(project_root=root),
    )


def project_root(directory: str, spec: BackendSpec) -> str | None:
    """The directory the client works in, where the backend may work there too."""
    if not directory:
        return None
    try:
        path = Path(directory).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
    allowed = [Path(root).resolve() for root in spec.allowed_roots or config.current().allowed_roots]
    is_inside = Path(directory).is_absolute() and path.is_dir() and any(map(path.is_relative_to, allowed))
    return str(path) if is_inside else None


async def _planned(
    caller: Caller, task: Task, request: GatewayRequest, spec: BackendSpec | None, choice: Choice
) -> dict[str, Any]:
    """A plan, once all that can be refused now was refused."""
    action = choice.action
    if spec is not None:
        request = calling.admitted(caller, request, spec, action).request
        await run_blocking(caller.writer, action.full_name)  # a change needs a project, and the right to write there
        for fact in ("backend", "action"):  # nothing of it was called: the log names the orchestrator
            caller.facts.pop(fact, None)
    else:
        _refuse_own(caller, request, action)
    caller.facts["effect"] = Effect.READ_ONLY.value
    plan = await run_blocking(plans.keep, caller, task.query, request, action, spec)
    caller.facts["plan"] = plans.shown(plan)
    return {
        "ok": True,
        "request": {"intent": request.intent.value, "action": action.full_name, "effect": action.effect.value},
        "result": {
            "artifact_type": "JSON",
            "data": {"plan": caller.facts["plan"]},
            "affected_files": [],
            "affected_symbols": [],
        },
        "meta": {
            "duration_ms": 0.0,
            "mcp_name": action.backend,
            "isolation_used": spec.isolation if spec else "agent",
            "trace_id": caller.trace_id,
            "orchestration": choice.as_meta(),
        },
    }


def _refuse_own(caller: Caller, request: GatewayRequest, action: ActionSpec) -> None:
    """Raises what calling one of our own tools would be refused with."""
    if not caller.allows(action.effect):
        raise forbidden(f"This key may not call {action.full_name}: it needs the scope `{SCOPE_FOR[action.effect]}`.")
    _own_tool(action).validate(request.params)


def _own_tool(action: ActionSpec) -> Tool:
    tool = registry.find(action.name)
    if tool is None:
        raise not_found("Action", action.full_name)
    return tool


async def _run(
    caller: Caller,
    request: GatewayRequest,
    spec: BackendSpec | None,
    action: ActionSpec,
    orchestration: Mapping[str, Any],
) -> dict[str, Any]:
    if spec is None:
        envelope = await own.execute(caller, request, _own_tool(action))
    else:
        envelope = await calling.run(caller, request, spec, action)
    envelope["meta"]["orchestration"] = dict(orchestration)
    return envelope


async def confirm(caller: Caller, plan_id: str, *, signature: str = "") -> dict[str, Any]:
    """Run a plan somebody agreed to, at most once. Raises `not_found`, `conflict`, `precondition_failed`, and what the
    gateway raises."""
    plan = await run_blocking(plans.found, caller, plan_id)
    snapshot = await realms.current().snapshot()
    request = GatewayRequest.model_validate(plan.request)
    owner, _, name = request.action.partition(".")
    action = own_action(request.action, caller, snapshot) if owner == OWN else snapshot.actions.get((owner, name))
    if action is None:
        raise not_found("Action", request.action, suggestion="It is no longer there; ask for a new plan.")
    plans.check_signature(plan, signature)
    spec = None if owner == OWN else snapshot.backend(owner)
    plans.verify(plan, action, spec)
    caller = caller.with_changes(project_root=None)  # the plan says where, whoever confirms it
    if plan.project is not None and caller.scope.project_id is None:
        caller = caller.with_changes(project_slug=plan.project.slug)
    await run_blocking(plans.take, plan, by=caller.client if caller.transport == PAGE else caller.agent_name)
    caller.facts.update(chosen=action.full_name, project_id=plan.project_id)
    envelope: dict[str, Any] | None = None
    try:
        envelope = await _run(caller, request, spec, action, {"mode": "plan", "plan_id": plan.plan_id})
        return envelope
    finally:
        await asyncio.shield(run_blocking(plans.finish, plan, envelope, ok=envelope is not None))


async def confirm_as_person(plan: Plan, user: AbstractBaseUser | AnonymousUser) -> Outcome:
    """What the gateway's page does when a person confirms: the plan runs with its own key, recorded as that key's."""
    from mcpbridge import dispatcher

    def identity() -> access.Identity | None:
        if not plans.may_decide(plan, user):
            raise DevFlowError(ErrorCode.FORBIDDEN, "Only an administrator of its project may confirm a plan.")
        return access.keyring.look_up(plan.key.digest) if plan.key is not None else None

    found = await run_blocking(identity)
    if found is None:
        raise DevFlowError(ErrorCode.PRECONDITION_FAILED, "The key that asked for this plan is no longer live.")
    headers = {"x-agent-id": plan.agent_name}
    caller = access.caller_for(found, transport=PAGE, headers=headers, client=user.get_username())
    return await dispatcher.call("confirm_plan", {"plan_id": plan.plan_id}, caller, prepaid=True)
