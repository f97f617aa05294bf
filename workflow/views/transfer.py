"""Taking projects and tasks elsewhere as files, and bringing them in: looked at first, then whole or not at all."""

import io
import zipfile
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from devflow import multipart
from devflow.errors import DevFlowError
from devflow.shell import SESSION_KEY
from workflow.project_forms import FileChosen, ProjectFileChosen, TableChosen
from workflow.selectors import projects as project_selectors
from workflow.services import phases
from workflow.services.transfer import exporting, project_import, tables, task_import
from workflow.services.transfer.checks import Preview
from workflow.services.transfer.formats import MOST_TASKS
from workflow.services.transfer.phase_files import texts
from workflow.views.projects import not_an_admin, reachable, refused
from workflow.views.shell import page, person_of


def _download(content: str | bytes, name: str, kind: str) -> HttpResponse:
    response = HttpResponse(content, content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@page
@require_safe
def export_project(request: HttpRequest, slug: str) -> HttpResponse:
    """The whole project as JSON; `?events=on` with its history, `?members=on` with its members (for its admins)."""
    project = reachable(request, slug)
    with_members = bool(request.GET.get("members"))
    if with_members and (refusal := not_an_admin(request, project)):
        return refusal
    content = exporting.project_json(
        project_id=project.pk, with_events=bool(request.GET.get("events")), with_members=with_members
    )
    return _download(content, exporting.file_name(project.slug), "application/json")


@page
@require_safe
def export_tasks(request: HttpRequest, slug: str) -> HttpResponse:
    project = reachable(request, slug)
    name = f"{project.slug}-tasks-{timezone.now():%Y-%m-%d}.csv"
    return _download(tables.tasks_csv(project_id=project.pk), name, "text/csv; charset=utf-8")


@page
@require_safe
def export_phases(request: HttpRequest, slug: str) -> HttpResponse:
    project = reachable(request, slug)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in phases.export_files(project_id=project.pk).items():
            archive.writestr(name, text)
    return _download(out.getvalue(), f"{project.slug}-phases.zip", "application/zip")


@page
@require_POST
def import_phases(request: HttpRequest, slug: str) -> HttpResponse:
    """YAML files of phases, as the export makes them: those with the same number are changed."""
    project = reachable(request, slug)
    if refusal := not_an_admin(request, project):
        return refusal
    chosen = request.FILES.getlist("file")
    try:
        files = texts([(file.name or "", b"".join(file.chunks())) for file in chosen])
        made = phases.import_files(project_id=project.pk, files=files, actor=person_of(request))
    except DevFlowError as exc:
        messages.error(request, f"Nothing was imported. {exc.message} {exc.suggestion}")
    else:
        messages.success(request, f"{len(made)} phase{'s' if len(made) != 1 else ''} imported.")
    return redirect("project", slug)


Look = Callable[[bytes], "tuple[Preview, dict[str, Any]]"]
"""What would come of a file, with more for the page that shows it."""


def _answer(
    request: HttpRequest, form: FileChosen, look: Look, go: Callable[[], str], context: dict[str, Any]
) -> HttpResponse:
    """One page for choosing a file, seeing what would come of it, and bringing it in.

    The page's script asks with HX-Request and gets the preview alone, or the place to go to; without it the file is
    sent twice by hand. `go` brings in what was looked at last and gives that place.
    """
    is_partial = bool(request.headers.get("HX-Request"))
    preview: Preview | None = None
    if request.method == "POST" and form.is_valid():
        try:
            preview, more = look(b"".join(form.cleaned_data["file"].chunks()))
            context |= more
            if form.cleaned_data["only"] != "check" and preview.is_good:
                place = go()
                return HttpResponse(status=204, headers={"HX-Redirect": place}) if is_partial else redirect(place)
        except DevFlowError as exc:
            form.add_error(None, f"{exc.message} {exc.suggestion}")
    faulty = bool(form.errors) or (preview is not None and not preview.is_good)
    context |= {"form": form, "preview": preview, "most_bytes": multipart.most_bytes(), "most_tasks": MOST_TASKS}
    template = "workflow/_project_preview.html" if is_partial else context["template"]
    return render(request, template, context, status=422 if faulty and not is_partial else 200)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def import_project(request: HttpRequest) -> HttpResponse:
    if not project_selectors.may_create(request.user):
        return refused(request, "Only an administrator makes projects. Ask one to import it and to add you.")
    form = ProjectFileChosen(*_sent(request))
    found: list[project_import.Reading] = []

    def look(data: bytes) -> tuple[Preview, dict[str, Any]]:
        found.append(project_import.read(data, slug=form.cleaned_data["slug"]))
        return found[-1].preview, {"reading": found[-1]}

    def go() -> str:
        made = project_import.write(found[-1], actor=person_of(request), owner_id=request.user.pk)
        messages.success(request, f"{made.name} was imported.")
        request.session[SESSION_KEY] = made.slug
        return reverse("board", args=[made.slug])

    context = {"template": "workflow/project_import.html", "action": "Import the project", "here": "projects"}
    return _answer(request, form, look, go, context)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def import_tasks(request: HttpRequest, slug: str) -> HttpResponse:
    project = reachable(request, slug)
    if refusal := not_an_admin(request, project):
        return refusal
    if project.archived_at is not None:
        return refused(request, f"{project.name} is archived. Bring it back first.")
    there = list(project_selectors.phases(project_id=project.pk))
    form = TableChosen(*_sent(request), phases=there)
    found: list[task_import.TableReading] = []

    def look(data: bytes) -> tuple[Preview, dict[str, Any]]:
        reading = task_import.read(
            data,
            project_id=project.pk,
            columns=_columns(request, form),
            phase_number=form.cleaned_data["phase"],
        )
        found.append(reading)
        return reading.preview, {"columns": reading.columns}

    def go() -> str:
        made = task_import.write(found[-1], project_id=project.pk, actor=person_of(request))
        messages.success(request, f"{made:,} task{'s' if made != 1 else ''} imported.")
        return reverse("board", args=[project.slug])

    context = {
        "project": project,
        "template": "workflow/project_tasks.html",
        "action": "Import the tasks",
        "fields": [(name, words) for name, (words, _) in tables.TAKEN.items()],
        "has_phases": bool(there),
        "here": "projects",
    }
    return _answer(request, form, look, go, context)


def _sent(request: HttpRequest) -> tuple[Any, ...]:
    return (request.POST, request.FILES) if request.method == "POST" else ()


def _columns(request: HttpRequest, form: forms.Form) -> list[str] | None:
    """What each column shall become, where the person was asked; an answer to another file is none."""
    names = [f"column-{number}" for number in range(len(request.POST))]
    return [request.POST[name] for name in names if name in request.POST] or None
