"""The whole of an answer that was too large to give at once."""

from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from devflow.errors import forbidden
from mcpbridge import ratelimit
from mcpbridge.api import streaming
from mcpbridge.api.base import LoopView, caller_of
from mcpbridge.gateway import large
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Effect


class KeptAnswerView(LoopView):
    @extend_schema(
        operation_id="kept_answer", summary="The whole of an answer past 1 MiB", responses={200: OpenApiTypes.STR}
    )
    async def get(self, request: Request, answer_id: str) -> HttpResponseBase:
        """Kept for a day, for the key that got it. Sent in pieces."""
        caller = caller_of(request)
        await ratelimit.spend(caller)
        if not caller.allows(Effect.READ_ONLY) or not caller.may_use("gateway"):
            raise forbidden("This key may not read: it needs the scope `read` and the toolset `gateway`.")
        row = await run_blocking(large.kept, caller, answer_id)
        response = StreamingHttpResponse(streaming.pieces(row.text), content_type=f"{row.media_type}; charset=utf-8")
        response["Cache-Control"] = "no-store"
        response["X-Content-Type-Options"] = "nosniff"
        return response
