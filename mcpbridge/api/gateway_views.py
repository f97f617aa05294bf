"""The gateway's own REST door: the two-layer request in, its bare envelope out, whatever happens."""

from typing import Any

from django.http import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from devflow.errors import ERROR_TABLE
from mcpbridge import dispatcher
from mcpbridge.api import streaming
from mcpbridge.api.base import LoopView, caller_of
from mcpbridge.api.problems import retry_header
from mcpbridge.api.views import described
from mcpbridge.envelopes import Outcome, gateway_envelope
from mcpbridge.registry import GATEWAY_EXECUTE
from mcpbridge.tooling import Caller


class GatewayView(LoopView):
    @described("gateway_execute", "Run one action of a backend")
    async def post(self, request: Request) -> HttpResponseBase:
        """Send `Idempotency-Key` with a change that may be repeated: the second request has no second effect.

        With `Accept: application/x-ndjson` progress comes while the call is at work, one JSON object a line.
        """
        key = request.headers.get("Idempotency-Key")
        body: Any = request.data
        if streaming.is_wanted(request):
            return streaming.answer(caller_of(request), lambda caller: _streamed(caller, body, key))
        outcome = await dispatcher.call(GATEWAY_EXECUTE, body, caller_of(request), idempotency_key=key)
        return Response(gateway_envelope(outcome), status=_status(outcome), headers=retry_header(outcome.error))


def _status(outcome: Outcome) -> int:
    return 200 if outcome.error is None else ERROR_TABLE[outcome.error.code].http


async def _streamed(caller: Caller, body: Any, key: str | None) -> tuple[int, Any]:
    outcome = await dispatcher.call(GATEWAY_EXECUTE, body, caller, idempotency_key=key)
    return _status(outcome), gateway_envelope(outcome)
