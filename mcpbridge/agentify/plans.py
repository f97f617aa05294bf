"""Plans: what the orchestrator would do, signed, good for ten minutes, run at most once.

The signature covers the request, the definition of the tool it calls and where its backend is: a change of any makes
it void. Functions here block.
"""

import json
import uuid
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import DatabaseError
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from devflow import ports
from devflow.errors import DevFlowError, ErrorCode, conflict, forbidden, not_found
from devflow.events import EVERY_PROJECT, LiveEvent, bus
from devflow.logs import redact
from devflow.ports import KeyScope
from mcpbridge.agentify.llm import without_keys
from mcpbridge.gateway.protocol import GatewayRequest
from mcpbridge.gateway.specs import ActionSpec, BackendSpec
from mcpbridge.models import Plan
from mcpbridge.tooling import Caller, Scope

VALID = timedelta(minutes=10)
KEEP = timedelta(days=7)
PLAN_CHANGED = "plan.changed"
MAX_ANSWER = 256 * 1024


def signature_of(plan: Plan, action: ActionSpec, spec: BackendSpec | None) -> str:
    """`spec` is None for a tool of DevFlow's own."""
    content = [plan.plan_id, plan.key_id, plan.project_id, plan.request, plan.effect, plan.expires_at.isoformat()]
    where = spec.config_hash if spec is not None else ""
    text = json.dumps([*content, action.full_name, action.effect.value, action.fingerprint, where], sort_keys=True)
    return salted_hmac("devflow.plan", text, algorithm="sha256").hexdigest()


def keep(caller: Caller, query: str, request: GatewayRequest, action: ActionSpec, spec: BackendSpec | None) -> Plan:
    plan = Plan(
        plan_id=uuid.uuid4().hex,
        key_id=caller.scope.key_id or None,
        agent_name=caller.agent_name,
        project_id=_project_of(caller),
        query=without_keys(redact(query)),
        request=request.as_json(),
        effect=action.effect.value,
        expires_at=timezone.now() + VALID,
    )
    plan.signature = signature_of(plan, action, spec)
    plan.save()
    _tell(plan)
    return plan


def _project_of(caller: Caller) -> int | None:
    try:
        return caller.project.id or None
    except DevFlowError:
        return None  # none was named, and there are several: a plan need not belong to one


def shown(plan: Plan) -> dict[str, Any]:
    """A plan as the one who must confirm it sees it."""
    return {
        "plan_id": plan.plan_id,
        "query": plan.query,
        "request": plan.request,
        "effect": plan.effect,
        "signature": plan.signature,
        "expires_at": plan.expires_at.isoformat(),
        "confirm": f"confirm_plan with this plan_id, or POST /mcp/plans/{plan.plan_id}/confirm",
    }


def found(caller: Caller, plan_id: str) -> Plan:
    """A plan this caller may decide on: its own key's, or any for who administers. Raises `not_found`."""
    plan = Plan.objects.select_related("project").filter(plan_id=plan_id).first()
    if plan is None or not _is_theirs(plan, caller):
        raise not_found("Plan", plan_id[:64], suggestion="Only the key that asked, or an administrator, confirms it.")
    return plan


def _is_theirs(plan: Plan, caller: Caller) -> bool:
    if plan.key_id is not None and plan.key_id == caller.scope.key_id:
        return True
    if Scope.ADMIN not in caller.scopes:
        return False
    if plan.project_id is None:
        return caller.scope.project_id is None
    if caller.scope.project_id not in (None, plan.project_id):
        return False
    return ports.directory().may_administer(caller.scope, plan.project_id)


def may_decide(plan: Plan, user: AbstractBaseUser | AnonymousUser) -> bool:
    """Whether a person may confirm or refuse a plan: administrators of its project, and of the server."""
    if not user.is_authenticated:
        return False
    if getattr(user, "is_superuser", False):
        return True
    scope = KeyScope(key_id=0, user_id=user.pk)
    return plan.project_id is not None and ports.directory().may_administer(scope, plan.project_id)


def verify(plan: Plan, action: ActionSpec, spec: BackendSpec | None) -> None:
    """Raises `conflict` for a plan that is not what was signed, or whose tool or backend is not what it was then."""
    if not constant_time_compare(plan.signature, signature_of(plan, action, spec)):
        raise conflict(
            "This plan is void: it, the tool it calls or its backend changed since it was made.",
            suggestion="Ask for a new plan.",
        )


def take(plan: Plan, *, by: str) -> None:
    """Make the plan this caller's to run, once for all. Raises `conflict` or `precondition_failed`."""
    waiting = Plan.objects.filter(pk=plan.pk, state=Plan.State.WAITING)
    if waiting.filter(expires_at__gt=timezone.now()).update(state=Plan.State.RUNNING, decided_by=by[:150]):
        plan.state, plan.decided_by = Plan.State.RUNNING, by[:150]
        _tell(plan)
        return
    plan.refresh_from_db(fields=["state", "decided_by"])
    if plan.state == Plan.State.WAITING:
        raise DevFlowError(
            ErrorCode.PRECONDITION_FAILED,
            "This plan has expired: a plan is good for ten minutes.",
            suggestion="Ask for a new plan.",
        )
    words = {
        Plan.State.RUNNING: "is running, or was cut off while it ran",
        Plan.State.DONE: "has run",
        Plan.State.FAILED: "has run and failed",
        Plan.State.REFUSED: "was refused",
    }
    raise conflict(
        f"This plan {words[Plan.State(plan.state)]} (decided by {plan.decided_by}).",
        suggestion="A plan runs once. Look at what it did before you ask for a new one.",
        state=plan.state,
    )


def refuse(plan: Plan, *, by: str) -> None:
    """Somebody says no. Raises what `take` does."""
    take(plan, by=by)
    _end(plan, Plan.State.REFUSED, None)


def finish(plan: Plan, answer: dict[str, Any] | None, *, ok: bool) -> None:
    """Keep how a plan ended; an answer too large to keep is left out."""
    if answer is not None and len(json.dumps(answer)) > MAX_ANSWER:
        answer = None
    try:
        _end(plan, Plan.State.DONE if ok else Plan.State.FAILED, answer)
    except DatabaseError:
        _end(plan, Plan.State.DONE if ok else Plan.State.FAILED, None)


def _end(plan: Plan, state: Plan.State, answer: dict[str, Any] | None) -> None:
    plan.state, plan.answer = state, answer
    plan.save(update_fields=["state", "answer"])
    _tell(plan)


def _tell(plan: Plan) -> None:
    bus.publish(LiveEvent(PLAN_CHANGED, plan.project_id or EVERY_PROJECT, plan.plan_id))


def expire() -> int:
    """Delete plans older than a week. Returns how many."""
    return Plan.objects.filter(created_at__lt=timezone.now() - KEEP).delete()[0]


def check_signature(plan: Plan, signature: str) -> None:
    """Raises `forbidden` where somebody confirms another plan than the one they saw."""
    if signature and not constant_time_compare(signature, plan.signature):
        raise forbidden("The signature is not this plan's.", suggestion="Send the signature the plan came with.")
