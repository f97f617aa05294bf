"""Home, a task, the agents, and what happened."""

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from devflow import ports
from devflow.errors import DevFlowError
from workflow.forms import Words
from workflow.models import Event, Project, Status, Task
from workflow.selectors import activity, agents
from workflow.selectors import tasks as task_selectors
from workflow.services import claims, tasks, transitions
from workflow.views.shell import may_write, page, person_of, project_of, projects_of

MOST_ROWS = 50
RELATED = 3

SAID = {
    "task.created": "created",
    "task.claimed": "claimed",
    "task.ready": "made ready",
    "task.waiting": "sent back to wait",
    "task.done": "finished",
    "task.submitted": "handed in for review",
    "task.approved": "approved",
    "task.rejected": "sent back with feedback",
    "task.failed": "gave up",
    "task.retried": "put back to work",
    "task.cancelled": "cancelled",
    "task.released": "released",
    "task.lease_expired": "took back after silence",
    "task.edited": "edited",
    "task.noted": "wrote a note on",
    "task.evidence": "showed evidence for",
    "task.blocked": "blocked",
    "task.unblocked": "let go on",
    "task.blocked_by": "made wait",
    "task.unblocked_from": "freed from a blocker",
    "task.reordered": "moved",
    "task.started": "started",
    "task.undone": "took back a move of",
    "message.sent": "sent a message",
    "agent.joined": "joined",
    "agent.retired": "retired an agent",
    "project.created": "made the project",
    "project.changed": "changed the project",
    "project.member": "changed the members",
    "phase.created": "made a phase",
    "phase.changed": "changed a phase",
}


def said(event: Event) -> str:
    """What an event says after its actor's name."""
    return SAID.get(event.kind, event.kind.replace(".", " ").replace("_", " "))


def trail(events: Any) -> list[tuple[Event, str]]:
    return [(event, said(event)) for event in events]


@page
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    project, projects = project_of(request)
    context: dict[str, Any] = {"project": project, "projects": projects, "here": "home"}
    if project is not None:
        context |= _home(project)
    return render(request, "workflow/home.html", context)


def _home(project: Project) -> dict[str, Any]:
    now = timezone.now()
    rows = Task.objects.filter(project=project)
    states = agents.states(project_id=project.pk, at=now)
    counts = rows.aggregate(
        ready=Count("pk", filter=Q(status=Status.READY)),
        running=Count("pk", filter=Q(status=Status.IN_PROGRESS)),
        day=Count("pk", filter=Q(status=Status.DONE, completed_at__gte=now - timedelta(days=1))),
        all=Count("pk"),
        waiting=Count("pk", filter=Q(status__in=[Status.REVIEW, Status.FAILED])),
    )
    needs = rows.filter(status__in=[Status.REVIEW, Status.FAILED]).select_related("phase", "assigned_agent")
    stuck = task_selectors.waiting_on_failed(project_id=project.pk).select_related("phase")
    return {
        "counts": counts,
        "limit": project.limit_of("in_progress"),
        "working": sum(state.status == "working" for state in states),
        "idle": sum(state.status == "idle" for state in states),
        "needs": list(needs.defer("description").order_by("-updated_at")[:10]),
        "stuck": list(stuck.defer("description").order_by("pk")[:5]),
        "trail": trail(activity.feed(project_id=project.pk)[:7]),
        "agents": states[:6],
    }


@page
@require_safe
def agents_page(request: HttpRequest) -> HttpResponse:
    project, projects = project_of(request)
    states = agents.states(project_id=project.pk) if project else []
    context = {"project": project, "projects": projects, "agents": states, "here": "agents"}
    return render(request, "workflow/agents.html", context)


@page
@require_safe
def activity_page(request: HttpRequest) -> HttpResponse:
    project, projects = project_of(request)
    events = activity.feed(project_id=project.pk) if project else Event.objects.none()
    before = request.GET.get("before", "")
    if before.isascii() and before.isdigit() and len(before) < 16:
        events = events.filter(pk__lt=int(before))
    rows = list(events[: MOST_ROWS + 1])
    context = {
        "project": project,
        "projects": projects,
        "trail": trail(rows[:MOST_ROWS]),
        "older": rows[MOST_ROWS - 1].pk if len(rows) > MOST_ROWS else None,
        "here": "activity",
    }
    return render(request, "workflow/activity.html", context)


def _task(request: HttpRequest, number: int) -> Task:
    task = Task.objects.filter(pk=number, project__in=[project.id for project in projects_of(request)]).first()
    if task is None:
        raise Http404("There is no such task, or it is not in a project of yours.")
    return task_selectors.detail(project_id=task.project_id, task_id=task.pk)


def _remembered(row: Task) -> list[tuple[str, dict[str, Any]]]:
    """Memories near the task, each with the number its page has."""
    found = ports.recall().related(row.project_id, f"{row.subject}\n{row.description}"[:2000], limit=RELATED)
    return [(memory["memory_id"].rpartition("-")[2], memory) for memory in found]


@page
@require_safe
def task(request: HttpRequest, number: int) -> HttpResponse:
    row = _task(request, number)
    now = timezone.now()
    annotated: Any = task_selectors.with_status(Task.objects.filter(pk=row.pk), now)
    status = annotated.values_list("current_status", flat=True)
    shown = {item.definition_id: item for item in row.evidence.all()}
    context = {
        "task": row,
        "status": status[0],
        "description": row.description.removeprefix(row.subject).strip(),
        "project": row.project,
        "checks": [(item, shown.get(item.pk)) for item in row.phase.done_definitions.all()],
        "blockers": [item for item in row.blockers.all() if item.status != Status.DONE],
        "memories": _remembered(row),
        "trail": trail(activity.feed(project_id=row.project_id, task_id=row.pk)[:MOST_ROWS]),
        "may_write": may_write(request, row.project),
        "here": "board",
    }
    return render(request, "workflow/task.html", context)


@page
@require_POST
def act(request: HttpRequest, number: int, action: str) -> HttpResponse:
    """A person's decision on a task: approve, reject, retry, release, cancel, note."""
    row = _task(request, number)
    if not may_write(request, row.project):
        return render(request, "403.html", {"why": "You may read this project, not change it."}, status=403)
    form = Words(request.POST)
    text = form.cleaned_data["text"] if form.is_valid() else ""
    who: dict[str, Any] = {"project_id": row.project_id, "task_id": row.pk, "actor": person_of(request)}
    try:
        if action in ("approve", "reject"):
            transitions.review(**who, decision=action, feedback=text)  # type: ignore[arg-type]  # one of the two
        elif action == "retry":
            transitions.retry(**who)
        elif action == "release":
            claims.release(**who, reason=text)
        elif action == "cancel":
            transitions.cancel(**who, reason=text)
        elif action == "note":
            tasks.add_note(**who, body=text)
        else:
            raise Http404("There is no such action.")
    except DevFlowError as exc:
        messages.error(request, f"{exc.message} {exc.suggestion}")
    return redirect("task", row.pk)
