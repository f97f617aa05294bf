"""Who may hand out which keys. Pages, admin and API share these rules."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.utils import timezone

from devflow import ports
from devflow.errors import forbidden, invalid, not_found
from devflow.ports import KeyScope, ProjectRef
from mcpbridge.access import keyring
from mcpbridge.models import ApiKey, ToolCall
from mcpbridge.tooling import Scope

SCOPES = tuple(scope.value for scope in Scope)


@dataclass(frozen=True, slots=True)
class Issuer:
    """Somebody who hands out keys: what they see, whose the keys will be, which scopes they may pass on."""

    scope: KeyScope
    may_give: frozenset[str]
    toolsets: frozenset[str] = frozenset()
    """The only toolsets they may pass on; empty: all."""
    expires_at: datetime | None = None
    """When their own key ends: those they make end then at the latest."""

    @property
    def sees_everything(self) -> bool:
        return self.scope.user_id is None and self.scope.project_id is None


def person(user: Any) -> Issuer:
    """A logged-in person: a superuser passes on everything, others all but `admin`."""
    given = frozenset(SCOPES) if user.is_superuser else frozenset(SCOPES) - {Scope.ADMIN.value}
    return Issuer(KeyScope(key_id=0, user_id=user.pk), given)


def administers(scope: KeyScope, scopes: Collection[Scope]) -> bool:
    """Whether a key may manage backends, which run commands on this server (blocks): it has the scope `admin`, is
    bound to no project, and its owner, if it has one, is a superuser."""
    if Scope.ADMIN not in scopes or scope.project_id is not None:
        return False
    owner = scope.user_id
    return owner is None or get_user_model().objects.filter(pk=owner, is_superuser=True, is_active=True).exists()


def projects_of(issuer: Issuer) -> list[ProjectRef]:
    return list(ports.directory().visible_projects(issuer.scope))


def visible_to(issuer: Issuer) -> QuerySet[ApiKey]:
    """The keys somebody may see and revoke: their own, those of the projects their own key is bound to, or all."""
    keys = ApiKey.objects.select_related("project", "owner")
    if issuer.scope.user_id is not None and Scope.ADMIN.value not in issuer.may_give:
        keys = keys.filter(owner_id=issuer.scope.user_id)
    if issuer.scope.project_id is not None:
        keys = keys.filter(project_id=issuer.scope.project_id)
    return keys.order_by("-created_at", "-pk")


def calls_of(issuer: Issuer) -> QuerySet[ToolCall]:
    """The calls somebody may read: all of their projects', and those of their own keys."""
    calls = ToolCall.objects.select_related("project").order_by("-id")
    if issuer.sees_everything:
        return calls
    mine = Q(project__in=[project.id for project in projects_of(issuer)])
    if issuer.scope.user_id is not None:
        mine |= Q(key__owner=issuer.scope.user_id)
    return calls.filter(mine)


def issue(
    issuer: Issuer,
    *,
    name: str,
    scopes: Collection[str],
    project: str | None = None,
    expires_in_days: int | None = None,
    rate_per_minute: int | None = None,
    toolsets: Collection[str] = (),
) -> tuple[ApiKey, str]:
    """Make a key. Returns its row and the key itself, shown this once.

    Raises `invalid_input` without a name or a known scope, `forbidden` for a scope the issuer does not have,
    `not_found` for a project they do not see.
    """
    if not name.strip() or not name.isprintable():
        raise invalid("A key needs a name in printable characters: what will use it?", name="is required")
    if expires_in_days is not None and expires_in_days < 1:
        raise invalid("A key is good for at least one day.", expires_in_days="from 1, or left out: for ever")
    if not scopes or (unknown := sorted(set(scopes) - set(SCOPES))):
        raise invalid(
            f"Choose some of the scopes {', '.join(SCOPES)}.", scopes=", ".join(unknown) if scopes else "none"
        )
    if extra := sorted(set(toolsets) - issuer.toolsets if issuer.toolsets else ()):
        raise forbidden(f"You cannot give the toolset {extra[0]}, which you may not use yourself.")
    if missing := sorted(set(scopes) - issuer.may_give):
        raise forbidden(f"You cannot give the scope {missing[0]}, which you do not have yourself.")
    expires_in = timedelta(days=expires_in_days) if expires_in_days is not None else None
    if issuer.expires_at is not None:
        left = issuer.expires_at - timezone.now()
        expires_in = left if expires_in is None else min(left, expires_in)
    project_id = issuer.scope.project_id
    if project:
        found = next((item for item in projects_of(issuer) if item.slug == project), None)
        if found is None:
            raise not_found("Project", project)
        project_id = found.id
    return ApiKey.objects.issue(
        name=name.strip()[:100],
        scopes=list(scopes),
        project_id=project_id,
        owner_id=issuer.scope.user_id,
        expires_in=expires_in,
        rate_per_minute=rate_per_minute,
        toolsets=sorted(toolsets or issuer.toolsets),
    )


def revoke(key: ApiKey) -> None:
    """End a key: at once in this process, within seconds in the others."""
    key.revoke()
    keyring.forget()
