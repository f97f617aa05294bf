"""The part of a board that Taiga keeps: read when it is looked at, moves written back, and said where Taiga is away."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from devflow.digits import whole
from devflow.errors import DevFlowError, invalid
from workflow.taiga import reading
from workflow.taiga.reading import BoardKind
from workflow.views import planning
from workflow.views.shell import may_write, page, person_of, project_named
from workflow.views.task import refused_page


@page
@require_safe
def cards(request: HttpRequest, slug: str) -> HttpResponse:
    """Taiga's cards, for the board's page, which asks for them apart: they may take as long as Taiga does."""
    project, _ = project_named(request, slug)
    if reading.remote_of(project) is None:
        raise Http404("This project is not kept in Taiga.")
    kind = _kind(request.GET.get("kind", ""))
    board = reading.cards(project, kind=kind, again="again" in request.GET)
    context: dict[str, Any] = {"project": project, "board": board, "kind": kind}
    context["may_write"] = may_write(request, project) and board.state == "up"
    return render(request, "workflow/planning/_taiga.html", context)


@page
@require_POST
def move(request: HttpRequest, slug: str) -> HttpResponse:
    """`move=12 5 3`: the card with this id, into this status, as it was at this version."""
    project, _ = project_named(request, slug)
    if not may_write(request, project):
        return refused_page(request, project)
    if reading.remote_of(project) is None:
        raise Http404("This project is not kept in Taiga.")
    kind = _kind(request.POST.get("kind", ""))
    try:
        words = request.POST.get("move", "").split()
        numbers = [whole(word, digits=15) for word in words]
        if len(numbers) != 3 or None in numbers:
            raise invalid("Say which card, and where to.", move="an id, a status and a version")
        made = reading.move(
            project,
            kind=kind,
            id=int(numbers[0] or 0),
            status_id=int(numbers[1] or 0),
            version=numbers[2],
            actor=person_of(request),
        )
        messages.success(request, f"#{made['ref']} was moved in Taiga.")
    except DevFlowError as exc:
        messages.error(request, planning.told(exc))
    response = redirect("board", project.slug)
    response["Location"] += f"?taiga={kind}#taiga"
    return response


def _kind(asked: str) -> BoardKind:
    return "task" if asked == "task" else "user_story"
