"""What the REST viewsets of every room share: who may see and change what, rows of visible projects only, and writes
that go to services. A key acts by its scopes and projects, a person by their memberships."""

from collections.abc import Collection
from typing import Any

from django.db.models import QuerySet
from rest_framework import status
from rest_framework.permissions import SAFE_METHODS, BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from devflow import actors, ports
from devflow.actors import Actor
from devflow.errors import forbidden, not_found
from devflow.ports import KeyScope, ProjectRef
from devflow.rest import KeyFirst


def scope_of(request: Request) -> KeyScope:
    """A key's own scope; a person is seen as the owner of a key bound to nothing else."""
    identity: Any = request.auth
    if identity is not None:
        scope: KeyScope = identity.scope
        return scope
    return KeyScope(key_id=0, user_id=request.user.pk)


def projects_of(request: Request) -> list[ProjectRef]:
    return list(ports.directory().visible_projects(scope_of(request)))


def project_ref(request: Request, slug: str) -> ProjectRef:
    """Raises `not_found` for an unknown project and for one the caller does not see."""
    project = next((seen for seen in projects_of(request) if seen.slug == slug), None)
    if project is None:
        raise not_found("Project", slug, suggestion="GET /api/v1/projects/ lists the projects you see.")
    return project


def may_administer(request: Request, project_id: int) -> bool:
    identity: Any = request.auth
    if identity is not None and "admin" not in identity.scopes:
        return False
    return ports.directory().may_administer(scope_of(request), project_id)


def require_role(request: Request, project_id: int, *, admin: bool = False) -> None:
    """Refuse a change by somebody whose role in the project does not allow it. Raises `forbidden`."""
    if admin and not may_administer(request, project_id):
        raise forbidden("Only an admin of this project may do that.", suggestion="Ask one of its admins.")
    if not ports.directory().role_allows(scope_of(request), project_id, write=True):
        raise forbidden("You may read this project, not change it.", suggestion="Ask one of its admins for a role.")


def actor_of(request: Request, project_id: int) -> Actor:
    """A person, or the agent a key speaks for (registered on first contact)."""
    name = request.user.get_username()
    if request.auth is None:
        return actors.person(user_id=int(request.user.pk or 0), name=name, tool="api")
    agent = ports.directory().contact(project_id, name, session="", client="", transport="rest")
    return actors.agent(agent_id=agent.id, name=agent.name, tool="api")


class KeyScopes(BasePermission):
    """A key needs `read` to read and `write` (or what the view names in `write_scope`) to change; `admin` is all.

    A key restricted to toolsets reaches the views of these toolsets only.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        identity: Any = request.auth
        if identity is None:
            return True
        if identity.toolsets and view.toolset not in identity.toolsets:
            raise forbidden(f"This key may not use the toolset `{view.toolset}`.", suggestion="Use a key that may.")
        given: Collection[str] = identity.scopes
        needed = "read" if request.method in SAFE_METHODS else getattr(view, "write_scope", "write")
        if needed in given or "admin" in given:
            return True
        raise forbidden(f"This key needs the scope `{needed}` for that.", suggestion="Use a key that has it.")


class RowsViewSet(KeyFirst, GenericViewSet[Any]):
    """`rows` of the caller's projects; others' ids answer as unknown ids do."""

    permission_classes = (IsAuthenticated, KeyScopes)
    http_method_names: Any = ("get", "post", "patch", "delete", "head", "options")
    serializer_class: Any
    rows: QuerySet[Any]
    project_path = "project"
    write_scope = "write"
    toolset: str
    write_serializers: dict[str, type] = {}

    def get_queryset(self) -> QuerySet[Any]:
        if getattr(self, "swagger_fake_view", False):  # the schema is made without a caller
            return self.rows.none()
        seen = [project.id for project in projects_of(self.request)]
        return self.narrowed(self.rows.all()).filter(**{f"{self.project_path}__in": seen})

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
