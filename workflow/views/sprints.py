"""Sprints: which there are, and one with its stories, their tasks in the board's columns, and how it burns down."""

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from devflow.errors import ERROR_TABLE, DevFlowError, invalid
from workflow.models import Project, Sprint, Task
from workflow.planning_forms import MoveTask, SprintForm
from workflow.selectors import agile
from workflow.selectors import planning as plans
from workflow.selectors.planning import Load, Page, Row
from workflow.selectors.tasks import with_status
from workflow.services import board
from workflow.services.agile import sprints
from workflow.views import planning
from workflow.views.backlog import _valid
from workflow.views.cards import TITLES
from workflow.views.insight_figures import sprint_figure
from workflow.views.shell import page, person_of, project_named

USUAL_LENGTH = timedelta(days=13)
MOST_STORIES = 200
MOST_TASKS = 2000


@page
@require_http_methods(["GET", "HEAD", "POST"])
def listed(request: HttpRequest, slug: str) -> HttpResponse:
    """All sprints, the open ones first; POST makes one."""
    project, context = planning.seen(request, slug, here="backlog", switch="sprints")
    form = SprintForm(request.POST or None, initial=_next(project))
    if request.method == "POST":
        if (refused := planning.kept_out(request, project)) is not None:
            return refused
        if form.is_valid() and (made := _made(request, project, form)) is not None:
            messages.success(request, f"{made.name} was made. Now put stories into it.")
            return redirect("sprint", project.slug, made.pk)
    rows = Sprint.objects.filter(project=project).order_by("is_closed", "-starts_on", "-pk")
    cut = Page.of(request.GET.get("page", ""), total=rows.count(), size=plans.SPRINTS)
    shown = list(rows[cut.slice])
    loads = plans.loads(one.pk for one in shown)
    context |= {
        "rows": [(one, loads.get(one.pk, Load()), plans.days_left(one)) for one in shown],
        "page": cut,
        "form": form,
    }
    name = "_sprints" if request.headers.get("HX-Request") else "sprints"
    return render(request, f"workflow/planning/{name}.html", context, status=422 if form.errors else 200)


def _next(project: Project) -> dict[str, Any]:
    """Two weeks behind the last sprint, or from today."""
    last = Sprint.objects.filter(project=project).order_by("-ends_on").first()
    today = timezone.now().date()
    starts = max(today, last.ends_on + timedelta(days=1)) if last else today
    return {"starts_on": starts, "ends_on": starts + USUAL_LENGTH}


def _made(request: HttpRequest, project: Project, form: SprintForm) -> Sprint | None:
    try:
        return sprints.create(project=project, actor=person_of(request), **form.cleaned_data)
    except DevFlowError as exc:
        form.add_error(None, planning.told(exc))
        return None


def sprint_of(project: Project, number: int) -> Sprint:
    found = Sprint.objects.filter(project=project, pk=number).select_related("project").first()
    if found is None:
        raise Http404("There is no such sprint in this project.")
    return found


@page
@require_safe
def sprint(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """The page; for its own script the part that changes."""
    project, context = planning.seen(request, slug, here="backlog", switch="sprints")
    found = sprint_of(project, number)
    name = "_sprint" if request.headers.get("HX-Request") else "sprint"
    return render(request, f"workflow/planning/{name}.html", context | _context(found))


def _context(found: Sprint, form: SprintForm | None = None) -> dict[str, Any]:
    """What a sprint's page is drawn from. A fixed number of queries."""
    now = timezone.now()
    stories = list(agile.stories(found.project_id).filter(sprint=found).order_by("position", "pk")[: MOST_STORIES + 1])
    some = with_status(Task.objects.filter(user_story__in=[story.pk for story in stories]), now)
    tasks: dict[int, list[Task]] = {}
    for task in some.select_related("assigned_agent").order_by("-boosted", "position", "pk")[:MOST_TASKS]:
        task.status = task.current_status  # type: ignore[attr-defined]  # an annotation of `with_status`
        tasks.setdefault(int(task.user_story_id or 0), []).append(task)
    return {
        "sprint": found,
        "rows": [Row(story, planning.columns_of(tasks.get(story.pk, []))) for story in stories[:MOST_STORIES]],
        "is_cut": len(stories) > MOST_STORIES,
        "load": plans.loads([found.pk]).get(found.pk, Load()),
        "left": plans.days_left(found),
        "titles": TITLES,
        "figure": sprint_figure(found),
        "days": (found.ends_on - found.starts_on).days + 1,
        "form": form
        or SprintForm(initial={"name": found.name, "starts_on": found.starts_on, "ends_on": found.ends_on}),
    }


@page
@require_POST
def act(request: HttpRequest, slug: str, number: int, action: str) -> HttpResponse:
    """Change the sprint, close it or open it again, delete it, or move a card of one of its tasks."""
    project, _ = project_named(request, slug)
    if (refused := planning.kept_out(request, project)) is not None:
        return refused
    found = sprint_of(project, number)
    who: dict[str, Any] = {"project": project, "pk": found.pk, "actor": person_of(request)}
    if action == "edit":
        return _edited(request, found, who)
    if action == "delete":
        gone = planning.done(request, lambda: sprints.delete(**who), f"{found.name} was deleted.")
        return redirect(reverse("sprints", args=[project.slug]) if gone else _url(found))
    if action in ("close", "reopen"):
        planning.done(request, lambda: sprints.change(**who, fields={"is_closed": action == "close"}))
    elif action == "move":
        planning.done(request, lambda: _move(request, found))
    else:
        raise Http404("There is no such action.")
    return redirect(_url(found))


def _url(found: Sprint) -> str:
    return reverse("sprint", args=[found.project.slug, found.pk])


def _edited(request: HttpRequest, found: Sprint, who: dict[str, Any]) -> HttpResponse:
    form = SprintForm(request.POST)
    status = 422
    if form.is_valid():
        try:
            sprints.change(**who, fields=form.cleaned_data)
        except DevFlowError as exc:
            form.add_error(None, planning.told(exc))
            status = ERROR_TABLE[exc.code].http
        else:
            messages.success(request, "Saved.")
            return redirect(_url(found))
    _, context = planning.seen(request, found.project.slug, here="backlog", switch="sprints")
    return render(request, "workflow/planning/sprint.html", context | _context(found, form), status=status)


def _move(request: HttpRequest, found: Sprint) -> None:
    """The same move as on the board, under the same rules."""
    words = [*request.POST.get("move", "").split(), "", "", ""]
    said = _valid(MoveTask({"task": words[0], "column": words[1], "version": words[2]}))
    if said["column"] not in TITLES:
        raise invalid("There is no such column.", column=f"one of {', '.join(TITLES)}")
    if not Task.objects.filter(pk=said["task"], user_story__sprint=found).exists():
        raise invalid("That task is not in this sprint any more.", task=str(said["task"]))
    board.move(
        project_id=found.project_id,
        task_id=said["task"],
        column=said["column"],
        version=said["version"],
        actor=person_of(request),
    )
