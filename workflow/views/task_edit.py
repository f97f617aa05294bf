"""The form that changes what a task says, for several people at once: nobody's words are lost or written over."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode
from workflow.forms import EditTask
from workflow.models import Agent, Event, Phase, Task
from workflow.models.agile import CLOSING
from workflow.selectors import agile
from workflow.services import editing
from workflow.services.editing import Clash, Draft
from workflow.views.shell import may_write, page, person_of
from workflow.views.task import refused_page, task_of

EDITS = ("task.edited", "task.blocked", "task.unblocked", "task.reserved", "task.unreserved")
MOST_AGENTS = 200
MOST_STORIES = 200


@dataclass(frozen=True, slots=True)
class Choice:
    """A field both versions of which are shown; `bound` draws the person's own, `is_both` asks for a decision."""

    name: str
    label: str
    theirs: str
    mine: str
    is_both: bool
    bound: Any


@page
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, number: int) -> HttpResponse:
    row = task_of(request, number)
    if not may_write(request, row.project):
        return refused_page(request, row.project)
    now = Draft.of(row)
    if request.method != "POST":
        return _form(request, row, _filled(row, now, now))
    form = EditTask(request.POST, **_choices(row, request.POST.get("reserved_for", "")))
    if not form.is_valid():
        return _form(request, row, form, status=422)
    mine = _decided(request, form.draft(), now)
    merged, clashes = editing.compare(marks=form.cleaned_data["marks"], theirs=now, mine=mine)
    if form.cleaned_data["version"] != row.version and clashes:
        return _both(request, row, merged, clashes)
    draft = mine if clashes else merged
    try:
        editing.save(
            project_id=row.project_id, task_id=row.pk, draft=draft, version=row.version, actor=person_of(request)
        )
    except DevFlowError as exc:
        if exc.code == ErrorCode.CONFLICT and "yours" in exc.details:  # it changed between reading and writing
            return edit(request, number)  # type: ignore[no-any-return]  # the shell's decorator says Any
        form.add_error(None, f"{exc.message} {exc.suggestion or ''}")
        return _form(request, row, form, status=ERROR_TABLE[exc.code].http)
    messages.success(request, "Saved.")
    return redirect("task", row.pk)


def _choices(row: Task, chosen: str = "") -> dict[str, Any]:
    agents = Agent.objects.filter(project=row.project_id, retired_at=None).order_by("-last_seen")
    names = list(agents.values_list("name", flat=True)[:MOST_AGENTS])
    own = row.reserved_for.name if row.reserved_for else ""
    if own and own not in names:
        names.append(own)
    if chosen and chosen not in names and agents.filter(name=chosen).exists():
        names.append(chosen)
    return {"phases": list(Phase.objects.filter(project=row.project_id)), "agents": sorted(names, key=str.casefold)}


def _filled(row: Task, said: Draft, now: Draft) -> EditTask:
    """A form that says `said` and was begun with what the task says now."""
    marks = EditTask.initial_of(now, row.version)
    return EditTask(
        initial={**EditTask.initial_of(said, row.version), "marks": marks["marks"]},
        **_choices(row, said.reserved_for),
    )


def _decided(request: HttpRequest, mine: Draft, now: Draft) -> Draft:
    """What the person wants, with each field as it is now where they chose to keep that."""
    kept = {name: value for name, value in asdict(now).items() if request.POST.get(f"keep-{name}") == "theirs"}
    return replace(mine, **kept)


def _form(request: HttpRequest, row: Task, form: EditTask, *, status: int = 200) -> HttpResponse:
    stories = agile.stories(row.project_id).exclude(status__category__in=CLOSING).order_by("position", "pk")
    context = {"task": row, "project": row.project, "form": form, "here": "board", "stories": stories[:MOST_STORIES]}
    return render(request, "workflow/task_edit.html", context, status=status)


def _both(request: HttpRequest, row: Task, merged: Draft, clashes: list[Clash]) -> HttpResponse:
    """Both versions side by side, of each field somebody else changed meanwhile."""
    now = Draft.of(row)
    form = _filled(row, replace(merged, **{one.field: one.mine for one in clashes}), now)
    choices = [
        Choice(
            one.field,
            str(form[one.field].label),
            _shown(form, one.field, one.theirs),
            _shown(form, one.field, one.mine),
            one.is_both,
            form[one.field],
        )
        for one in clashes
    ]
    names = {one.field for one in clashes}
    others = [bound for bound in form if bound.name not in names]
    mine, theirs = asdict(merged), asdict(now)
    own = [bound.label for bound in others if mine.get(bound.name) != theirs.get(bound.name)]
    last = Event.objects.filter(task=row, kind__in=EDITS).order_by("-pk").first()
    context = {
        "task": row,
        "project": row.project,
        "form": form,
        "choices": choices,
        "others": [bound.as_hidden() for bound in others],
        "own": own,
        "last": last,
        "here": "board",
    }
    return render(request, "workflow/task_conflict.html", context, status=409)


def _shown(form: EditTask, name: str, value: Any) -> str:
    """A field's value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value)
    if name in ("phase", "reserved_for"):
        choices = dict(form.fields[name].choices)  # type: ignore[attr-defined]  # both are choice fields
        return str(choices.get(value, value))
    return str(value)
