"""Who may see and change what through the API: a key by its scopes and projects, a person by their memberships."""

from collections.abc import Collection
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from devflow import ports
from devflow.errors import forbidden, not_found
from devflow.ports import KeyScope
from workflow.models import Membership, Project
from workflow.selectors import projects as project_selectors
from workflow.services import actors
from workflow.services.actors import Actor


def scope_of(request: Request) -> KeyScope:
    """A key's own scope; a person is seen as the owner of a key bound to nothing else."""
    identity: Any = request.auth
    if identity is not None:
        scope: KeyScope = identity.scope
        return scope
    return KeyScope(key_id=0, user_id=request.user.pk)


def visible(request: Request) -> QuerySet[Project]:
    return project_selectors.visible(scope_of(request))


def project_named(request: Request, slug: str) -> Project:
    """Raises `not_found` for an unknown project and for one the caller does not see."""
    project = visible(request).filter(slug=slug).first()
    if project is None:
        raise not_found("Project", slug, suggestion="GET /api/v1/projects/ lists the projects you see.")
    return project


def may_administer(request: Request, project_id: int) -> bool:
    identity: Any = request.auth
    if identity is not None and "admin" not in identity.scopes:
        return False
    scope = scope_of(request)
    if scope.user_id is None:
        return True
    if project_selectors.is_superuser(scope.user_id):
        return True
    return Membership.objects.filter(user_id=scope.user_id, project_id=project_id, role=Membership.Role.ADMIN).exists()


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


def owner_of(request: Request) -> Any:
    """The person behind the request, or None for a key of the server's command line."""
    user_id = scope_of(request).user_id
    return None if user_id is None else get_user_model()._default_manager.filter(pk=user_id, is_active=True).first()


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
