"""REST views of the protocol: discovery, calls, health, metrics. All of them speak to the dispatcher or below."""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.views.decorators.http import require_safe
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from prometheus_client import CONTENT_TYPE_LATEST
from rest_framework.authentication import SessionAuthentication
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from devflow.drain import draining
from devflow.errors import DevFlowError, invalid, not_found
from mcpbridge import dispatcher, health, metrics, payload, ratelimit
from mcpbridge.api import streaming
from mcpbridge.api.authentication import ApiKeyAuthentication
from mcpbridge.api.base import LoopView, MachineView, caller_of
from mcpbridge.api.problems import prd_failure, retry_header
from mcpbridge.envelopes import as_rest
from mcpbridge.registry import registry, spelled
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Caller, Tool

MAX_BATCH = 50
MAX_REQUEST_ID = 255
Handler = TypeVar("Handler", bound=Callable[..., Any])
_BODY_KEYS = frozenset({"tool", "args", "request_id"})


def described(operation_id: str, summary: str) -> Callable[[Handler], Handler]:
    """Name an operation; `openapi.add_tools` writes its schemas."""
    objects = OpenApiTypes.OBJECT
    described_so: Callable[[Handler], Handler] = extend_schema(
        operation_id=operation_id, summary=summary, request=objects, responses=objects
    )
    return described_so


def entry_of(tool: Tool, names: str = "dotted") -> dict[str, Any]:
    """A tool as discovery shows it."""
    return {
        "name": spelled(tool.name, names),
        "description": tool.description,
        "parameters": tool.input_schema,
        "output_schema": tool.output_schema,
        "toolset": tool.toolset,
        "intent": tool.intent.value,
        "effect": tool.effect.value,
        "artifact": tool.artifact,
        "version": tool.version,
    }


class ToolsView(LoopView):
    @described("list_tools", "The tools this key may call")
    async def get(self, request: Request) -> Response:
        """Narrow it with `?toolsets=workflow,agents`, `?expose=direct|search` and `?names=dotted|underscore`."""
        caller = caller_of(request)
        await registry.refresh()
        return Response({"tools": [entry_of(tool, caller.exposed.names) for tool in registry.shown(caller)]})


class ToolView(LoopView):
    @described("get_tool", "One tool")
    async def get(self, request: Request, name: str) -> Response:
        """Its name in either spelling: `taiga.list_tasks` or `taiga_list_tasks`."""
        caller = caller_of(request)
        await registry.refresh()
        return Response(entry_of(registry.resolve(name, caller), caller.exposed.names))


def request_id_in(body: Any) -> str | None:
    """The request id of a call, to be echoed also where the rest is malformed. Raises `invalid_input`."""
    given = body.get("request_id") if isinstance(body, dict) else None
    if given is None:
        return None
    if not isinstance(given, str) or len(given) > MAX_REQUEST_ID:
        raise invalid(
            f"request_id is a text of at most {MAX_REQUEST_ID} characters.",
            request_id=f"text of at most {MAX_REQUEST_ID} characters",
        )
    payload.bounded({"request_id": given})
    return given


def call_in(body: Any) -> tuple[str, Any]:
    """Tool and arguments of one call body. Raises `invalid_input` naming what is wrong with it."""
    if not isinstance(body, dict):
        raise invalid('A call is an object such as {"tool": "get_tasks", "args": {}}.', body="must be an object")
    if unknown := sorted(ascii(name)[1:-1][:64] for name in body.keys() - _BODY_KEYS):
        raise invalid(
            f"{unknown[0]}: unknown key; a call has tool, args and request_id. Arguments belong inside args.",
            **dict.fromkeys(unknown, "unknown key"),
        )
    tool = body.get("tool")
    if not isinstance(tool, str) or not tool:
        raise invalid("tool: name the tool to call; GET /mcp/tools lists them.", tool="is required, as text")
    payload.bounded({"tool": tool})
    return tool, body.get("args")


async def answer(
    body: Any, caller: Caller, *, idempotency_key: str | None, prepaid: bool = False
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Run one call body: status, answer and headers."""
    request_id = request_id_in(body)
    tool, arguments = call_in(body)
    outcome = await dispatcher.call(tool, arguments, caller, idempotency_key=idempotency_key, prepaid=prepaid)
    status, answered = as_rest(outcome, request_id)
    return status, answered, retry_header(outcome.error)


class ExecuteView(LoopView):
    request_id: str | None = None

    @described("execute_tool", "Call a tool")
    async def post(self, request: Request) -> HttpResponseBase:
        """Send `Idempotency-Key` with a write that may be repeated: the second call has no second effect.

        With `Accept: application/x-ndjson` progress comes while the call is at work, one JSON object a line.
        """
        body = request.data
        self.request_id = request_id_in(body)
        key = request.headers.get("Idempotency-Key")
        if streaming.is_wanted(request):
            call_in(body)
            return streaming.answer(caller_of(request), lambda caller: _streamed(body, caller, key))
        status, answered, headers = await answer(body, caller_of(request), idempotency_key=key)
        return Response(answered, status=status, headers=headers)


async def _streamed(body: Any, caller: Caller, key: str | None) -> tuple[int, Any]:
    status, answered, _headers = await answer(body, caller, idempotency_key=key)
    return status, answered


class BatchView(LoopView):
    @described("execute_batch", "Call up to 50 tools, one after the other")
    async def post(self, request: Request) -> Response:
        """Answers come in the order of the calls; a failed one does not stop the rest.

        The batch costs its length on the rate limit and is refused whole when that is too much. With an
        `Idempotency-Key` every call gets a key of its own made from it.
        """
        calls = request.data
        if not isinstance(calls, list) or len(calls) > MAX_BATCH:
            raise invalid(f"A batch is a list of at most {MAX_BATCH} calls.", body=f"list of at most {MAX_BATCH}")
        await ratelimit.spend(caller_of(request), len(calls))
        key = request.headers.get("Idempotency-Key")
        answers = []
        for number, body in enumerate(calls):
            caller = caller_of(request)  # of its own: a call that runs out of time cancels its caller
            own_key = None if key is None else f"{key}/{number}"
            answers.append(await self._one(body, caller, own_key))
        return Response(answers)

    @staticmethod
    async def _one(body: Any, caller: Caller, key: str | None) -> dict[str, Any]:
        request_id: str | None = None
        try:
            request_id = request_id_in(body)
            _status, answered, _headers = await answer(body, caller, idempotency_key=key, prepaid=True)
        except DevFlowError as exc:
            return prd_failure(exc, request_id=request_id, trace_id=caller.trace_id)
        return answered


class HealthView(LoopView):
    permission_classes = (AllowAny,)

    @described("health", "Is every part up?")
    async def get(self, request: Request) -> Response:
        """Without a key: the status alone."""
        report = await run_blocking(health.as_json)
        return Response(report if request.auth is not None else {"status": report["status"]})


class MetricsView(LoopView):
    @described("metrics", "Calls, errors and times, per tool")
    async def get(self, request: Request) -> Response:
        return Response(await run_blocking(metrics.as_json))


class PrometheusView(MachineView):
    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        return HttpResponse(metrics.as_text(), content_type=CONTENT_TYPE_LATEST)


class UnknownPath(MachineView):
    """Whatever else lies under /mcp/: 401 without a key like everything there, then 404."""

    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> NoReturn:
        super().initial(request, *args, **kwargs)
        raise not_found("Path", request.path, suggestion="GET /api/schema/ describes every path.")


class UnknownApiPath(UnknownPath):
    """The same under /api/, where a login counts too."""

    authentication_classes = (ApiKeyAuthentication, SessionAuthentication)


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Alive: answered without touching anything."""
    return JsonResponse({"status": "alive"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Ready for work: every part was asked; 503 while draining or while one that is needed is down."""
    if draining.is_set():
        return JsonResponse({"status": "draining"}, status=503)
    reports = health.parts()
    ready = all(report.status != "down" or not report.essential for report in reports.values())
    parts = {name: report.status for name, report in reports.items()}
    return JsonResponse({"status": "ready" if ready else "down", "parts": parts}, status=200 if ready else 503)
