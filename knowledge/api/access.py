"""The knowledge room's rows behind the shared rules of `devflow.viewsets`, and which project a request is about."""

from typing import Any

from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import serializers
from rest_framework.filters import OrderingFilter
from rest_framework.request import Request

from devflow import ports
from devflow.ports import ProjectRef
from devflow.viewsets import RowsViewSet, scope_of


class KnowledgeRows(RowsViewSet):
    toolset = "knowledge"
    filter_backends = (DjangoFilterBackend, OrderingFilter)

    def get_object(self) -> Any:
        """The row of an id with or without its noun: `source-12`, `12`."""
        name = self.lookup_url_kwarg or self.lookup_field
        self.kwargs[name] = self.kwargs[name].rpartition("-")[2]
        return super().get_object()


def project_of(request: Request, slug: str | None) -> ProjectRef:
    """The project a body or query names, else the header X-Project, else the key's own or the only visible one.

    Raises `not_found` for one the caller does not see, `invalid_input` listing them where several remain.
    """
    named = slug or request.headers.get("X-Project") or None
    return ports.directory().project_of(scope_of(request), slug=named, agent_name=request.user.get_username())


def query_of(request: Request, serializer: type[serializers.Serializer[Any]]) -> dict[str, Any]:
    """The validated query string; names it does not know are refused as they are in a body."""
    given: dict[str, Any] = {
        name: values if isinstance(serializer().fields.get(name), serializers.ListField) else values[-1]
        for name, values in request.query_params.lists()
        if name != "format"  # the browsable API's own
    }
    checked = serializer(data=given)
    checked.is_valid(raise_exception=True)
    values: dict[str, Any] = dict(checked.validated_data)
    return values
