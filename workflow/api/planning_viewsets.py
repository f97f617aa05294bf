"""Epics, stories, issues, sprints, and the words a project plans with."""

from typing import Any

import django_filters
from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from devflow.errors import invalid
from workflow.api import planning_shapes as shapes
from workflow.api.access import WorkflowRows, project_named
from workflow.api.filters import ProjectRows
from workflow.models import Epic, Issue, IssueType, ItemStatus, Kind, Project, Sprint, UserStory
from workflow.selectors import agile
from workflow.services.agile import items, sprints, words

MOST = 2**53


class ItemRows(ProjectRows):
    """What epics, stories and issues can be narrowed by."""

    status = django_filters.CharFilter(field_name="status__slug", label="Status (slug)")
    category = django_filters.ChoiceFilter(
        field_name="status__category", choices=shapes.CATEGORIES, label="What the status means"
    )
    assigned_to = django_filters.CharFilter(field_name="assigned_to__username", label="Assigned to (user name)")
    unassigned = django_filters.BooleanFilter(field_name="assigned_to", lookup_expr="isnull", label="Unassigned")
    blocked = django_filters.BooleanFilter(field_name="is_blocked", label="Blocked")
    tag = django_filters.CharFilter(method="by_tag", label="Tag")
    ref = django_filters.NumberFilter(min_value=1, max_value=2**31 - 1, label="Number in the project")

    def by_tag(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(tags__has=value)


class EpicRows(ItemRows):
    class Meta:
        model = Epic
        fields = ()


class StoryRows(ItemRows):
    epic = django_filters.NumberFilter(min_value=1, max_value=MOST, label="Epic (id)")
    sprint = django_filters.NumberFilter(min_value=1, max_value=MOST, label="Sprint (id)")
    without_epic = django_filters.BooleanFilter(field_name="epic", lookup_expr="isnull", label="Without an epic")
    without_sprint = django_filters.BooleanFilter(field_name="sprint", lookup_expr="isnull", label="In no sprint")
    priority = django_filters.ChoiceFilter(choices=shapes.URGENCIES, label="Priority")

    class Meta:
        model = UserStory
        fields = ()


class IssueRows(ItemRows):
    type = django_filters.CharFilter(field_name="type__slug", label="Type (slug)")
    severity = django_filters.ChoiceFilter(choices=shapes.SEVERITIES, label="Severity")
    priority = django_filters.ChoiceFilter(choices=shapes.URGENCIES, label="Priority")
    sprint = django_filters.NumberFilter(min_value=1, max_value=MOST, label="Sprint (id)")

    class Meta:
        model = Issue
        fields = ()


class SprintRows(ProjectRows):
    closed = django_filters.BooleanFilter(field_name="is_closed", label="Closed")

    class Meta:
        model = Sprint
        fields = ()


class StatusRows(ProjectRows):
    kind = django_filters.ChoiceFilter(choices=shapes.KINDS, label="Kind of item")
    category = django_filters.ChoiceFilter(choices=shapes.CATEGORIES, label="What it means")

    class Meta:
        model = ItemStatus
        fields = ()


class TypeRows(ProjectRows):
    class Meta:
        model = IssueType
        fields = ()


def _described(made: Any, changed: Any, shown: Any) -> Any:
    """What a view set takes to make and change a row, and how it shows one."""
    return extend_schema_view(
        create=extend_schema(request=made, responses={201: shown}),
        partial_update=extend_schema(request=changed, responses=shown),
        destroy=extend_schema(responses={204: None}),
    )


_of_all = action(
    detail=False, methods=["post"], pagination_class=None, filterset_class=None, search_fields=(), ordering_fields=()
)


class _Rows(ListModelMixin, RetrieveModelMixin, WorkflowRows):
    lookup_value_regex = "[1-9][0-9]{0,15}"

    def _who(self, row: Any, *, admin: bool = False) -> dict[str, Any]:
        return {"project": row.project, "pk": row.pk, "actor": self.writer(row.project_id, admin=admin)}


class _Items(_Rows):
    kind: Kind
    search_fields = ("subject", "description")
    ordering_fields = ("id", "ref", "position", "created_at", "updated_at")

    def create(self, request: Request) -> Response:
        values = self.given(request)
        project = project_named(request, values.pop("project"))
        actor = self.writer(project.pk)
        made = items.create(self.kind, project=project, actor=actor, fields=self._fields(project, values))
        return self.shown(made.pk, created=True)

    def partial_update(self, request: Request, pk: str) -> Response:
        row = self.get_object()
        values = self.given(request)
        version = values.pop("version", None)
        who = self._who(row)
        items.update(self.kind, **who, fields=self._fields(row.project, values), version=version)
        return self.shown(row.pk)

    def destroy(self, request: Request, pk: str) -> Response:
        row = self.get_object()
        items.delete(self.kind, **self._who(row))
        return Response(status=204)

    def _fields(self, project: Project, values: dict[str, Any]) -> dict[str, Any]:
        """Slugs, names and ids as `services.agile.items` takes them. Raises `invalid_input` naming the field."""
        given = dict(values)
        if (slug := given.pop("status", None)) is not None:
            given["status_id"] = self._one(ItemStatus, project, "status", kind=self.kind, slug=slug)
        if "type" in given:
            slug = given.pop("type")
            given["type_id"] = None if slug is None else self._one(IssueType, project, "type", slug=slug)
        if "assigned_to" in given:
            name = given.pop("assigned_to")
            found = get_user_model()._default_manager.filter(username=name, memberships__project=project).first()
            if name is not None and found is None:
                raise invalid("assigned_to: no member of this project", assigned_to="the user name of a member")
            given["assigned_to_id"] = found.pk if name is not None and found else None
        return given | {f"{name}_id": given.pop(name) for name in ("epic", "sprint") if name in given}

    def _one(self, model: Any, project: Project, name: str, **which: Any) -> int:
        rows = model.objects.filter(project=project)
        found: int | None = rows.filter(**which).values_list("pk", flat=True).first()
        if found is None:
            kind = {key: value for key, value in which.items() if key == "kind"}
            known = ", ".join(rows.filter(**kind).values_list("slug", flat=True)) or "none yet"
            raise invalid(f"{name}: unknown in this project", **{name: f"one of {known}"})
        return found

    @extend_schema(methods=["get"], responses=shapes.CommentSerializer(many=True))
    @extend_schema(methods=["post"], request=shapes.CommentCreate, responses={201: shapes.CommentSerializer})
    @action(detail=True, methods=["get", "post"], filterset_class=None, search_fields=(), ordering_fields=())
    def comments(self, request: Request, pk: str) -> Response:
        """Its comments, oldest first; POST adds one."""
        row = self.get_object()
        if request.method == "POST":
            values = self.given(request, shapes.CommentCreate)
            made = items.say(row, body=values["body"], actor=self.writer(row.project_id))
            return Response(shapes.CommentSerializer(made).data, status=201)
        page = self.paginate_queryset(row.comments.order_by("pk"))
        return self.get_paginated_response(shapes.CommentSerializer(page, many=True).data)


@_described(shapes.EpicCreate, shapes.EpicChange, shapes.EpicSerializer)
class EpicViewSet(_Items):
    """Epics with their progress. Deleting one leaves its stories."""

    kind = Kind.EPIC
    rows = agile.epics().order_by("pk")
    serializer_class = shapes.EpicSerializer
    filterset_class = EpicRows
    write_serializers = {"create": shapes.EpicCreate, "partial_update": shapes.EpicChange}


@_described(shapes.StoryCreate, shapes.StoryChange, shapes.StorySerializer)
class StoryViewSet(_Items):
    """User stories with their progress. Deleting one leaves its tasks."""

    kind = Kind.USER_STORY
    rows = agile.stories().order_by("pk")
    serializer_class = shapes.StorySerializer
    filterset_class = StoryRows
    write_serializers = {"create": shapes.StoryCreate, "partial_update": shapes.StoryChange}


@_described(shapes.IssueCreate, shapes.IssueChange, shapes.IssueSerializer)
class IssueViewSet(_Items):
    """Issues: what was reported."""

    kind = Kind.ISSUE
    rows = agile.issues().order_by("pk")
    serializer_class = shapes.IssueSerializer
    filterset_class = IssueRows
    write_serializers = {"create": shapes.IssueCreate, "partial_update": shapes.IssueChange}


@_described(shapes.SprintCreate, shapes.SprintChange, shapes.SprintSerializer)
class SprintViewSet(_Rows):
    """Sprints. One that holds stories or issues is closed, not deleted."""

    rows = Sprint.objects.select_related("project").order_by("pk")
    serializer_class = shapes.SprintSerializer
    filterset_class = SprintRows
    write_serializers = {"create": shapes.SprintCreate, "partial_update": shapes.SprintChange}
    search_fields = ("name",)
    ordering_fields = ("id", "name", "starts_on", "ends_on")

    def create(self, request: Request) -> Response:
        values = self.given(request)
        project = project_named(request, values.pop("project"))
        made = sprints.create(project=project, actor=self.writer(project.pk), **values)
        return self.shown(made.pk, created=True)

    def partial_update(self, request: Request, pk: str) -> Response:
        row = self.get_object()
        values = self.given(request)
        sprints.change(**self._who(row), fields=values)
        return self.shown(row.pk)

    def destroy(self, request: Request, pk: str) -> Response:
        row = self.get_object()
        sprints.delete(**self._who(row))
        return Response(status=204)


class _Words(_Rows):
    """Admins of a project change its words."""

    model: Any
    write_scope = "admin"
    search_fields = ("name",)
    ordering_fields = ("id", "order", "name")

    def create(self, request: Request) -> Response:
        values = self.given(request)
        project = project_named(request, values.pop("project"))
        actor = self.writer(project.pk, admin=True)
        if "kind" in values:
            values["kind"] = Kind(values["kind"])
        made = words.add(self.model, project=project, actor=actor, **values)
        return self.shown(made.pk, created=True)

    def partial_update(self, request: Request, pk: str) -> Response:
        row = self.get_object()
        values = self.given(request)
        words.change(self.model, **self._who(row, admin=True), **values)
        return self.shown(row.pk)

    def destroy(self, request: Request, pk: str) -> Response:
        """Only one that nothing uses."""
        row = self.get_object()
        words.delete(self.model, **self._who(row, admin=True))
        return Response(status=204)

    def ordered(self, request: Request, shape: type) -> Response:
        values = self.given(request, shape)
        project = project_named(request, values.pop("project"))
        actor = self.writer(project.pk, admin=True)
        placed: list[Any] = words.order(self.model, project=project, actor=actor, **values)
        return Response(self.serializer_class(placed, many=True).data)


@_described(shapes.StatusCreate, shapes.StatusChange, shapes.StatusSerializer)
class StatusViewSet(_Words):
    """The statuses of epics, stories, tasks and issues."""

    model = ItemStatus
    rows = ItemStatus.objects.select_related("project").order_by("pk")
    serializer_class = shapes.StatusSerializer
    filterset_class = StatusRows
    write_serializers = {"create": shapes.StatusCreate, "partial_update": shapes.StatusChange}

    @extend_schema(request=shapes.StatusOrder, responses=shapes.StatusSerializer(many=True), filters=False)
    @_of_all
    def order(self, request: Request) -> Response:
        """Put the statuses of a kind into another order."""
        return self.ordered(request, shapes.StatusOrder)


@_described(shapes.TypeCreate, shapes.TypeChange, shapes.TypeSerializer)
class TypeViewSet(_Words):
    """The types of issues."""

    model = IssueType
    rows = IssueType.objects.select_related("project").order_by("pk")
    serializer_class = shapes.TypeSerializer
    filterset_class = TypeRows
    write_serializers = {"create": shapes.TypeCreate, "partial_update": shapes.TypeChange}

    @extend_schema(request=shapes.Order, responses=shapes.TypeSerializer(many=True), filters=False)
    @_of_all
    def order(self, request: Request) -> Response:
        """Put the types into another order."""
        return self.ordered(request, shapes.Order)
