"""Add a source: one form for the five types."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from devflow import config, multipart
from devflow.errors import DevFlowError
from devflow.shell import page, person_of, project_of
from knowledge.forms import AddFiles, AddSource
from knowledge.models import Source
from knowledge.services import sources
from knowledge.views.access import refused
from knowledge.views.shown import KINDS

MEANS = {
    Source.Type.UPLOAD: "From your computer: Markdown, PDF, DOCX, HTML, notebooks, code, or a .zip of them.",
    Source.Type.WEB: "An address whose pages, sitemap and llms.txt are followed.",
    Source.Type.DIRECTORY: "Files on the server, read again when they change.",
    Source.Type.GIT: "A checkout on the server; what .gitignore names is left out.",
    Source.Type.MANUAL: "Paste a note, a decision, an answer worth keeping.",
}


@page
@require_http_methods(["GET", "HEAD", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    project, projects = project_of(request)
    if project is None:
        return redirect("knowledge")
    if refusal := refused(request, project):
        return refusal
    if request.method == "POST":
        form = AddSource(request.POST, request.FILES)
        if form.is_valid() and (made := _made(request, form, project.id)) is not None:
            messages.success(request, f"{made.title}: added, and being read.")
            return went(request, reverse("source", args=[made.pk]))
        if wants_json(request):
            return faults(form)
    else:
        form = AddSource(initial={"type": request.GET.get("type", ""), "url": request.GET.get("url", "")})
    conf = config.current()
    context = {
        "project": project,
        "projects": projects,
        "form": form,
        "types": [(kind.value, KINDS[kind], MEANS[kind]) for kind in KINDS],
        "roots": conf.allowed_roots,
        "limits": conf.knowledge,
        "most_bytes": multipart.most_bytes(),
        "most_files": multipart.FILES_AT_ONCE,
        "most_body": multipart.most_body(),
        "here": "knowledge",
    }
    return render(request, "knowledge/add.html", context, status=422 if form.errors else 200)


def _made(request: HttpRequest, form: AddSource, project_id: int) -> Source | None:
    try:
        return sources.create(project_id=project_id, actor=person_of(request), **form.given())
    except DevFlowError as exc:
        form.refuse(exc)
        return None


# --- answers for the page's own script, which sends files with a bar that moves --------------------------------------


def wants_json(request: HttpRequest) -> bool:
    return request.headers.get("Accept") == "application/json"


def went(request: HttpRequest, place: str) -> HttpResponse:
    """Lead to a page; the script goes there itself."""
    return JsonResponse({"location": place}) if wants_json(request) else redirect(place)


def faults(form: AddSource | AddFiles) -> HttpResponse:
    """What is wrong, by field: the page keeps what was typed and the files that were chosen."""
    errors = {name: [str(error) for error in found] for name, found in form.errors.items()}
    return JsonResponse({"errors": errors}, status=422)
