"""What lists can be narrowed by."""

import django_filters
from django.db.models import Q, QuerySet

from devflow.rest import Since
from workflow.models import (
    Agent,
    Dependency,
    Event,
    Gate,
    Membership,
    Message,
    Phase,
    Priority,
    Status,
    Task,
    held_up,
)


class ProjectRows(django_filters.FilterSet):
    project = django_filters.CharFilter(field_name="project__slug", label="Project (slug)")


class PhaseRows(ProjectRows):
    class Meta:
        model = Phase
        fields = ("number",)


class TaskRows(ProjectRows):
    phase = django_filters.NumberFilter(field_name="phase__number", min_value=1, max_value=10_000, label="Phase")
    status = django_filters.ChoiceFilter(field_name="current_status", choices=Status.choices, label="Status")
    priority = django_filters.ChoiceFilter(
        choices=[(item.label, item.label) for item in Priority], method="by_priority", label="Priority"
    )
    agent = django_filters.CharFilter(field_name="assigned_agent__name", label="Agent")
    tag = django_filters.CharFilter(method="by_tag", label="Tag")
    blocked = django_filters.BooleanFilter(method="by_blocked", label="Blocked")
    parent = django_filters.NumberFilter(field_name="parent", min_value=1, max_value=2**53, label="Parent (number)")

    class Meta:
        model = Task
        fields = ()

    def by_priority(self, rows: QuerySet[Task], name: str, value: str) -> QuerySet[Task]:
        return rows.filter(priority=Priority.of(value))

    def by_tag(self, rows: QuerySet[Task], name: str, value: str) -> QuerySet[Task]:
        return rows.filter(tags__has=value)

    def by_blocked(self, rows: QuerySet[Task], name: str, value: bool) -> QuerySet[Task]:
        waits = held_up() & ~Q(status__in=[Status.DONE, Status.CANCELLED])
        return rows.filter(waits) if value else rows.exclude(waits)


class DependencyRows(django_filters.FilterSet):
    project = django_filters.CharFilter(field_name="task__project__slug", label="Project (slug)")
    task = django_filters.NumberFilter(min_value=1, max_value=2**53, label="Task (number)")
    blocker = django_filters.NumberFilter(min_value=1, max_value=2**53, label="Blocker (number)")

    class Meta:
        model = Dependency
        fields = ()


class AgentRows(ProjectRows):
    agent_id = django_filters.CharFilter(field_name="name", label="Agent")
    retired = django_filters.BooleanFilter(field_name="retired_at", lookup_expr="isnull", exclude=True, label="Retired")

    class Meta:
        model = Agent
        fields = ()


class MessageRows(ProjectRows):
    recipient = django_filters.CharFilter(field_name="recipient__name", label="Recipient")
    unread = django_filters.BooleanFilter(field_name="acknowledged_at", lookup_expr="isnull", label="Unread")

    class Meta:
        model = Message
        fields = ("kind",)


class GateRows(ProjectRows):
    class Meta:
        model = Gate
        fields = ("name", "is_set")


class EventRows(ProjectRows):
    task = django_filters.NumberFilter(field_name="task", min_value=1, max_value=2**53, label="Task (number)")
    actor = django_filters.CharFilter(field_name="actor_name", label="Actor")
    since = Since(field_name="at", lookup_expr="gte", label="Since")

    class Meta:
        model = Event
        fields = ("kind", "actor_kind", "tool")


class MembershipRows(ProjectRows):
    user = django_filters.CharFilter(field_name="user__username", label="User")

    class Meta:
        model = Membership
        fields = ("role",)
