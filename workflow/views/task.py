"""A task: what it says, what shows that it is done, what stands around it, and who did what to it."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from devflow import ports
from workflow.models import Event, Evidence, Note, Project, Status, Task
from workflow.selectors import activity, around
from workflow.selectors.tasks import with_status
from workflow.services.board import MOVES
from workflow.views.shell import may_write, page, projects_of
from workflow.views.trail import said, trail

EVENTS = 15
NOTES = 50
CALLS = 20
MOST_CALLS = 200
MOST_DRAWN = 40
RELATED = 3
OPEN = (Status.PENDING, Status.READY, Status.IN_PROGRESS, Status.REVIEW, Status.FAILED)
HUES = {"done": "good", "failed": "bad", "review": "warn", "cancelled": "", "pending": "", "ready": "on"}


def task_of(request: HttpRequest, number: int) -> Task:
    """A task of one of the person's projects, with what its page shows. Raises Http404."""
    where = Task.objects.filter(pk=number, project__in=[project.id for project in projects_of(request)])
    project_id = where.values_list("project", flat=True).first()
    found = None if project_id is None else around.whole(project_id=project_id, task_id=number)
    if found is None:
        raise Http404("There is no such task, or it is not in a project of yours.")
    return found


@page
@require_safe
def task(request: HttpRequest, number: int) -> HttpResponse:
    """The page; for its own script only the parts that can change."""
    row = task_of(request, number)
    if request.headers.get("HX-Request"):
        return render(request, "workflow/_task.html", context_of(request, row))
    return render(request, "workflow/task.html", context_of(request, row) | related(row))


def context_of(request: HttpRequest, row: Task) -> dict[str, Any]:
    """What the parts of a task's page are drawn from. A fixed number of queries."""
    seq = activity.newest(project_id=row.project_id)  # before the rest is read: what comes later is told later
    now = timezone.now()
    annotated: Any = with_status(Task.objects.filter(pk=row.pk), now)
    status = str(annotated.values_list("current_status", flat=True).get())
    is_held = row.is_held(now) and status == Status.IN_PROGRESS
    shown = {item.definition_id: item for item in row.evidence.all()}
    checks = [(item, shown.get(item.pk)) for item in row.phase.done_definitions.all()]
    every_note = request.GET.get("notes") == "all"
    notes = list(Note.objects.filter(task=row).order_by("-pk")[: None if every_note else NOTES + 1])
    graph = around.graph(row)
    events = list(activity.feed(project_id=row.project_id, task_id=row.pk)[: EVENTS + 1])
    every_call = request.GET.get("calls") == "all"
    most = MOST_CALLS if every_call else CALLS
    calls = _calls(row, most + 1)
    return {
        "task": row,
        "seq": seq,
        "status": status,
        "hue": HUES.get(status, "on"),
        "is_open": status in OPEN,
        "holder": row.assigned_agent if is_held else None,
        "talks_to": next((one for one in (row.assigned_agent, row.reserved_for) if one and not one.retired_at), None),
        "ring": _ring(row, now) if is_held else 0,
        "description": row.description.removeprefix(row.subject).strip(),
        "project": row.project,
        "checks": checks,
        "ticked": len([1 for _, evidence in checks if evidence]),
        "kinds": [(kind.value, kind.value.replace("_", " ")) for kind in Evidence.Kind],
        "notes": notes[:NOTES][::-1] if not every_note else notes[::-1],
        "earlier": len(notes) > NOTES and not every_note,
        "graph": graph,
        "drawing": _drawing(graph) if 1 < len(graph.nodes) <= MOST_DRAWN else None,
        "children": _progress(row.children.all()),
        "calls": calls[:most],
        "one_agent": len({call.agent for call in calls}) == 1,
        "more_calls": len(calls) > most and not every_call,
        "trail": trail(events[:EVENTS]),
        "more_events": len(events) > EVENTS,
        "last_move": _last_move(row),
        "near_ids": " ".join(f"task-{pk}" for pk in _near(row, graph)),
        "may_write": may_write(request, row.project),
        "here": "board",
    }


def related(row: Task) -> dict[str, Any]:
    """What is remembered and known near the task: asked once for a page, not with every change of it."""
    text = f"{row.subject}\n{row.description.removeprefix(row.subject).strip()}"[:2000]
    found = ports.recall().related(row.project_id, text, limit=RELATED)
    return {
        "memories": [(memory["memory_id"].rpartition("-")[2], memory) for memory in found],
        "passages": ports.shelf().near(row.project_id, text, limit=RELATED),
    }


def _ring(row: Task, now: datetime) -> float:
    """The part of the lease that is left, 0..54: the length of the ring round the holder's initials."""
    if row.lease_expires_at is None:
        return 0.0
    left = (row.lease_expires_at - now).total_seconds()
    return round(54 * min(1.0, left / max(left, row.lease_minutes * 60)), 1)


def _calls(row: Task, limit: int) -> Sequence[ports.CallMade]:
    held = around.spans(row)
    return ports.call_log().made(row.project_id, held, limit=limit)


def _progress(children: Any) -> dict[str, Any]:
    rows = [child for child in children if child.status != Status.CANCELLED]
    return {"rows": list(children), "all": len(rows), "done": len([1 for child in rows if child.status == Status.DONE])}


def _near(row: Task, graph: around.Graph) -> list[int]:
    others = [node.pk for node in graph.nodes] + [child.pk for child in row.children.all()]
    return list(dict.fromkeys([*others, *([row.parent_id] if row.parent_id else [])]))


def _drawing(graph: around.Graph) -> str:
    """The graph as the page's script draws it."""
    nodes = [
        {"id": node.pk, "ref": node.ref, "subject": node.subject, "status": node.status.replace("_", " "),
         "kind": node.status, "steps": node.steps, "url": reverse("task", args=[node.pk])}
        for node in graph.nodes
    ]  # fmt: skip
    return json.dumps({"nodes": nodes, "edges": graph.edges})


def _last_move(row: Task) -> dict[str, Any] | None:
    """The move that undo would take back, unless the task changed since."""
    event = Event.objects.filter(task=row, kind__in=[*MOVES, "task.undone"]).order_by("-pk").first()
    if event is None or event.kind == "task.undone" or event.after.get("version") != row.version:
        return None
    return {"event": event, "said": said(event.kind)}


def refused_page(request: HttpRequest, project: Project) -> HttpResponse:
    why = f"You may read {project.name}, not change it. Ask an admin of the project to make you a member."
    return render(request, "403.html", {"why": why}, status=403)
