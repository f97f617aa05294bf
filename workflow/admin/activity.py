"""Agents, messages, gates and events: what happened is read, not written."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from import_export.admin import ExportMixin
from import_export.resources import ModelResource

from devflow.actors import Actor
from devflow.administration import ReadOnlyAdmin, each
from workflow.models import (
    Agent,
    Event,
    Gate,
    Message,
    Task,
)
from workflow.services import agents, gates


@admin.register(Agent)
class AgentAdmin(ReadOnlyAdmin):
    list_display = ("name", "project", "presence", "phase", "client", "transport", "last_action", "last_seen")
    list_select_related = ("project", "phase__project")
    list_filter = ("project", "transport", ("retired_at", admin.EmptyFieldListFilter))
    search_fields = ("name", "client")
    date_hierarchy = "last_seen"
    exclude = ("observations",)
    actions = ("retire",)

    def get_queryset(self, request: HttpRequest) -> Any:
        held = Task.objects.held(timezone.now()).filter(assigned_agent=OuterRef("pk"))
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("project", "phase").annotate(holds_lease=Exists(held))

    @admin.display(description="status")
    def presence(self, agent: Any) -> str:
        status: str = agent.presence(at=timezone.now(), holds_lease=agent.holds_lease)
        return status

    @admin.action(description="Retire (its tasks become ready)", permissions=["retire"])
    def retire(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        each(
            self, request, queryset, "retired", lambda agent, actor: agents.retire(
                project_id=agent.project_id, agent_id=agent.pk, actor=actor
            )
        )  # fmt: skip

    def has_retire_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("workflow.change_agent")


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    list_display = ("delivered_at", "project", "sender_name", "recipient", "kind", "start", "acknowledged_at")
    list_display_links = ("start",)
    list_select_related = ("project", "recipient")
    list_filter = ("kind", "sender_kind", ("acknowledged_at", admin.EmptyFieldListFilter), "project")
    search_fields = ("body", "sender_name", "recipient__name")
    date_hierarchy = "delivered_at"

    @admin.display(description="message")
    def start(self, message: Message) -> str:
        return message.body[:80]


@admin.register(Gate)
class GateAdmin(ReadOnlyAdmin):
    list_display = ("name", "is_set", "project", "phase", "task", "actor_name", "reason", "changed_at")
    list_select_related = ("project", "phase", "task")
    list_filter = ("is_set", "name", "project")
    search_fields = ("name", "reason", "actor_name")
    actions = ("set_gates", "clear_gates")

    def has_gate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("workflow.change_gate")

    @admin.action(description="Set", permissions=["gate"])
    def set_gates(self, request: HttpRequest, queryset: QuerySet[Gate]) -> None:
        self._turn(request, queryset, is_set=True)

    @admin.action(description="Clear", permissions=["gate"])
    def clear_gates(self, request: HttpRequest, queryset: QuerySet[Gate]) -> None:
        self._turn(request, queryset, is_set=False)

    def _turn(self, request: HttpRequest, queryset: QuerySet[Gate], *, is_set: bool) -> None:
        def turn(gate: Gate, actor: Actor) -> Gate:
            return gates.set_gate(
                project_id=gate.project_id,
                name=gate.name,
                actor=actor,
                is_set=is_set,
                task_id=gate.task_id,
                phase_number=gate.phase.number if gate.phase else None,
                reason="changed in the admin",
                expected_version=gate.version,
            )

        each(self, request, queryset.select_related("phase"), "set" if is_set else "cleared", turn)


class EventRows(ModelResource):
    class Meta:
        model = Event
        fields = ("id", "at", "project__slug", "kind", "actor_kind", "actor_name", "tool", "task", "before", "after")


@admin.register(Event)
class EventAdmin(ExportMixin, ReadOnlyAdmin):
    resource_classes: ClassVar = [EventRows]
    list_display = ("at", "project", "kind", "actor_name", "tool", "task", "phase")
    list_select_related = ("project", "task", "phase")
    list_filter = ("kind", "actor_kind", "project")
    search_fields = ("actor_name", "tool", "task__subject")
    date_hierarchy = "at"
