"""One source: its state and its documents, and what can be done with it."""

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from devflow import multipart
from devflow.errors import DevFlowError
from devflow.ports import ProjectRef
from devflow.shell import may_write, page, person_of, projects_of
from knowledge.forms import AddFiles, EditSite, EditSource, EditText
from knowledge.indexing import uploads
from knowledge.models import Chunk, Document, Source
from knowledge.services import sources
from knowledge.views.access import refused, source_of
from knowledge.views.adding import faults, wants_json, went
from knowledge.views.shown import fault, shown

PAGE = 50


@page
@require_safe
def source(request: HttpRequest, number: int) -> HttpResponse:
    """The page; its state and documents alone for a request of the page's own script."""
    found, project = source_of(request, number)
    context = _context(request, found, project)
    if request.headers.get("HX-Request"):
        return render(request, "knowledge/_source.html", context)
    return render(request, "knowledge/source.html", context | {"form": AddFiles()})


def _context(request: HttpRequest, found: Source, project: ProjectRef) -> dict[str, Any]:
    text, status = request.GET.get("q", "").replace("\0", "").strip(), request.GET.get("status", "")
    rows = Document.objects.filter(source=found).defer("text", "pages")
    if text:
        rows = rows.filter(Q(path__icontains=text) | Q(title__icontains=text))
    if status in Document.Status.values:
        rows = rows.filter(status=status)
    documents = Paginator(rows.order_by("path", "pk"), PAGE).get_page(request.GET.get("page"))
    counted = Chunk.objects.filter(document__in=[one.pk for one in documents]).order_by()
    chunks = dict(counted.values_list("document").annotate(n=Count("pk")))
    return {
        "project": project,
        "projects": projects_of(request),
        "one": shown([found])[0],
        "documents": documents,
        "rows": [(one, chunks.get(one.pk, 0)) for one in documents],
        "q": text,
        "status": status,
        "fault": fault(),
        "partial": f"{reverse('source', args=[found.pk])}?{request.GET.urlencode()}",
        "may_write": may_write(request, project.id),
        "most_bytes": multipart.most_bytes(),
        "most_files": multipart.FILES_AT_ONCE,
        "most_body": multipart.most_body(),
        "here": "knowledge",
    }


@page
@require_POST
def add_files(request: HttpRequest, number: int) -> HttpResponse:
    """Add files to an upload, or replace those of the same name."""
    found, project = source_of(request, number)
    if refusal := refused(request, project):
        return refusal
    form = AddFiles(request.POST, request.FILES)
    if form.is_valid():
        files = form.cleaned_data["upload"]
        try:
            sources.add_files(
                source=found, files=[(file.name, file.chunks()) for file in files], actor=person_of(request)
            )
        except DevFlowError as exc:
            form.refuse(exc)
        else:
            messages.success(request, f"{len(files)} file{'s were' if len(files) > 1 else ' was'} added.")
            return went(request, reverse("source", args=[found.pk]))
    if wants_json(request):
        return faults(form)
    return render(request, "knowledge/source.html", _context(request, found, project) | {"form": form}, status=422)


ACTIONS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "read": (sources.request_run, "It is read again; what did not change is left alone."),
    "reindex": (lambda **who: sources.request_run(force=True, **who), "Every document is read anew."),
    "retry": (sources.retry_failed, "The documents that failed are read again."),
    "pause": (sources.pause, "It is paused. What is indexed is still found."),
    "resume": (sources.resume, "It goes on."),
}


@page
@require_POST
def act(request: HttpRequest, number: int, action: str) -> HttpResponse:
    """Read again, index anew, retry, pause, resume."""
    found, project = source_of(request, number)
    if action not in ACTIONS:
        raise Http404("There is no such action.")
    if refusal := refused(request, project):
        return refusal
    run, words = ACTIONS[action]
    try:
        run(source=found, actor=person_of(request))
        messages.success(request, words)
    except DevFlowError as exc:
        messages.error(request, f"{exc.message} {exc.suggestion}")
    return redirect("knowledge" if request.POST.get("back") == "knowledge" else reverse("source", args=[found.pk]))


@page
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, number: int) -> HttpResponse:
    found, project = source_of(request, number)
    if refusal := refused(request, project):
        return refusal
    form = _form(request, found)
    if request.method == "POST" and form.is_valid() and _changed(request, found, form):
        return redirect("source", found.pk)
    context = {
        "project": project,
        "projects": projects_of(request),
        "one": shown([found])[0],
        "form": form,
        "here": "knowledge",
    }
    return render(request, "knowledge/edit.html", context, status=422 if form.errors else 200)


def _form(request: HttpRequest, found: Source) -> EditSource | EditSite | EditText:
    initial = {name: getattr(found, name) for name in ("title", "description", "tags", "priority")}
    data = request.POST if request.method == "POST" else None
    if found.type == Source.Type.WEB:
        return EditSite(data, initial=initial | {"same_path": True} | found.options)
    if found.type == Source.Type.MANUAL:
        return EditText(data, initial=initial | {"content": _text_of(found)})
    return EditSource(data, initial=initial)


def _text_of(found: Source) -> str:
    """The text of a manual source as it was typed."""
    try:
        return uploads.read(found.pk, found.metadata["files"][0]["sha256"]).decode("utf-8", "replace")
    except (DevFlowError, LookupError):
        return found.documents.values_list("text", flat=True).first() or ""


def _changed(request: HttpRequest, found: Source, form: EditSource | EditSite | EditText) -> bool:
    data, who = form.cleaned_data, person_of(request)
    changes = {name: data[name] for name in ("title", "description", "tags", "priority")}
    before = dict(found.options)
    try:
        if isinstance(form, EditSite):
            changes["options"] = form.options()
        changed = sources.configure(source=found, actor=who, **changes)
        if isinstance(form, EditText) and "content" in form.changed_data:
            sources.rewrite(source=changed, content=data["content"], actor=who)
        elif isinstance(form, EditSite) and changes["options"] != before:
            sources.request_run(source=changed, actor=who)
    except DevFlowError as exc:
        form.refuse(exc)
        return False
    messages.success(request, "Saved.")
    return True


@page
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, number: int) -> HttpResponse:
    """Ask, then delete the source with everything it gave."""
    found, project = source_of(request, number)
    if refusal := refused(request, project):
        return refusal
    if request.method == "POST":
        title = found.title
        sources.delete(source=found, actor=person_of(request))
        messages.success(request, f"{title} was deleted, and everything it gave.")
        return redirect("knowledge")
    context = {
        "project": project,
        "projects": projects_of(request),
        "one": shown([found])[0],
        "title": found.title,
        "back": reverse("source", args=[found.pk]),
        "here": "knowledge",
    }
    return render(request, "knowledge/delete.html", context)
