"""Backends with their actions, composite tools and plans under /api/v1/: rows that services of the gateway write."""

from dataclasses import asdict
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.permissions import IsAuthenticated
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from devflow.rest import KeyFirst
from devflow.viewsets import KeyScopes, projects_of, scope_of
from mcpbridge.api.gateway_rows import (
    ActionChange,
    ActionRows,
    ActionSerializer,
    Approval,
    BackendChange,
    BackendCreate,
    BackendRows,
    BackendSerializer,
    CompositeGiven,
    CompositeRows,
    CompositeSerializer,
    DiffSerializer,
    ImportDone,
    ImportGiven,
    LookedSerializer,
    PlanRows,
    PlanSerializer,
    administers,
    require_administrator,
)
from mcpbridge.gateway import backends, composites, differences, importing, looking
from mcpbridge.gateway.catalog import action_spec, backend_spec
from mcpbridge.gateway.specs import fingerprint_of
from mcpbridge.models import Action, Backend, CompositeTool, Plan

_ID = "[A-Za-z0-9_-]{1,64}"
_NO_KEY = "YOUR_API_KEY"


class MarkdownRenderer(BaseRenderer):
    media_type = "text/markdown"
    format = "md"
    charset = "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return str(data).encode()


class GatewayRows(KeyFirst, GenericViewSet[Any]):
    """Rows of the gateway: a key needs the scope `read`, and to change them `admin`."""

    permission_classes = (IsAuthenticated, KeyScopes)
    toolset = "gateway"
    write_scope = "admin"
    http_method_names: Any = ("get", "post", "patch", "delete", "head", "options")
    ordering_fields: Any = ()

    def get_serializer_context(self) -> dict[str, Any]:
        is_real = not getattr(self, "swagger_fake_view", False)  # the schema is made without a caller
        return {**super().get_serializer_context(), "is_administrator": is_real and administers(self.request)}

    @staticmethod
    def given(request: Request, serializer: Any) -> dict[str, Any]:
        checked = serializer(data=request.data)
        checked.is_valid(raise_exception=True)
        return dict(checked.validated_data)


class BackendViewSet(ListModelMixin, RetrieveModelMixin, GatewayRows):
    """Other MCP servers behind the gateway. Only administrators of this server change them or see their commands."""

    serializer_class = BackendSerializer
    filterset_class = BackendRows
    search_fields = ("backend_id", "display_name")
    ordering_fields = ("backend_id", "status", "created_at", "checked_at")
    lookup_field = "backend_id"
    lookup_url_kwarg = "id"
    lookup_value_regex = _ID

    def get_queryset(self) -> QuerySet[Backend]:
        tools, held = Q(actions__is_gone=False), Q(actions__is_gone=False, actions__held__isnull=False)
        return Backend.objects.annotate(tools=Count("actions", tools), held=Count("actions", held)).order_by(
            "backend_id"
        )

    def _shown(self, backend_id: str, status: int = 200) -> Response:
        row = self.get_queryset().get(backend_id=backend_id)
        return Response(BackendSerializer(row, context=self.get_serializer_context()).data, status=status)

    @extend_schema(request=BackendCreate, responses={201: BackendSerializer})
    def create(self, request: Request) -> Response:
        """Register one. `warnings` of the answer say what is worth a second look; `test` asks it for its tools."""
        by = require_administrator(request)
        kept = backends.create(by=by, **self.given(request, BackendCreate))
        return self._shown(kept.backend.backend_id, status=201)

    @extend_schema(request=BackendChange, responses=BackendSerializer)
    def partial_update(self, request: Request, id: str) -> Response:
        """What is left out stays. Sessions opened with the old settings end."""
        by = require_administrator(request)
        backends.change(id, by=by, **self.given(request, BackendChange))
        return self._shown(id)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, id: str) -> Response:
        """With its actions and what was said of them."""
        backends.remove(id, by=require_administrator(request))
        return Response(status=204)

    @extend_schema(request=None, responses=LookedSerializer)
    @action(detail=True, methods=["post"])
    def test(self, request: Request, id: str) -> Response:
        """Ask it for its tools now; answers what it said, or why it did not. May take more than a minute."""
        require_administrator(request)
        return Response(LookedSerializer(asdict(looking.look(id))).data)

    @extend_schema(request=ImportGiven, responses=ImportDone)
    @action(detail=False, methods=["post"], url_path="import")
    def import_file(self, request: Request) -> Response:
        """Bring in what another client's file names. What is registered and the same stays as it is."""
        by = require_administrator(request)
        given = self.given(request, ImportGiven)
        found = importing.bring_in(given["text"], by=None if given["preview"] else by)
        return Response({"entries": [asdict(entry) for entry in found]})

    @extend_schema(responses={(200, "text/markdown"): OpenApiTypes.STR})
    @action(detail=True, url_path="agent-gateway.md", renderer_classes=[MarkdownRenderer, JSONRenderer])
    def agent_gateway(self, request: Request, id: str) -> HttpResponse:
        """The agent file of the gateway pattern: one agent that has this backend's tools and nothing else."""
        from mcpbridge.gateway import agent_files

        row = backends.find(id)
        actions = [action_spec(one, id) for one in row.actions.filter(is_gone=False)]
        return HttpResponse(
            agent_files.agent_gateway(backend_spec(row), actions), content_type="text/markdown; charset=utf-8"
        )

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    @action(detail=True, url_path="mcp.json")
    def client_config(self, request: Request, id: str) -> Response:
        """What a client's `.mcp.json` says to reach this backend through DevFlow; put a key of yours in it."""
        from mcpbridge.gateway import agent_files
        from mcpbridge.views import base_url

        row = backends.find(id)
        return Response(agent_files.client_config(base_url(request._request), row.backend_id, _NO_KEY))


@extend_schema(parameters=[OpenApiParameter("backend", OpenApiTypes.STR, OpenApiParameter.PATH)])
class ActionViewSet(ListModelMixin, RetrieveModelMixin, GatewayRows):
    """What a backend can do. Only administrators of this server change what is said of it or approve a change."""

    serializer_class = ActionSerializer
    filterset_class = ActionRows
    search_fields = ("name", "title", "description")
    ordering_fields = ("name", "first_seen", "changed_at")
    lookup_field = "name"
    lookup_value_regex = "[^/]+"

    def get_queryset(self) -> QuerySet[Action]:
        rows = Action.objects.select_related("backend").order_by("name")
        if getattr(self, "swagger_fake_view", False):
            return rows.none()
        return rows.filter(backend=backends.find(self.kwargs["backend"]))

    @extend_schema(request=ActionChange, responses=ActionSerializer)
    def partial_update(self, request: Request, backend: str, name: str) -> Response:
        """Say something else of it than its backend does; an empty override takes that back."""
        by = require_administrator(request)
        row = backends.change_action(backend, name, by=by, **self.given(request, ActionChange))
        return Response(ActionSerializer(row).data)

    @extend_schema(responses=DiffSerializer)
    @action(detail=True)
    def diff(self, request: Request, backend: str, name: str) -> Response:
        """How a held action differs from what was approved."""
        row = self.get_object()
        fingerprint = fingerprint_of(row.held) if row.held else None
        return Response({"held_fingerprint": fingerprint, "diff": differences.as_text(row)})

    @extend_schema(request=Approval, responses=ActionSerializer)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, backend: str, name: str) -> Response:
        """Say yes to what a held action wants to be. With `fingerprint`, only to what you looked at."""
        by = require_administrator(request)
        given = self.given(request, Approval)
        row = backends.approve(backend, name, by=by, fingerprint=given.get("fingerprint"))
        return Response(ActionSerializer(row).data)


class CompositeViewSet(ListModelMixin, RetrieveModelMixin, GatewayRows):
    """Composite tools, every version of them. A change is a new version; `DELETE` retires one."""

    serializer_class = CompositeSerializer
    filterset_class = CompositeRows
    queryset = CompositeTool.objects.order_by("name", "-version")
    search_fields = ("name", "description")
    ordering_fields = ("name", "version", "created_at")
    lookup_value_regex = "[0-9]{1,18}"

    @extend_schema(request=CompositeGiven, responses={201: CompositeSerializer})
    def create(self, request: Request) -> Response:
        """Make one, or the next version where there is one of that name. The same again changes nothing."""
        require_administrator(request)
        row = composites.save(**self.given(request, CompositeGiven))
        return Response(CompositeSerializer(row).data, status=201)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Retire this version: it is not called any more, and stays for the record."""
        require_administrator(request)
        row = self.get_object()
        composites.retire(row.name, row.version)
        return Response(status=204)


class PlanViewSet(ListModelMixin, RetrieveModelMixin, GatewayRows):
    """What the orchestrator would do and somebody must confirm: your projects' plans, and those of your own key."""

    serializer_class = PlanSerializer
    filterset_class = PlanRows
    search_fields = ("query", "agent_name")
    ordering_fields = ("created_at", "expires_at")
    lookup_field = "plan_id"
    lookup_url_kwarg = "id"
    lookup_value_regex = "[0-9a-f]{1,32}"
    http_method_names = ("get", "head", "options")

    def get_queryset(self) -> QuerySet[Plan]:
        rows = Plan.objects.select_related("project").order_by("-created_at", "-pk")
        if getattr(self, "swagger_fake_view", False):
            return rows.none()
        if administers(self.request):
            return rows
        scope = scope_of(self.request)
        mine = Q(project__in=[project.id for project in projects_of(self.request)])
        if scope.key_id:
            mine |= Q(key=scope.key_id)
        return rows.filter(mine)


def register(router: Any) -> None:
    router.register("backends", BackendViewSet, basename="backend")
    router.register(rf"backends/(?P<backend>{_ID})/actions", ActionViewSet, basename="action")
    router.register("composites", CompositeViewSet, basename="composite")
    router.register("plans", PlanViewSet, basename="plan")
