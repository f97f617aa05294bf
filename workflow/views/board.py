"""The board: five columns that follow what happens, in lanes where somebody wants them."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from devflow.errors import DevFlowError, invalid
from workflow.forms import NewTask, ViewName
from workflow.models import Project, SavedView, Task
from workflow.selectors import activity, filters
from workflow.selectors import board as board_selectors
from workflow.selectors.filters import TaskFilter
from workflow.services import tasks, views
from workflow.taiga import reading
from workflow.views import cards
from workflow.views.shell import may_write, page, person_of, project_named, project_of


@page
@require_safe
def first(request: HttpRequest) -> HttpResponse:
    """`/board/`: the project looked at last."""
    project, _ = project_of(request)
    return redirect("home") if project is None else redirect("board", project.slug)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def board(request: HttpRequest, slug: str) -> HttpResponse:
    """The page, its board alone for a request of the page's own script, and the form for a new task."""
    project, projects = project_named(request, slug)
    writes = may_write(request, project)
    phases = cards.phases_of(project)
    form = NewTask(request.POST or None, phases=list(phases.values()))
    if request.method == "POST" and writes and form.is_valid() and _created(request, project, form):
        return redirect("board", project.slug)
    status = 403 if request.method == "POST" and not writes else 422 if request.method == "POST" else 200
    context = _drawn(project, phases, TaskFilter.of(request.GET)) | {
        "may_write": writes,
        "phases": phases,
        "saved": list(SavedView.objects.filter(project=project, user=request.user.pk)),
    }
    if request.headers.get("HX-Request"):
        return render(request, "workflow/_board.html", context)
    context |= {"projects": projects, "form": form, "here": "board", "remote": reading.remote_of(project)}
    context["taiga_kind"] = "task" if request.GET.get("taiga") == "task" else "user_story"
    return render(request, "workflow/board.html", context, status=status)


def _drawn(project: Project, phases: cards.Phases, wanted: TaskFilter) -> dict[str, Any]:
    seq = activity.newest(project_id=project.pk)  # before the board is read: what comes later is told later
    state, lanes = cards.lanes_of(project, phases, wanted)
    names = {number: phase.name for number, phase in phases.items()}
    return {
        "project": project,
        "seq": seq,
        "board": state,
        "lanes": lanes,
        "wanted": wanted,
        "choices": filters.choices(project_id=project.pk, phases=names),
        "chips": [(name, value, _said(name, value, names), wanted.without(name, value).query())
                  for name, value in wanted.pairs() if name != "lanes"],
        "lane_kinds": filters.LANES,
        "most": cards.MOST_IN_LANES,
        "hidden": _hidden(state) if wanted.lanes else 0,
        "everything": bool(state.total) or Task.objects.filter(project=project).exists(),
    }  # fmt: skip


def _hidden(state: board_selectors.Board) -> int:
    return sum(number - len(state.columns[name]) for name, number in state.counts.items())


def _said(name: str, value: str, phases: dict[int, str]) -> str:
    """A condition as its chip says it."""
    if name == "phase":
        return phases.get(int(value), f"phase {value}")
    if name == "agent":
        return "nobody's" if value == filters.NOBODY else value
    if name == "blocked":
        return "blocked" if value == "yes" else "not blocked"
    if name in ("story", "epic"):
        return f"#{value}"
    return f"“{value}”" if name == "q" else value


@page
@require_safe
def more(request: HttpRequest, slug: str) -> HttpResponse:
    """The next cards of a column, behind the place `?after=` that its last card has."""
    project, _ = project_named(request, slug)
    column, after = request.GET.get("column", ""), request.GET.get("after", "")
    wanted = TaskFilter.of(request.GET)
    asked = wanted.apply(Task.objects.filter(project=project))
    try:
        if column not in cards.TITLES:
            raise invalid("There is no such column.")
        found = board_selectors.more(tasks=asked, column=column, after=after, limit=cards.PAGE + 1)
    except DevFlowError as exc:
        return HttpResponseBadRequest(f"{exc.message} Name a column and the place of its last card.")
    context = {
        "cards": cards.shown(found[: cards.PAGE], cards.phases_of(project)),
        "more": len(found) > cards.PAGE,
        "column": column,
        "project": project,
        "wanted": wanted,
    }
    return render(request, "workflow/_more.html", context)


@page
@require_POST
def save_view(request: HttpRequest, slug: str) -> HttpResponse:
    """Keep the filters of an address under a name, or drop those kept before."""
    project, _ = project_named(request, slug)
    form = ViewName(request.POST)
    where = TaskFilter.of(request.GET).query()
    is_named = form.is_valid()
    kept: Any = {"project_id": project.pk, "user_id": request.user.pk, "name": form.cleaned_data.get("name")}
    if not is_named:
        messages.error(request, "A view needs a name of at most 60 characters.")
    elif form.cleaned_data["forget"]:
        views.forget(**kept)
    else:
        try:
            views.save(**kept, query=where)
        except DevFlowError as exc:
            messages.error(request, f"{exc.message} {exc.suggestion}")
    response = redirect("board", project.slug)
    response["Location"] += f"?{where}" if where else ""
    return response


def _created(request: HttpRequest, project: Project, form: NewTask) -> bool:
    try:
        made = tasks.create(
            project_id=project.pk,
            phase_number=form.cleaned_data["phase"],
            description=form.cleaned_data["description"],
            priority=form.cleaned_data["priority"],
            actor=person_of(request),
        )
    except DevFlowError as exc:
        form.add_error(None, f"{exc.message} {exc.suggestion}")
        return False
    messages.success(request, f"{made.public_id} was added.")
    return True
