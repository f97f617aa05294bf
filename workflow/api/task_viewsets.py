"""Tasks, what they may become, and what they wait for."""

from typing import Any

from django.db import transaction
from django.db.models import Prefetch, QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from devflow.errors import not_found
from workflow.api import filters
from workflow.api import serializers as shapes
from workflow.api.access import WorkflowRows, project_named, visible
from workflow.models import Dependency, Task
from workflow.selectors.tasks import with_status
from workflow.services import board, bulk, claims, dependencies, tasks, transitions

_ID = OpenApiParameter("id", str, OpenApiParameter.PATH, description="`task-12` or `12`.", pattern=shapes.TASK_ID)


@extend_schema_view(
    retrieve=extend_schema(parameters=[_ID]),
    partial_update=extend_schema(parameters=[_ID]),
)
class TaskViewSet(ListModelMixin, RetrieveModelMixin, WorkflowRows):
    """Tasks. A claim is a tool (`claim_task`): here people and programs write, read and steer."""

    rows = Task.objects.select_related("project", "phase", "assigned_agent", "reserved_for").order_by("pk")
    serializer_class = shapes.TaskSerializer
    filterset_class = filters.TaskRows
    write_serializers = {"create": shapes.TaskCreate, "partial_update": shapes.TaskChange}
    lookup_value_regex = r"(?:task-)?[1-9][0-9]{0,15}"
    lookup_url_kwarg = "id"
    search_fields = ("subject", "description")
    ordering_fields = ("id", "ref", "created_at", "updated_at", "priority", "position", "completed_at")

    def narrowed(self, rows: QuerySet[Task]) -> QuerySet[Task]:
        links = Dependency.objects.select_related("blocker").only("task_id", "blocker_id", "blocker__status")
        return with_status(rows, timezone.now()).prefetch_related(Prefetch("dependencies", links.order_by("blocker")))

    def get_object(self) -> Task:
        self.kwargs["id"] = self.kwargs["id"].removeprefix("task-")
        task: Task = super().get_object()
        return task

    @extend_schema(request=shapes.TaskCreate, responses={201: shapes.TaskSerializer})
    def create(self, request: Request) -> Response:
        values = self.given(request)
        project = project_named(request, values.pop("project"))
        column = values.pop("column", "ready")
        if column == "backlog" and not values.get("manual_block"):
            values["manual_block"] = "Not started on purpose; let it go on when it may be claimed."
        actor = self.writer(project.pk)
        with transaction.atomic():
            made = tasks.create(project_id=project.pk, phase_number=values.pop("phase"), actor=actor, **values)
            if column == "in_progress":
                board.move(project_id=project.pk, task_id=made.pk, column="in_progress", actor=actor)
        return self.shown(made.pk, created=True)

    @extend_schema(request=shapes.TaskChange, responses=shapes.TaskSerializer)
    def partial_update(self, request: Request, id: str) -> Response:
        task = self.get_object()
        values = self.given(request)
        block = values.pop("manual_block", None)
        who: dict[str, Any] = {"project_id": task.project_id, "task_id": task.pk, "actor": self.writer(task.project_id)}
        if "phase" in values:
            values["phase_number"] = values.pop("phase")
        with transaction.atomic():
            if values.keys() - {"version"} or block is None:
                tasks.edit(**who, **values)
            if block is not None:
                version = None if values.keys() - {"version"} else values.get("version")
                tasks.hold_back(**who, reason=block, version=version)
        return self.shown(task.pk)

    @extend_schema(parameters=[_ID], request=None, responses={204: None})
    def destroy(self, request: Request, id: str) -> Response:
        """Tasks are not deleted but called off: the same as `cancel`."""
        task = self.get_object()
        transitions.cancel(project_id=task.project_id, task_id=task.pk, actor=self.writer(task.project_id))
        return Response(status=204)

    def _done(self, move: Any, **values: Any) -> Response:
        task = self.get_object()
        move(project_id=task.project_id, task_id=task.pk, actor=self.writer(task.project_id), **values)
        return self.shown(task.pk)

    @extend_schema(parameters=[_ID], request=shapes.Reason, responses=shapes.TaskSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, id: str) -> Response:
        """Call it off; it unblocks nothing."""
        return self._done(transitions.cancel, **self.given(request, shapes.Reason))

    @extend_schema(parameters=[_ID], request=shapes.Reason, responses=shapes.TaskSerializer)
    @action(detail=True, methods=["post"])
    def release(self, request: Request, id: str) -> Response:
        """Give it back: ready for others."""
        return self._done(claims.release, **self.given(request, shapes.Reason))

    @extend_schema(parameters=[_ID], request=None, responses=shapes.TaskSerializer)
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, id: str) -> Response:
        """Put a failed task back to work."""
        return self._done(transitions.retry)

    @extend_schema(parameters=[_ID], request=shapes.Undo, responses=shapes.TaskSerializer)
    @action(detail=True, methods=["post"])
    def undo(self, request: Request, id: str) -> Response:
        """Take back its last move."""
        return self._done(board.undo_last_move, **self.given(request, shapes.Undo))

    @extend_schema(parameters=[_ID], request=shapes.Review, responses=shapes.TaskSerializer)
    @action(detail=True, methods=["post"])
    def review(self, request: Request, id: str) -> Response:
        """Approve it, or reject it with feedback."""
        return self._done(transitions.review, **self.given(request, shapes.Review))

    @extend_schema(parameters=[_ID], request=shapes.Move, responses=shapes.TaskSerializer)
    @action(detail=True, methods=["post"])
    def move(self, request: Request, id: str) -> Response:
        """Put its card into another column or between two others, as far as the state machine allows it."""
        values = self.given(request, shapes.Move)
        places = {f"{name}_id": values.pop(name) for name in ("after", "before") if name in values}
        return self._done(board.move, **places, **values)

    @extend_schema(request=shapes.Bulk, responses=shapes.BulkOutcomes)
    @action(detail=False, methods=["post"], filterset_class=None, search_fields=(), ordering_fields=())
    def bulk(self, request: Request) -> Response:
        """The same change to up to 200 tasks of one project; each stands for itself."""
        values = self.given(request, shapes.Bulk)
        ids = [int(one.removeprefix("task-")) for one in values.pop("ids")]
        wanted = bulk.Change(**values)
        projects = set(Task.objects.filter(pk__in=ids, project__in=visible(request)).values_list("project", flat=True))
        if len(projects) != 1:
            raise not_found("Tasks", ids[0], suggestion="Name tasks of one project of yours.")
        project_id = projects.pop()
        done = bulk.apply(project_id=project_id, task_ids=ids, change=wanted, actor=self.writer(project_id))
        return Response(shapes.BulkOutcomes({"results": done}).data)

    @extend_schema(parameters=[_ID], methods=["get"], responses=shapes.NoteSerializer(many=True))
    @extend_schema(
        parameters=[_ID], methods=["post"], request=shapes.NoteCreate, responses={201: shapes.NoteSerializer}
    )
    @action(detail=True, methods=["get", "post"], filterset_class=None, search_fields=(), ordering_fields=())
    def notes(self, request: Request, id: str) -> Response:
        """Its comments, oldest first; POST adds one."""
        task = self.get_object()
        if request.method == "POST":
            values = self.given(request, shapes.NoteCreate)
            actor = self.writer(task.project_id)
            note = tasks.add_note(project_id=task.project_id, task_id=task.pk, actor=actor, **values)
            return Response(shapes.NoteSerializer(note).data, status=201)
        page = self.paginate_queryset(task.notes.order_by("pk"))
        return self.get_paginated_response(shapes.NoteSerializer(page, many=True).data)


class DependencyViewSet(ListModelMixin, RetrieveModelMixin, WorkflowRows):
    """What waits for what. A cycle is refused, naming it."""

    rows = Dependency.objects.select_related("task__project", "blocker").order_by("pk")
    serializer_class = shapes.DependencySerializer
    filterset_class = filters.DependencyRows
    write_serializers = {"create": shapes.DependencyCreate}
    project_path = "task__project"
    ordering_fields = ("id", "created_at")

    @extend_schema(request=shapes.DependencyCreate, responses={201: shapes.DependencySerializer})
    def create(self, request: Request) -> Response:
        values = self.given(request)
        number = values["task"].removeprefix("task-")
        task = Task.objects.filter(pk=number, project__in=visible(request)).first()
        if task is None:
            raise not_found("Task", values["task"])
        actor = self.writer(task.project_id)
        dependencies.add(project_id=task.project_id, task_id=task.pk, blocked_by=[values["blocker"]], actor=actor)
        link = Dependency.objects.get(task=task, blocker=values["blocker"].removeprefix("task-"))
        return self.shown(link.pk, created=True)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Stop waiting."""
        link: Dependency = self.get_object()
        project_id = link.task.project_id
        dependencies.remove(
            project_id=project_id, task_id=link.task_id, blocker_id=link.blocker_id, actor=self.writer(project_id)
        )
        return Response(status=204)
