"""What the planning pages share: who looks at which project, what there is to choose from, how a refusal is said."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from devflow.errors import DevFlowError
from workflow.models import Project, Task
from workflow.selectors import activity, planning
from workflow.selectors.board import COLUMN_OF
from workflow.taiga import reading
from workflow.views.cards import TITLES
from workflow.views.shell import may_write, project_named, project_of
from workflow.views.task import refused_page


def seen(request: HttpRequest, slug: str, *, here: str, switch: str) -> tuple[Project, dict[str, Any]]:
    """The project, and what every planning page says of it. `switch` is the same page of another project."""
    project, projects = project_named(request, slug)
    remote = reading.remote_of(project)
    return project, {
        "project": project,
        "projects": projects,
        "seq": activity.newest(project_id=project.pk),  # before the rest is read: what comes later is told later
        "may_write": may_write(request, project) and remote is None,
        "remote": remote,
        "here": here,
        "switch": switch,
    }


def kept_out(request: HttpRequest, project: Project) -> HttpResponse | None:
    """The answer for somebody who may not plan here: a viewer, and everybody where Taiga keeps the plan."""
    if not may_write(request, project):
        return refused_page(request, project)
    if reading.remote_of(project) is not None:
        why = f"{project.name} is planned in Taiga: change it there, or move its cards on the board."
        return render(request, "403.html", {"why": why}, status=403)
    return None


def first(request: HttpRequest, name: str) -> HttpResponse:
    """The page called `name` of the project looked at last."""
    project, _ = project_of(request)
    return redirect("home") if project is None else redirect(name, project.slug)


def told(exc: DevFlowError) -> str:
    return f"{exc.message} {exc.suggestion or ''}".strip()


def done(request: HttpRequest, do: Callable[[], Any], success: str = "") -> Any:
    """What `do` gives; None where it was refused, which the next page says."""
    try:
        made = do()
    except DevFlowError as exc:
        messages.error(request, told(exc))
        return None
    if success:
        messages.success(request, success)
    return made if made is not None else True


def again(request: HttpRequest, url: str) -> HttpResponse:
    """Back to a list as it was narrowed: `?` of the form's own address goes with it."""
    query = request.GET.urlencode()
    return redirect(f"{url}?{query}" if query else url)


def columns_of(tasks: list[Task]) -> list[tuple[str, str, list[Task]]]:
    """Tasks by the board's columns with their titles; those called off are not on it."""
    found: dict[str, list[Task]] = {name: [] for name in TITLES}
    for task in tasks:
        if column := COLUMN_OF.get(task.status):
            found[column].append(task)
    return [(name, title, found[name]) for name, title in TITLES.items()]


def choices(project: Project) -> planning.Words:
    return planning.words(project_id=project.pk)
