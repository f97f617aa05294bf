"""Which project an agile tool's call is about, and who keeps that project's items."""

from typing import Protocol

from devflow.actors import Actor
from devflow.errors import invalid, not_found
from devflow.ports import KeyScope
from workflow.models import ActiveProject, Project
from workflow.selectors import projects
from workflow.taiga.local import LocalProvider
from workflow.taiga.provider import Provider

NO_PROJECT = "Active project not set"


class Asker(Protocol):
    """What choosing needs to know of a caller."""

    @property
    def scope(self) -> KeyScope: ...

    @property
    def project_slug(self) -> str | None: ...

    @property
    def agent_name(self) -> str: ...


def project_of(asker: Asker, project_id: int | None = None) -> Project:
    """The project of a call: `project_id`, else X-Project, else the active one, else the key's own. Never guessed.

    Raises `not_found` for one the key does not see, `invalid_input` (`Active project not set`) where nobody said.
    """
    seen = projects.visible(asker.scope).select_related("remote")
    if project_id is not None:
        return named(asker, project_id=project_id)
    if asker.project_slug is not None:
        return named(asker, slug=asker.project_slug)
    active = ActiveProject.objects.filter(key_id=asker.scope.key_id, agent_name=asker.agent_name).values("project")
    found = seen.filter(pk__in=active).first()
    if found is None and asker.scope.project_id is not None:
        found = seen.first()  # a key of a project sees that one only
    if found is None:
        raise invalid(
            NO_PROJECT, projectId="give it, call taiga.set_active_project (taiga.list_projects), or send X-Project"
        )
    return found


def named(asker: Asker, *, project_id: int | None = None, slug: str | None = None) -> Project:
    """The project with this id or slug. Raises the same `not_found` for an unknown one and one the key cannot see."""
    seen = projects.visible(asker.scope).select_related("remote")
    found = seen.filter(slug=slug) if project_id is None else seen.filter(pk=project_id)
    project = found.first()
    if project is None:
        raise not_found(
            "Project",
            slug if project_id is None else project_id,
            suggestion="taiga.list_projects lists those you may use.",
        )
    return project


def is_remote(project: Project) -> bool:
    return getattr(project, "remote", None) is not None


def provider_of(project: Project, actor: Actor) -> Provider:
    """Who keeps the project's items, as `actor` sees and changes them."""
    if not is_remote(project):
        return LocalProvider(project, actor)
    from workflow.taiga.remote import RemoteProvider  # its client is loaded only where a project needs it

    return RemoteProvider(project, actor)
