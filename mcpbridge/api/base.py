"""What the REST views of the protocol share: the order of checks, views that run on the loop."""

from collections.abc import Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponseBase
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from mcpbridge import access
from mcpbridge.api.authentication import ApiKeyAuthentication, door_in, headers_of
from mcpbridge.api.parsers import StrictJSONParser
from mcpbridge.tooling import Caller


class JsonOnly(BaseContentNegotiation):
    """Machine paths speak one format: whatever a client says it accepts, it gets that."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        renderer: BaseRenderer = renderers[0]
        return renderer, renderer.media_type


class MachineView(APIView):
    """A view for keys only."""

    authentication_classes: Sequence[type[BaseAuthentication]] = (ApiKeyAuthentication,)
    content_negotiation_class = JsonOnly
    parser_classes = (StrictJSONParser,)
    renderer_classes = (JSONRenderer,)


class LoopView(MachineView):
    """A machine view whose handlers are coroutines: DRF's life of a request, with one `await` in it."""

    http_method_names = ("get", "head", "post")

    async def dispatch(  # type: ignore[override]  # Django marks the view as async by its handlers
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        self.args, self.kwargs = args, kwargs
        drf_request = self.initialize_request(request, *args, **kwargs)
        self.request = drf_request
        self.headers = self.default_response_headers
        try:
            if door_in(drf_request) is None:
                await sync_to_async(self.initial)(drf_request, *args, **kwargs)
            else:
                self.initial(drf_request, *args, **kwargs)
            method = (drf_request.method or "").lower()
            handler = getattr(self, method, None) if method in self.http_method_names else None
            if handler is None:
                raise MethodNotAllowed(drf_request.method or "")
            response = await handler(drf_request, *args, **kwargs)
        except Exception as exc:  # DRF's own dispatch does the same: its handler gives every failure its shape
            response = self.handle_exception(exc)
        self.response = self.finalize_response(drf_request, response, *args, **kwargs)
        return self.response


def caller_of(request: Request) -> Caller:
    """The caller of one REST call. Raises `invalid_input` for a malformed agent id or exposure."""
    headers = headers_of(request)
    identity: Any = request.auth
    return access.caller_for(
        identity,
        transport="rest",
        headers=headers,
        query={name: value for name, value in request.query_params.items() if isinstance(value, str)},
        client=headers.get("user-agent", "").partition("/")[0].strip()[:120],
    )
