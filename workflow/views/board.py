"""The board: five columns that follow what happens."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from devflow.errors import DevFlowError
from workflow.forms import NewTask
from workflow.models import Note, Phase, Project
from workflow.selectors import board as board_selectors
from workflow.selectors.tasks import Card
from workflow.services import tasks
from workflow.views.shell import may_write, page, person_of, project_named, project_of

TITLES = {
    "backlog": "Backlog",
    "ready": "Ready",
    "in_progress": "In progress",
    "review": "Review",
    "done": "Done",
}
EMPTY = {
    "backlog": "Nothing waits. Tasks with open blockers appear here.",
    "ready": "Nothing to claim. Add a task, or let an agent plan some.",
    "in_progress": "Nobody is at work. Connect a client: it calls claim_task.",
    "review": "Nothing waits for a person.",
    "done": "Nothing is finished yet.",
}
RING = 54.0
"""Length of the ring round an agent's initials, as the template draws it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A card with what only the page shows: its phase, its notes, and how much of its lease is left (0..RING)."""

    card: Card
    phase: Phase | None
    hue: int
    notes: int
    ring: float
    soon: bool


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    title: str
    cards: list[Shown]
    count: int
    limit: int | None
    truncated: bool
    empty: str

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.count >= self.limit


def _shown(card: Card, phases: Mapping[int, Phase], notes: Mapping[int, int], now: datetime) -> Shown:
    phase = phases.get(card.phase)
    ring, soon = 0.0, False
    if card.lease_expires_at is not None and card.status == "in_progress":
        left = card.lease_expires_at - now
        whole = phase.lease if phase else timedelta(minutes=30)
        ring = round(RING * min(1.0, max(0.0, left / whole)), 1)
        soon = left < timedelta(minutes=5)
    return Shown(card, phase, (card.phase - 1) % 5 + 1, notes.get(card.pk, 0), ring, soon)


def columns_of(project: Project) -> tuple[board_selectors.Board, list[Column]]:
    """The board as the page draws it. Nine queries whatever the number of tasks."""
    now = timezone.now()
    board = board_selectors.board(project=project, at=now)
    phases = {phase.number: phase for phase in Phase.objects.filter(project=project)}
    shown = [card.pk for cards in board.columns.values() for card in cards]
    counted = Note.objects.filter(task__in=shown).order_by().values_list("task").annotate(n=Count("pk"))
    notes = dict(counted)
    return board, [
        Column(
            name=name,
            title=TITLES[name],
            cards=[_shown(card, phases, notes, now) for card in cards],
            count=board.counts[name],
            limit=board.limits[name],
            truncated=board.truncated[name],
            empty=EMPTY[name],
        )
        for name, cards in board.columns.items()
    ]


@page
@require_safe
def first(request: HttpRequest) -> HttpResponse:
    """`/board/`: the project looked at last."""
    project, _ = project_of(request)
    return redirect("home") if project is None else redirect("board", project.slug)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def board(request: HttpRequest, slug: str) -> HttpResponse:
    """The page, its columns alone for a request of the page's own script, and the form for a new task."""
    project, projects = project_named(request, slug)
    writes = may_write(request, project)
    phases = list(Phase.objects.filter(project=project))
    form = NewTask(request.POST or None, phases=phases)
    if request.method == "POST" and writes and form.is_valid() and _created(request, project, form):
        return redirect("board", project.slug)
    status = 403 if request.method == "POST" and not writes else 422 if request.method == "POST" else 200
    state, columns = columns_of(project)
    context = {"project": project, "board": state, "columns": columns}
    if request.headers.get("HX-Request"):
        return render(request, "workflow/_columns.html", context)
    context |= {"projects": projects, "form": form, "may_write": writes, "phases": phases, "here": "board"}
    return render(request, "workflow/board.html", context, status=status)


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
