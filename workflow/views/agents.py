"""The agents: who is at work on what and how coherently, their inboxes, and what a person does about it."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from devflow import ports
from devflow.digits import whole
from devflow.errors import ERROR_TABLE, DevFlowError, invalid
from devflow.ports import Span
from workflow.forms import ToAgents
from workflow.models import Agent, Phase, Project, Status, Task
from workflow.selectors import activity, agents
from workflow.selectors.agents import AgentState
from workflow.selectors.coherence import MINIMUM_OBSERVATIONS
from workflow.services import agents as services
from workflow.services import messages as inboxes
from workflow.services import steering
from workflow.services.coherence import THRESHOLD
from workflow.views.shell import may_write, page, person_of, project_of, projects_of
from workflow.views.signals import signals, worry
from workflow.views.task import refused_page
from workflow.views.trail import trail

CALLS = 20
EVENTS = 10
MESSAGES = 30
ORDER = {"working": 0, "idle": 1, "stale": 2, "offline": 3}
HUES = {"working": "good", "stale": "warn"}


def rows_of(states: list[AgentState]) -> list[dict[str, Any]]:
    """Agents as the lists draw them."""
    return [{"state": one, "ring": _ring(one), "hue": HUES.get(one.status, ""), "worry": worry(one)} for one in states]


def alerts_of(states: list[AgentState]) -> list[dict[str, Any]]:
    """Those at work whose coherence is below what the guardian accepts."""
    poor = [one for one in states if one.task and one.coherence.score is not None and one.coherence.score < THRESHOLD]
    return [{"state": one, "worry": worry(one)} for one in poor]


def _ring(one: AgentState) -> float:
    if one.task is None or one.task.lease_expires_at is None:
        return 0.0
    left = max(0.0, (one.task.lease_expires_at - timezone.now()).total_seconds())
    return round(54 * min(1.0, left / max(left, one.task.lease_minutes * 60, 1)), 1)


@page
@require_safe
def listed(request: HttpRequest) -> HttpResponse:
    project, projects = project_of(request)
    if project is None:
        return render(request, "workflow/agents.html", {"project": None, "projects": projects, "here": "agents"})
    context = _list(request, project)
    if request.headers.get("HX-Request"):
        return render(request, "workflow/_agents.html", context)
    return render(request, "workflow/agents.html", context | {"projects": projects})


def _list(request: HttpRequest, project: Project) -> dict[str, Any]:
    every = request.GET.get("retired") == "yes"
    seq = activity.newest(project_id=project.pk)
    states = agents.states(project_id=project.pk, include_retired=every)
    rows = rows_of(sorted(states, key=lambda one: ORDER[one.status]))
    return {
        "project": project,
        "seq": seq,
        "rows": rows,
        "tally": {name: len([1 for one in states if one.status == name]) for name in ORDER},
        "phases": list(Phase.objects.filter(project=project)),
        "with_retired": every,
        "has_retired": Agent.objects.filter(project=project, retired_at__isnull=False).exists(),
        "least": MINIMUM_OBSERVATIONS,
        "may_write": may_write(request, project),
        "here": "agents",
    }


@page
@require_POST
def send(request: HttpRequest) -> HttpResponse:
    """A message to all agents of the project, those of a phase, or one of them."""
    project, projects = project_of(request)
    if project is None:
        raise Http404("You are in no project.")
    if not may_write(request, project):
        return refused_page(request, project)
    form = ToAgents(request.POST)
    try:
        heard = _deliver(project, form, request)
    except DevFlowError as exc:
        messages.error(request, f"{exc.message} {exc.suggestion or ''}")
        to = request.POST.get("to", "")
        phase = next((one.number for one in Phase.objects.filter(project=project) if to == f"phase:{one.number}"), None)
        typed = {"to": to, "phase": phase, "text": request.POST.get("text", "")}
        context = _list(request, project) | {"projects": projects, "typed": typed}
        return render(request, "workflow/agents.html", context, status=ERROR_TABLE[exc.code].http)
    messages.success(request, f"Sent to {heard} agent{'' if heard == 1 else 's'}, who read it with their next call.")
    return redirect("agents")


def _deliver(project: Project, form: ToAgents, request: HttpRequest) -> int:
    if not form.is_valid():
        raise invalid(next(f"{name.capitalize()}: {some[0]}" for name, some in form.errors.items()))
    said = form.cleaned_data
    body = said["text"].replace("\r\n", "\n")
    return len(inboxes.send(project_id=project.pk, to=said["to"], body=body, actor=person_of(request)))


def _agent(request: HttpRequest, number: int) -> Agent:
    mine = [project.id for project in projects_of(request)]
    return get_object_or_404(Agent.objects.select_related("project", "phase"), pk=number, project__in=mine)


@page
@require_safe
def agent(request: HttpRequest, number: int) -> HttpResponse:
    """One agent; for the page's own script only what changes."""
    context = _whole(request, _agent(request, number))
    name = "_agent_page" if request.headers.get("HX-Request") else "agent"
    return render(request, f"workflow/{name}.html", context)


def _whole(request: HttpRequest, row: Agent) -> dict[str, Any]:
    seq = activity.newest(project_id=row.project_id)
    state = agents.state(row)
    every = request.GET.get("inbox") == "all"
    inbox = list(
        agents.inbox(agent_id=row.pk, include_acknowledged=True).order_by("-pk")[: None if every else MESSAGES + 1]
    )
    tasks = Task.objects.filter(assigned_agent=row).defer("description", "result", "metadata").select_related("phase")
    return {
        "project": row.project,
        "seq": seq,
        "agent": row,
        "state": state,
        "one": rows_of([state])[0],
        "signals": signals(state),
        "least": MINIMUM_OBSERVATIONS,
        "held": list(tasks.held(timezone.now()).order_by("started_at")),
        "reserved": list(row.reserved.defer("description", "result", "metadata").order_by("ref")[:20]),
        "handed_in": list(tasks.filter(status__in=[Status.REVIEW, Status.FAILED]).order_by("-updated_at")[:10]),
        "done": tasks.filter(status=Status.DONE).count(),
        "calls": ports.call_log().made(row.project_id, [Span(row.name)], limit=CALLS),
        "trail": trail(activity.feed(project_id=row.project_id).filter(agent=row)[:EVENTS]),
        "inbox": inbox if every else inbox[:MESSAGES],
        "more_messages": len(inbox) > MESSAGES and not every,
        "unread": agents.unread(agent_id=row.pk),
        "may_write": may_write(request, row.project),
        "here": "agents",
    }


@page
@require_POST
def act(request: HttpRequest, number: int, action: str) -> HttpResponse:
    """message, release (its lease on `task`), retire."""
    row = _agent(request, number)
    if not may_write(request, row.project):
        return refused_page(request, row.project)
    if action not in ("message", "release", "retire"):
        raise Http404("There is no such action.")
    who: dict[str, Any] = {"project_id": row.project_id, "actor": person_of(request)}
    try:
        if action == "message":
            form = ToAgents({"to": row.name, "text": request.POST.get("text", "")})
            _deliver(row.project, form, request)
            messages.success(request, f"Sent. {row.name} reads it with its next call.")
        elif action == "release":
            _release(row, request.POST.get("task", ""), who)
            messages.success(request, "Released; somebody else can claim it.")
        else:
            services.retire(agent_id=row.pk, **who)
            messages.success(request, f"{row.name} is retired. It comes back with its next call.")
    except DevFlowError as exc:
        messages.error(request, f"{exc.message} {exc.suggestion or ''}")
        context = _whole(request, _agent(request, number)) | {"typed": request.POST.get("text", "")}
        return render(request, "workflow/agent.html", context, status=ERROR_TABLE[exc.code].http)
    return redirect("agent", row.pk)


def _release(row: Agent, task_id: str, who: dict[str, Any]) -> None:
    held = Task.objects.held(timezone.now()).filter(assigned_agent=row)
    number = whole(task_id.removeprefix("task-"))
    if number is None or not held.filter(pk=number).exists():
        raise invalid(f"{row.name} does not hold that task any more; nothing was changed.", task=task_id[:40])
    steering.take_back(task_id=number, **who)
