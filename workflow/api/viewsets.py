"""Projects, members, phases, agents, messages, gates and events. Tasks and dependencies are in `task_viewsets`."""

from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from pydantic import ValidationError
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from devflow import actors
from devflow.errors import forbidden, invalid, not_found
from devflow.rest import EventCursor
from devflow.viewsets import may_administer, scope_of
from workflow.api import filters
from workflow.api import serializers as shapes
from workflow.api.access import WorkflowRows, owner_of, project_named, visible
from workflow.models import Agent, Event, Gate, Membership, Message, Phase, Project, Task
from workflow.services import agents, gates, messages, phases, projects
from workflow.services.phases import PhaseFile


class ProjectViewSet(ListModelMixin, RetrieveModelMixin, WorkflowRows):
    """Projects you see. Making one needs an administrator (a superuser, or a key with the scope `admin`)."""

    rows = Project.objects.all()
    serializer_class = shapes.ProjectSerializer
    write_serializers = {"create": shapes.ProjectCreate, "partial_update": shapes.ProjectChange}
    write_scope = "admin"
    lookup_field = "slug"
    lookup_value_regex = "[-a-zA-Z0-9_]{1,50}"
    search_fields = ("slug", "name", "description")
    ordering_fields = ("slug", "name", "created_at")

    def get_queryset(self) -> QuerySet[Project]:
        return visible(self.request)

    def shown(self, pk: Any, *, created: bool = False) -> Response:
        body = self.serializer_class(Project.objects.get(pk=pk)).data
        return Response(body, status=201 if created else 200)

    @extend_schema(request=shapes.ProjectCreate, responses={201: shapes.ProjectSerializer})
    def create(self, request: Request) -> Response:
        values = self.given(request)
        scope, owner = scope_of(request), owner_of(request)
        if scope.project_id is not None or (owner is not None and not owner.is_superuser):
            raise forbidden("Only an administrator makes projects.", suggestion="Ask one, or use `devflow demo`.")
        made = projects.create(**values, owner_id=None if owner is None else owner.pk, actor=_person(request))
        return self.shown(made.pk, created=True)

    @extend_schema(request=shapes.ProjectChange, responses=shapes.ProjectSerializer)
    def partial_update(self, request: Request, slug: str) -> Response:
        project = self.get_object()
        actor = self.writer(project.pk, admin=True)
        projects.configure(project_id=project.pk, actor=actor, **self.given(request))
        return self.shown(project.pk)


def _person(request: Request) -> actors.Actor:
    """Who acts where there is no project to be an agent in."""
    if request.auth is not None:
        return actors.Actor(kind="system", name=request.user.get_username(), tool="api")
    return actors.person(user_id=int(request.user.pk or 0), name=request.user.get_username(), tool="api")


class MembershipViewSet(ListModelMixin, RetrieveModelMixin, WorkflowRows):
    """Who belongs to a project, as viewer, member or admin. Its admins change that."""

    rows = Membership.objects.select_related("project", "user").order_by("pk")
    serializer_class = shapes.MembershipSerializer
    filterset_class = filters.MembershipRows
    write_serializers = {"create": shapes.MembershipSet, "partial_update": shapes.MembershipChange}
    write_scope = "admin"
    search_fields = ("user__username",)
    ordering_fields = ("id", "role")

    @extend_schema(request=shapes.MembershipSet, responses={201: shapes.MembershipSerializer})
    def create(self, request: Request) -> Response:
        values = self.given(request)
        project = project_named(request, values["project"])
        actor = self.writer(project.pk, admin=True)
        user = get_user_model()._default_manager.filter(username=values["user"], is_active=True).first()
        if user is None:
            raise not_found("User", values["user"], suggestion="An administrator makes users in the admin.")
        made = projects.set_member(project_id=project.pk, user_id=user.pk, role=values["role"], actor=actor)
        return self.shown(made.pk, created=True)

    @extend_schema(request=shapes.MembershipChange, responses=shapes.MembershipSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        member: Membership = self.get_object()
        actor = self.writer(member.project_id, admin=True)
        role = self.given(request)["role"]
        projects.set_member(project_id=member.project_id, user_id=member.user_id, role=role, actor=actor)
        return self.shown(member.pk)


class PhaseViewSet(ListModelMixin, RetrieveModelMixin, WorkflowRows):
    """Phases with their done definitions."""

    rows = (
        Phase.objects.select_related("project", "entry_phase")
        .prefetch_related("done_definitions")
        .order_by("project", "number")
    )
    serializer_class = shapes.PhaseSerializer
    filterset_class = filters.PhaseRows
    write_serializers = {"create": shapes.PhaseCreate, "partial_update": shapes.PhaseChange}
    write_scope = "admin"
    search_fields = ("name", "description")
    ordering_fields = ("number", "name")

    @extend_schema(request=shapes.PhaseCreate, responses={201: shapes.PhaseSerializer})
    def create(self, request: Request) -> Response:
        values = self.given(request)
        project = project_named(request, values.pop("project"))
        actor = self.writer(project.pk, admin=True)
        number = values.pop("number")
        if Phase.objects.filter(project=project, number=number).exists():
            raise invalid(f"There is a phase {number} already; PATCH it, or choose another number.", number="in use")
        made = phases.save(project_id=project.pk, number=number, content=_phase_file(values), actor=actor)
        return self.shown(made.pk, created=True)

    @extend_schema(request=shapes.PhaseChange, responses=shapes.PhaseSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        phase: Phase = self.get_object()
        actor = self.writer(phase.project_id, admin=True)
        given = shapes.PhaseChange(data=request.data, partial=True)
        given.is_valid(raise_exception=True)
        current = {
            name: getattr(phase, name) for name in PhaseFile.model_fields if name not in ("entry", "done_definitions")
        } | {
            "done_definitions": [item.text for item in phase.done_definitions.all()],
            "entry_phase": phase.entry_phase.number if phase.entry_phase else None,
            "entry_done_tasks": phase.entry_done_tasks,
        }
        content = _phase_file(current | dict(given.validated_data))
        phases.save(project_id=phase.project_id, number=phase.number, content=content, actor=actor)
        return self.shown(phase.pk)


def _phase_file(values: dict[str, Any]) -> PhaseFile:
    entry, done_tasks = values.pop("entry_phase", None), values.pop("entry_done_tasks", 1)
    if entry is not None:
        values["entry"] = {"phase": entry, "done_tasks": done_tasks}
    try:
        return PhaseFile.model_validate(values)
    except ValidationError as exc:
        reasons = {".".join(map(str, error["loc"])): error["msg"] for error in exc.errors(include_url=False)}
        raise invalid(next(iter(reasons.values())), **reasons) from None


class AgentViewSet(ListModelMixin, RetrieveModelMixin, WorkflowRows):
    """Agents: registered by their first call, never by hand."""

    toolset = "agents"

    serializer_class = shapes.AgentSerializer
    filterset_class = filters.AgentRows
    search_fields = ("name", "client", "last_action")
    ordering_fields = ("name", "last_seen", "started_at")
    rows = Agent.objects.select_related("project", "phase").order_by("-last_seen", "pk")

    def narrowed(self, rows: QuerySet[Agent]) -> QuerySet[Agent]:
        held = Task.objects.held(timezone.now()).filter(assigned_agent=OuterRef("pk"))
        return rows.annotate(holds_lease=Exists(held))

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "now": timezone.now()}

    @extend_schema(request=None, responses=shapes.AgentSerializer)
    @action(detail=True, methods=["post"])
    def retire(self, request: Request, pk: str) -> Response:
        """Take it off the list and its tasks back; it returns with its next call."""
        agent: Agent = self.get_object()
        actor = self.writer(agent.project_id)
        if actor.is_agent and actor.agent_id != agent.pk and not may_administer(request, agent.project_id):
            raise forbidden("An agent may retire itself only.")
        agents.retire(project_id=agent.project_id, agent_id=agent.pk, actor=actor)
        return self.shown(agent.pk)


class MessageViewSet(ListModelMixin, RetrieveModelMixin, WorkflowRows):
    """The agents' inboxes."""

    toolset = "agents"

    rows = Message.objects.select_related("project", "recipient").order_by("-pk")
    serializer_class = shapes.MessageSerializer
    filterset_class = filters.MessageRows
    write_serializers = {"create": shapes.MessageCreate}
    search_fields = ("body", "sender_name")
    ordering_fields = ("id", "delivered_at")

    @extend_schema(request=shapes.MessageCreate, responses={201: shapes.MessageSerializer(many=True)})
    def create(self, request: Request) -> Response:
        values = self.given(request)
        project = project_named(request, values["project"])
        sent = messages.send(
            project_id=project.pk,
            to=values["to"],
            body=values["body"],
            actor=self.writer(project.pk),
            task_id=values.get("task"),
        )
        rows = self.get_queryset().filter(pk__in=[message.pk for message in sent])
        return Response(self.serializer_class(rows, many=True).data, status=201)

    @extend_schema(request=None, responses=shapes.MessageSerializer)
    @action(detail=True, methods=["post"])
    def ack(self, request: Request, pk: str) -> Response:
        """Mark it as read and dealt with: its recipient does, or a person."""
        message: Message = self.get_object()
        actor = self.writer(message.project_id)
        if actor.is_agent and actor.agent_id != message.recipient_id:
            raise forbidden("Only its recipient acknowledges a message.", suggestion="Send that agent's X-Agent-Id.")
        messages.acknowledge(agent_id=message.recipient_id, message_ids=[message.pk])
        return self.shown(message.pk)


class GateViewSet(ListModelMixin, RetrieveModelMixin, WorkflowRows):
    """Markers of a task, a phase or the project. POST sets or clears one by its name."""

    rows = Gate.objects.select_related("project", "phase").order_by("pk")
    serializer_class = shapes.GateSerializer
    filterset_class = filters.GateRows
    write_serializers = {"create": shapes.GateSet}
    search_fields = ("name", "reason")
    ordering_fields = ("name", "changed_at")

    @extend_schema(request=shapes.GateSet, responses=shapes.GateSerializer)
    def create(self, request: Request) -> Response:
        values = self.given(request)
        project = project_named(request, values["project"])
        gate = gates.set_gate(
            project_id=project.pk,
            name=values["name"],
            actor=self.writer(project.pk),
            is_set=values["is_set"],
            task_id=values.get("task"),
            phase_number=values.get("phase"),
            reason=values.get("reason", ""),
            expected_version=values.get("expected_version"),
        )
        return self.shown(gate.pk)


class EventViewSet(ListModelMixin, RetrieveModelMixin, WorkflowRows):
    """What happened, newest first: who, through which tool, what, before and after."""

    rows = Event.objects.select_related("project", "phase")
    serializer_class = shapes.EventSerializer
    filterset_class = filters.EventRows
    pagination_class = EventCursor
    search_fields = ("actor_name", "kind")
    ordering_fields = ()
    http_method_names = ("get", "head", "options")
