"""Keys and the log of calls under /api/v1/."""

from typing import Any

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from devflow.errors import forbidden
from devflow.rest import EventCursor, Exact, KeyFirst, Since, Text
from mcpbridge import keys
from mcpbridge.api import gateway_viewsets
from mcpbridge.keys import SCOPES, Issuer
from mcpbridge.models import ApiKey, ToolCall
from mcpbridge.tooling import TOOLSETS, Scope


def issuer_of(request: Request) -> Issuer:
    """Raises `forbidden` for a key without the scope `admin`."""
    identity: Any = request.auth
    if identity is None:
        return keys.person(request.user)
    if Scope.ADMIN not in identity.scopes:
        raise forbidden("This key needs the scope `admin` for that.", suggestion="Use a key that has it.")
    return Issuer(identity.scope, frozenset(SCOPES), identity.toolsets, identity.expires_at)


class KeySerializer(serializers.ModelSerializer[ApiKey]):
    project = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    owner = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)

    class Meta:
        model = ApiKey
        fields = (
            *("id", "prefix", "name", "scopes", "project", "owner", "toolsets", "expose", "names"),
            *("rate_per_minute", "created_at", "expires_at", "revoked_at", "last_used_at"),
        )
        read_only_fields = fields


class FreshKeySerializer(KeySerializer):
    key = serializers.CharField(read_only=True, help_text="The key itself, shown this once.")

    class Meta(KeySerializer.Meta):
        fields = (*KeySerializer.Meta.fields, "key")  # type: ignore[assignment]  # one more than the base's tuple
        read_only_fields = fields  # type: ignore[assignment]  # likewise


class KeyCreate(Exact):
    name = Text(max_length=100)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=SCOPES), min_length=1, max_length=len(SCOPES), default=["read", "write"]
    )
    project = serializers.SlugField(required=False, allow_null=True)
    expires_in_days = serializers.IntegerField(min_value=1, max_value=3650, required=False, allow_null=True)
    rate_per_minute = serializers.IntegerField(min_value=0, max_value=1_000_000, required=False, allow_null=True)
    toolsets = serializers.ListField(
        child=serializers.ChoiceField(choices=sorted(TOOLSETS)), max_length=10, required=False
    )


class KeyViewSet(ListModelMixin, RetrieveModelMixin, KeyFirst, GenericViewSet[ApiKey]):
    """API keys: your own, or all of them for an administrator."""

    permission_classes = (IsAuthenticated,)
    serializer_class = KeySerializer
    search_fields = ("name", "identifier")
    ordering_fields = ("created_at", "name", "last_used_at")
    http_method_names = ("get", "post", "delete", "head", "options")

    def get_queryset(self) -> QuerySet[ApiKey]:
        return keys.visible_to(issuer_of(self.request))

    def get_serializer_class(self) -> Any:
        return KeyCreate if self.action == "create" else KeySerializer

    @extend_schema(request=KeyCreate, responses={201: FreshKeySerializer})
    def create(self, request: Request) -> Response:
        """The answer shows the key; nothing shows it again."""
        issuer = issuer_of(request)
        given = KeyCreate(data=request.data)
        given.is_valid(raise_exception=True)
        row, raw = keys.issue(issuer, **given.validated_data)
        row = self.get_queryset().get(pk=row.pk)
        return Response({**KeySerializer(row).data, "key": raw}, status=201)

    @extend_schema(request=None, responses=KeySerializer)
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """End it; it stops working everywhere within 5 seconds. Repeating that changes nothing."""
        key = self.get_object()
        keys.revoke(key)
        return Response(KeySerializer(key).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """The same as `revoke`: the row stays for the log of calls."""
        keys.revoke(self.get_object())
        return Response(status=204)


@extend_schema_serializer(component_name="LoggedCall")
class CallSerializer(serializers.ModelSerializer[ToolCall]):
    project = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)

    class Meta:
        model = ToolCall
        fields = (
            *("id", "at", "trace_id", "key_name", "agent_name", "project", "transport", "client", "tool", "effect"),
            *("backend", "outcome", "duration_ms", "spans", "arguments", "error"),
        )
        read_only_fields = fields


class CallRows(django_filters.FilterSet):
    project = django_filters.CharFilter(field_name="project__slug", label="Project (slug)")
    agent = django_filters.CharFilter(field_name="agent_name", label="Agent")
    since = Since(field_name="at", lookup_expr="gte", label="Since")

    class Meta:
        model = ToolCall
        fields = ("tool", "backend", "outcome", "effect", "transport", "trace_id")


class CallViewSet(ListModelMixin, RetrieveModelMixin, KeyFirst, GenericViewSet[ToolCall]):
    """The log of calls, newest first. Nobody changes it."""

    permission_classes = (IsAuthenticated,)
    serializer_class = CallSerializer
    filterset_class = CallRows
    pagination_class = EventCursor
    search_fields = ("tool", "agent_name", "key_name", "error")
    ordering_fields = ()
    http_method_names = ("get", "head", "options")

    def get_queryset(self) -> QuerySet[ToolCall]:
        return keys.calls_of(issuer_of(self.request))


def register(router: Any) -> None:
    router.register("keys", KeyViewSet, basename="key")
    router.register("calls", CallViewSet, basename="call")
    gateway_viewsets.register(router)
