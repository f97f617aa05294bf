"""Which sources and documents a person may open, and who may change them."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from devflow.ports import ProjectRef
from devflow.shell import may_write, projects_of
from knowledge.models import Document, Source


def source_of(request: HttpRequest, number: int) -> tuple[Source, ProjectRef]:
    """A source with its project. Raises Http404, also for another project's."""
    seen = {project.id: project for project in projects_of(request)}
    found = Source.objects.filter(pk=number, project__in=seen).first()
    if found is None:
        raise Http404("There is no such source, or it is not in a project of yours.")
    return found, seen[found.project_id]


def document_of(request: HttpRequest, number: int, *, with_text: bool = False) -> tuple[Document, ProjectRef]:
    """A document with its source and its project; its text can be large. Raises Http404, also for another project's."""
    seen = {project.id: project for project in projects_of(request)}
    rows = Document.objects.select_related("source").defer(*([] if with_text else ["text"]))
    found = rows.filter(pk=number, project__in=seen).first()
    if found is None:
        raise Http404("There is no such document, or it is not in a project of yours.")
    return found, seen[found.project_id]


def refused(request: HttpRequest, project: ProjectRef) -> HttpResponse | None:
    """The answer for somebody who may not change this project; None: they may."""
    if may_write(request, project.id):
        return None
    return render(request, "403.html", {"why": "You may read this project, not change it."}, status=403)
