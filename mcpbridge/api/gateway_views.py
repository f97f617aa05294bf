"""The gateway's own REST door: the two-layer request in, its bare envelope out, whatever happens."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from devflow.errors import ERROR_TABLE
from mcpbridge import dispatcher
from mcpbridge.api.base import LoopView, caller_of
from mcpbridge.api.problems import retry_header
from mcpbridge.api.views import described
from mcpbridge.envelopes import gateway_envelope
from mcpbridge.registry import GATEWAY_EXECUTE


class GatewayView(LoopView):
    @described("gateway_execute", "Run one action of a backend")
    async def post(self, request: Request) -> Response:
        """Send `Idempotency-Key` with a change that may be repeated: the second request has no second effect."""
        key = request.headers.get("Idempotency-Key")
        body: Any = request.data
        outcome = await dispatcher.call(GATEWAY_EXECUTE, body, caller_of(request), idempotency_key=key)
        status = 200 if outcome.error is None else ERROR_TABLE[outcome.error.code].http
        return Response(gateway_envelope(outcome), status=status, headers=retry_header(outcome.error))
