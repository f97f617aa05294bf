"""The orchestrator's REST doors: a task in, the gateway's bare envelope out; a plan confirmed."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from devflow.errors import ERROR_TABLE, invalid
from mcpbridge import dispatcher
from mcpbridge.api.base import LoopView, caller_of
from mcpbridge.api.problems import retry_header
from mcpbridge.api.views import described
from mcpbridge.envelopes import gateway_envelope


async def _answered(tool: str, arguments: Any, request: Request) -> Response:
    key = request.headers.get("Idempotency-Key")
    outcome = await dispatcher.call(tool, arguments, caller_of(request), idempotency_key=key)
    status = 200 if outcome.error is None else ERROR_TABLE[outcome.error.code].http
    return Response(gateway_envelope(outcome), status=status, headers=retry_header(outcome.error))


class OrchestrateView(LoopView):
    @described("orchestrate_task", "Say in words what a backend shall do")
    async def post(self, request: Request) -> Response:
        """What changes something comes back as `result.data.plan`; POST to its confirm path runs it, once."""
        return await _answered("orchestrate_task", request.data, request)


class ConfirmPlanView(LoopView):
    @described("confirm_plan", "Run a plan of the orchestrator")
    async def post(self, request: Request, plan_id: str) -> Response:
        """Within ten minutes, once, with the key that asked for it or one that may administer."""
        body: Any = request.data
        given = body if isinstance(body, dict) else None
        if given is None or given.keys() - {"signature"}:
            raise invalid('Send {} or {"signature": "..."}.', body="an object with signature, or empty")
        return await _answered("confirm_plan", {**given, "plan_id": plan_id}, request)
