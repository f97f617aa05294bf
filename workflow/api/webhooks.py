"""Webhooks and the log of their deliveries, for admins of the project; a key needs the scope `admin`, also to read."""

from typing import Any

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from devflow.errors import forbidden
from devflow.rest import EventCursor, Exact, Text
from devflow.viewsets import scope_of
from workflow.api.access import WorkflowRows, project_named
from workflow.models import Delivery, Project, Webhook
from workflow.models.webhooks import MOST_NAME, MOST_URL
from workflow.selectors import webhooks as selectors
from workflow.services import webhooks


class Kinds(serializers.ListField):
    """Kinds of events."""

    def __init__(self, **options: Any) -> None:
        super().__init__(child=Text(max_length=40), max_length=100, required=False, **options)


class WebhookSerializer(serializers.ModelSerializer[Webhook]):
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)
    kinds = serializers.ListField(child=serializers.CharField(), read_only=True, help_text="Empty: all.")

    class Meta:
        model = Webhook
        fields: tuple[str, ...] = (
            *("id", "project", "name", "url", "kinds", "active", "disabled_reason", "failures", "failing_since"),
            *("delivered_at", "old_secret_until", "created_by", "created_at"),
        )
        read_only_fields: tuple[str, ...] = fields


class FreshWebhookSerializer(WebhookSerializer):
    secret = serializers.CharField(read_only=True, help_text="Shown this once.")

    class Meta(WebhookSerializer.Meta):
        fields = (*WebhookSerializer.Meta.fields, "secret")
        read_only_fields = fields


class WebhookChange(Exact):
    url = Text(max_length=MOST_URL, required=False)
    name = Text(max_length=MOST_NAME, required=False, allow_blank=True)
    kinds = Kinds(help_text="Such as `task.done`, or `task.*` for all of a subject; empty: all.")
    active = serializers.BooleanField(required=False)


class WebhookCreate(Exact):
    project = serializers.SlugField()
    url = Text(max_length=MOST_URL)
    name = Text(max_length=MOST_NAME, required=False, allow_blank=True)
    kinds = Kinds(help_text="Such as `task.done`, or `task.*` for all of a subject; empty: all.")


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    project = serializers.CharField(source="webhook.project.slug", read_only=True)
    message_id = serializers.CharField(read_only=True, help_text="The `webhook-id` of every try.")

    class Meta:
        model = Delivery
        fields = (
            *("id", "project", "webhook", "message_id", "kind", "sequence", "payload", "status", "attempts"),
            *("next_try_at", "created_at", "tried_at", "duration_ms", "response_status", "response_type"),
            *("response_body", "error"),
        )
        read_only_fields = fields


class WebhookRows(django_filters.FilterSet):
    project = django_filters.CharFilter(field_name="project__slug", label="Project (slug)")

    class Meta:
        model = Webhook
        fields = ("active",)


class DeliveryRows(django_filters.FilterSet):
    project = django_filters.CharFilter(field_name="webhook__project__slug", label="Project (slug)")
    webhook = django_filters.NumberFilter(field_name="webhook", min_value=1, max_value=2**63 - 1, label="Webhook (id)")

    class Meta:
        model = Delivery
        fields = ("status", "kind")


class AdminRows(WorkflowRows):
    write_scope = "admin"

    def check_permissions(self, request: Request) -> None:
        super().check_permissions(request)
        identity: Any = request.auth
        if identity is not None and "admin" not in identity.scopes:
            raise forbidden("This key needs the scope `admin` for webhooks.", suggestion="Use a key that has it.")

    def get_queryset(self) -> QuerySet[Any]:
        if getattr(self, "swagger_fake_view", False):  # the schema is made without a caller
            return self.rows.none()
        return self.rows.filter(**{f"{self.project_path}__in": selectors.administered(scope_of(self.request))})


class WebhookViewSet(ListModelMixin, RetrieveModelMixin, AdminRows):
    """Addresses that are told what happens in a project. Only its admins see them."""

    rows = Webhook.objects.select_related("project").order_by("pk")
    serializer_class = WebhookSerializer
    filterset_class = WebhookRows
    write_serializers = {"create": WebhookCreate, "partial_update": WebhookChange}
    search_fields = ("name", "url")
    ordering_fields = ("id", "name", "created_at", "delivered_at")

    def fresh(self, webhook: Webhook, secret: str, *, created: bool = False) -> Response:
        body = {**WebhookSerializer(self.get_queryset().get(pk=webhook.pk)).data, "secret": secret}
        return Response(body, status=201 if created else 200, headers={"Cache-Control": "no-store"})

    @extend_schema(request=WebhookCreate, responses={201: FreshWebhookSerializer})
    def create(self, request: Request) -> Response:
        """The answer shows the secret; nothing shows it again."""
        values = self.given(request)
        project = project_named(request, values.pop("project"))
        made, secret = webhooks.create(project_id=project.pk, actor=self.writer(project.pk, admin=True), **values)
        return self.fresh(made, secret, created=True)

    @extend_schema(request=WebhookChange, responses=WebhookSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """`active` switches it on and off; what happens while it is off is not sent later."""
        webhook: Webhook = self.get_object()
        webhooks.change(webhook_id=webhook.pk, actor=self.writer(webhook.project_id, admin=True), **self.given(request))
        return self.shown(webhook.pk)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Its log of deliveries goes with it."""
        webhook: Webhook = self.get_object()
        webhooks.delete(webhook_id=webhook.pk, actor=self.writer(webhook.project_id, admin=True))
        return Response(status=204)

    @extend_schema(request=None, responses=FreshWebhookSerializer)
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        """A new secret, shown this once. For a day messages are signed with both."""
        webhook: Webhook = self.get_object()
        return self.fresh(*webhooks.rotate(webhook_id=webhook.pk, actor=self.writer(webhook.project_id, admin=True)))

    @extend_schema(request=None, responses={202: DeliverySerializer})
    @action(detail=True, methods=["post"])
    def ping(self, request: Request, pk: str) -> Response:
        """Send a test; its delivery says how that went."""
        webhook: Webhook = self.get_object()
        self.writer(webhook.project_id, admin=True)
        return Response(DeliverySerializer(webhooks.ping(webhook_id=webhook.pk)).data, status=202)


class DeliveryViewSet(ListModelMixin, RetrieveModelMixin, AdminRows):
    """What webhooks were told, newest first, and how the last try went."""

    rows = Delivery.objects.select_related("webhook__project")
    project_path = "webhook__project"
    serializer_class = DeliverySerializer
    filterset_class = DeliveryRows
    pagination_class = EventCursor
    search_fields = ("kind", "error")
    ordering_fields = ()
    http_method_names = ("get", "post", "head", "options")

    @extend_schema(request=None, responses={202: DeliverySerializer})
    @action(detail=True, methods=["post"])
    def redeliver(self, request: Request, pk: str) -> Response:
        """Send it again with its old id, with all the tries of a new one."""
        delivery: Delivery = self.get_object()
        self.writer(delivery.webhook.project_id, admin=True)
        webhooks.send_again(delivery_id=delivery.pk)
        return Response(DeliverySerializer(self.get_queryset().get(pk=delivery.pk)).data, status=202)
