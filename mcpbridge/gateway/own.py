"""DevFlow's own tools as actions of the gateway: same envelope, same policy, no process."""

import time
from typing import Any

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.gateway import policy
from mcpbridge.gateway.catalog import Snapshot
from mcpbridge.gateway.protocol import GatewayRequest, corrected_call
from mcpbridge.registry import CALL_TOOL, GATEWAY_EXECUTE, registry
from mcpbridge.tooling import Caller, Tool

OWN = "devflow"


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


async def execute(caller: Caller, request: GatewayRequest, tool: Tool) -> dict[str, Any]:
    """Run one of our tools and give the success envelope. Raises what the call raised."""
    from mcpbridge import dispatcher

    caller.facts["effect"] = tool.effect.value
    started = time.perf_counter()
    if policy.is_weaker(request.declared_effect, tool.effect):
        right = {**request.as_json(), "intent": tool.intent.value, "effect": tool.effect.value}
        raise DevFlowError(
            ErrorCode.FORBIDDEN,
            f"{tool.name} has the effect {tool.effect.value}; the request declares {request.declared_effect.value}.",
            details={"effect": tool.effect.value},
            suggestion=corrected_call(right),
        )
    outcome = await dispatcher.call(tool.name, request.params, caller, prepaid=True)
    if outcome.error is not None:
        raise outcome.error
    return {
        "ok": True,
        "request": {
            "intent": request.intent.value,
            "action": f"{OWN}.{tool.name}",
            "effect": tool.effect.value,
        },
        "result": {
            "artifact_type": tool.artifact,
            "data": outcome.value or {},
            "affected_files": [],
            "affected_symbols": [],
        },
        "meta": {
            "duration_ms": round((time.perf_counter() - started) * 1000, 3),
            "mcp_name": OWN,
            "isolation_used": "agent",
            "trace_id": caller.trace_id,
        },
    }
