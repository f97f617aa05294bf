"""What every viewset of the workflow shares: rows of visible projects only, and writes that go to services."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import status
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from devflow.rest import KeyFirst
from workflow.api.access import KeyScopes, actor_of, require_role, visible
from workflow.services.actors import Actor


class RowsViewSet(KeyFirst, GenericViewSet[Any]):
    """`rows` of the caller's projects; others' ids answer as unknown ids do."""

    permission_classes = (IsAuthenticated, KeyScopes)
    http_method_names: Any = ("get", "post", "patch", "delete", "head", "options")
    serializer_class: Any
    rows: QuerySet[Any]
    project_path = "project"
    write_scope = "write"
    toolset = "workflow"
    write_serializers: dict[str, type] = {}

    def get_queryset(self) -> QuerySet[Any]:
        return self.narrowed(self.rows.all()).filter(**{f"{self.project_path}__in": visible(self.request)})

    def narrowed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows

    def get_serializer_class(self) -> Any:
        return self.write_serializers.get(self.action, self.serializer_class)

    def given(self, request: Request, serializer: type | None = None) -> dict[str, Any]:
        """The validated body. Raises DRF's ValidationError naming each refused field."""
        checked = (serializer or self.get_serializer_class())(data=request.data, context=self.get_serializer_context())
        checked.is_valid(raise_exception=True)
        values: dict[str, Any] = dict(checked.validated_data)
        return values

    def shown(self, pk: Any, *, created: bool = False) -> Response:
        """One row as the list shows it."""
        row = self.get_queryset().get(pk=pk)
        body = self.serializer_class(row, context=self.get_serializer_context()).data
        return Response(body, status=status.HTTP_201_CREATED if created else status.HTTP_200_OK)

    def writer(self, project_id: int, *, admin: bool = False) -> Actor:
        """Who changes something in this project. Raises `forbidden` where their role does not allow it."""
        require_role(self.request, project_id, admin=admin)
        return actor_of(self.request, project_id)
