"""The memory room's part of /api/v1/."""

from typing import Any

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from devflow.rest import Exact, Json, Since, Text
from devflow.viewsets import RowsViewSet, project_ref, projects_of
from memory.models import KNOWN_CATEGORIES, MAX_TAG, MAX_TAGS, Memory
from memory.selectors import search
from memory.selectors.memories import category_of
from memory.services import memories

MEMORY_ID = r"^(memory-)?[1-9][0-9]{0,15}$"
_ID = OpenApiParameter("id", str, OpenApiParameter.PATH, description="`memory-12` or `12`.", pattern=MEMORY_ID)
_Q = OpenApiParameter(
    "q",
    str,
    description="A question: its 200 best answers instead of all rows, best first, each with its score. The other "
    "filters narrow these.",
)


class MemorySerializer(serializers.ModelSerializer[Memory]):
    id = serializers.CharField(source="public_id", read_only=True)
    project = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    agent = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)
    superseded_by = serializers.SerializerMethodField()
    untrusted = serializers.BooleanField(source="is_untrusted", read_only=True)
    score = serializers.SerializerMethodField(help_text="How well it answers `q`, 0 to 1.")

    class Meta:
        model = Memory
        fields = (
            *("id", "project", "content", "category", "original_category", "tags", "metadata", "trust", "untrusted"),
            *("created_by", "agent", "task", "tool", "trace_id", "superseded_by", "superseded_at", "pinned"),
            *("expires_at", "uses", "last_used_at", "version", "created_at", "updated_at", "score"),
        )
        read_only_fields = fields

    def get_superseded_by(self, memory: Memory) -> str | None:
        return None if memory.superseded_by_id is None else f"memory-{memory.superseded_by_id}"

    def get_score(self, memory: Memory) -> float | None:
        scores: dict[int, float] = self.context.get("scores", {})
        return scores.get(memory.pk)


class MemoryChange(Exact):
    version = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, required=False, help_text="The version the change was decided on."
    )
    content = Text(required=False)
    category = serializers.ChoiceField(choices=KNOWN_CATEGORIES, required=False)
    tags = serializers.ListField(child=Text(max_length=MAX_TAG), max_length=MAX_TAGS, required=False)
    metadata = Json(required=False)
    supersedes = serializers.RegexField(MEMORY_ID, required=False, help_text="The memory whose place this one takes.")
    pinned = serializers.BooleanField(required=False)
    expires_at = serializers.DateTimeField(required=False, allow_null=True)


class MemoryCreate(MemoryChange):
    version = None  # type: ignore[assignment]  # a new row has none to compare
    project = serializers.SlugField()
    content = Text()
    category = serializers.ChoiceField(choices=KNOWN_CATEGORIES)


class MemoryRows(django_filters.FilterSet):
    project = django_filters.CharFilter(field_name="project__slug", label="Project (slug)")
    category = django_filters.ChoiceFilter(
        choices=[(word, word) for word in KNOWN_CATEGORIES], method="by_category", label="Category"
    )
    tag = django_filters.CharFilter(field_name="tags", lookup_expr="has", label="Tag")
    created_by = django_filters.CharFilter(label="Who saved it")
    trust = django_filters.CharFilter(label="Trust")
    superseded = django_filters.BooleanFilter(
        field_name="superseded_by", lookup_expr="isnull", exclude=True, label="Superseded"
    )
    since = Since(field_name="created_at", lookup_expr="gte", label="Since")

    class Meta:
        model = Memory
        fields = ("pinned",)

    def by_category(self, rows: QuerySet[Memory], name: str, value: str) -> QuerySet[Memory]:
        return rows.filter(category=category_of(value))


@extend_schema_view(
    list=extend_schema(parameters=[_Q]),
    retrieve=extend_schema(parameters=[_ID]),
    partial_update=extend_schema(parameters=[_ID]),
)
class MemoryViewSet(ListModelMixin, RetrieveModelMixin, RowsViewSet):
    """Memories, newest first, or with `?q=` those that answer a question."""

    toolset = "memory"
    rows = Memory.objects.select_related("project", "agent").order_by("-pk")
    serializer_class = MemorySerializer
    filterset_class = MemoryRows
    write_serializers = {"create": MemoryCreate, "partial_update": MemoryChange}
    lookup_value_regex = r"(?:memory-)?[1-9][0-9]{0,15}"
    lookup_url_kwarg = "id"
    search_fields = ("content", "created_by")
    ordering_fields = ("id", "created_at", "updated_at", "uses", "category")

    def get_object(self) -> Memory:
        self.kwargs["id"] = self.kwargs["id"].removeprefix("memory-")
        memory: Memory = super().get_object()
        return memory

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        question = request.query_params.get("q", "")
        if not question:
            return super().list(request, *args, **kwargs)
        wanted = self.filter_queryset(self.get_queryset())
        slug = request.query_params.get("project")
        seen = [project_ref(request, slug)] if slug else projects_of(request)
        tag = request.query_params.get("tag")
        findings = search.search(
            project_ids=[project.id for project in seen],
            text=question,
            category=request.query_params.get("category", ""),
            tags=[tag] if tag else [],
            limit=search.MAX_RESULTS,
        )
        scores = {hit.memory.pk: hit.score for hit in findings.found}
        known = {row.pk: row for row in wanted.filter(pk__in=scores)}
        page = self.paginate_queryset([known[pk] for pk in scores if pk in known])
        body = MemorySerializer(page, many=True, context={**self.get_serializer_context(), "scores": scores}).data
        response = self.get_paginated_response(body)
        response.data |= {"degraded": bool(findings.reason), "reason": findings.reason}
        return response

    @extend_schema(request=MemoryCreate, responses={201: MemorySerializer})
    def create(self, request: Request) -> Response:
        values = self.given(request)
        project = project_ref(request, values.pop("project"))
        made = memories.save(project_id=project.id, actor=self.writer(project.id), **_one_superseded(values))
        return self.shown(made.pk, created=True)

    @extend_schema(request=MemoryChange, responses=MemorySerializer)
    def partial_update(self, request: Request, id: str) -> Response:
        memory = self.get_object()
        values = _one_superseded(self.given(request))
        actor = self.writer(memory.project_id)
        memories.update(project_id=memory.project_id, memory_id=memory.pk, actor=actor, **values)
        return self.shown(memory.pk)

    @extend_schema(parameters=[_ID], request=None, responses={204: None})
    def destroy(self, request: Request, id: str) -> Response:
        memory = self.get_object()
        self.writer(memory.project_id)
        memories.delete(project_id=memory.project_id, memory_id=memory.pk)
        return Response(status=204)


def _one_superseded(values: dict[str, Any]) -> dict[str, Any]:
    superseded = values.pop("supersedes", None)
    return {**values, "supersedes": [superseded]} if superseded else values


def register(router: Any) -> None:
    router.register("memories", MemoryViewSet, basename="memory")
