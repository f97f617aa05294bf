"""Webhooks and what they were told. Their secrets are shown nowhere."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from devflow.administration import ReadOnlyAdmin, each
from workflow.models import Delivery, Webhook
from workflow.services import webhooks


@admin.register(Webhook)
class WebhookAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "project", "host", "kind_list", "active", "failures", "delivered_at", "created_by")
    list_select_related = ("project",)
    list_filter = ("active", ("failing_since", admin.EmptyFieldListFilter), "project")
    search_fields = ("name", "url", "created_by")
    exclude = ("secret", "old_secret", "url")
    readonly_fields = ("host",)
    actions = ("switch_on", "switch_off")

    @admin.display(description="kinds")
    def kind_list(self, webhook: Webhook) -> str:
        return ", ".join(webhook.kinds) or "all"

    def has_switch_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("workflow.change_webhook")

    @admin.action(description="Switch on", permissions=["switch"])
    def switch_on(self, request: HttpRequest, queryset: QuerySet[Webhook]) -> None:
        self._switch(request, queryset, active=True)

    @admin.action(description="Switch off (what waits is not sent)", permissions=["switch"])
    def switch_off(self, request: HttpRequest, queryset: QuerySet[Webhook]) -> None:
        self._switch(request, queryset, active=False)

    def _switch(self, request: HttpRequest, queryset: QuerySet[Webhook], *, active: bool) -> None:
        def switch(webhook: Webhook, actor: Any) -> Webhook:
            return webhooks.change(webhook_id=webhook.pk, actor=actor, active=active)

        each(self, request, queryset, "switched on" if active else "switched off", switch)


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "project", "webhook", "kind", "status", "attempts", "response_status", "error")
    list_select_related = ("webhook__project",)
    list_filter = ("status", "kind", "webhook__project")
    search_fields = ("kind", "error", "webhook__name", "webhook__url")
    date_hierarchy = "created_at"
    actions = ("send_again",)

    @admin.display(description="project", ordering="webhook__project")
    def project(self, delivery: Delivery) -> str:
        return str(delivery.webhook.project)

    def has_send_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("workflow.change_delivery")

    @admin.action(description="Send again", permissions=["send"])
    def send_again(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        each(
            self,
            request,
            queryset,
            "will be sent again",
            lambda delivery, _actor: webhooks.send_again(delivery_id=delivery.pk),
        )
