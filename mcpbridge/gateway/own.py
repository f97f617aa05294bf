"""DevFlow's own tools as actions of the gateway: same envelope, same policy, no process."""

import asyncio
from typing import Any

from devflow.errors import ErrorCode
from mcpbridge.envelopes import Outcome, as_gateway
from mcpbridge.gateway.artifacts import shaped
from mcpbridge.gateway.calling import refuse_understatement
from mcpbridge.gateway.catalog import Snapshot
from mcpbridge.gateway.faults import out_of_time
from mcpbridge.gateway.protocol import GatewayRequest
from mcpbridge.gateway.specs import ActionSpec
from mcpbridge.registry import CALL_TOOL, GATEWAY_EXECUTE, registry
from mcpbridge.tooling import Caller, Effect, Tool

OWN = "devflow"
"""The name DevFlow's own tools answer to here."""


def tool_called(action: str, caller: Caller, snapshot: Snapshot) -> Tool | None:
    """Our own tool of that name: `devflow.claim_task`, or `claim_task` where no backend has an action called so."""
    name = action.removeprefix(f"{OWN}.")
    tool = registry.find(name)
    if tool is None or tool.backend or name in (GATEWAY_EXECUTE, CALL_TOOL) or not caller.may_use(tool.toolset):
        return None
    is_explicit = action.startswith(f"{OWN}.")
    if not is_explicit and any(name == known for _, known in snapshot.actions):
        return None
    return tool


def may_have_happened(outcome: Outcome, effect: Effect) -> bool:
    """Whether a call inside another one changed something, or nobody knows: the outer one must not be repeated."""
    if outcome.facts.get("is_sent"):
        return True
    is_over = outcome.error is None or outcome.error.code is ErrorCode.TIMEOUT
    return is_over and effect is not Effect.READ_ONLY


async def execute(caller: Caller, request: GatewayRequest, tool: Tool) -> dict[str, Any]:
    """Run one of our tools and give the success envelope. Raises what the call raised.

    There is no process to isolate and nothing to try again: of the constraints, the time holds.
    """
    from mcpbridge import dispatcher

    caller.facts["effect"] = tool.effect.value
    refuse_understatement(request, f"{OWN}.{tool.name}", tool.intent, tool.effect)
    seconds = request.constraints.timeout_ms / 1000 if request.constraints.timeout_ms else None
    try:
        async with asyncio.timeout(seconds):
            outcome = await dispatcher.call(tool.name, request.params, caller, prepaid=True)
    except TimeoutError:
        caller.facts["is_sent"] = tool.effect is not Effect.READ_ONLY
        raise out_of_time(f"{OWN}.{tool.name}", seconds or 0) from None
    if may_have_happened(outcome, tool.effect):
        caller.facts["is_sent"] = True  # the idempotency key of the request stays taken
    if outcome.error is not None:
        raise outcome.error
    action, effect = f"{OWN}.{tool.name}", tool.effect.value
    envelope = as_gateway(outcome, intent=request.intent.value, action=action, effect=effect)
    envelope["meta"]["trace_id"] = caller.trace_id
    if request.artifact is not None and request.artifact != "JSON":
        answer = {"structuredContent": outcome.value or {}}
        shown = await shaped(answer, request.artifact, root=None, source=ActionSpec(OWN, tool.name))
        envelope["result"]["data"], envelope["result"]["artifact_type"] = shown
    return envelope
