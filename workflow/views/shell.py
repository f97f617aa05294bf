"""The shell of the workflow's pages: `devflow.shell`, with the project as its row."""

from django.http import HttpRequest

from devflow import shell
from devflow.ports import ProjectRef
from devflow.shell import page, person_of, projects_of
from workflow.models import Project

__all__ = ["may_write", "page", "person_of", "project_named", "project_of", "projects_of"]


def project_named(request: HttpRequest, slug: str) -> tuple[Project, list[ProjectRef]]:
    """A project by its slug, which is remembered, and all there are. Raises Http404 for one the person does not see."""
    chosen, seen = shell.project_named(request, slug)
    return Project.objects.get(pk=chosen.id), seen


def project_of(request: HttpRequest) -> tuple[Project | None, list[ProjectRef]]:
    """`?project=`, or the project looked at last, with all there are. None: the person sees no project at all."""
    chosen, seen = shell.project_of(request)
    return Project.objects.get(pk=chosen.id) if chosen else None, seen


def may_write(request: HttpRequest, project: Project) -> bool:
    return shell.may_write(request, project.pk)
