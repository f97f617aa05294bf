"""Home: what needs a person first, then how the project stands."""

from datetime import timedelta
from typing import Any

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from workflow.models import Project, Status, Task
from workflow.selectors import activity, agents, onboarding
from workflow.selectors import tasks as task_selectors
from workflow.views.agents import alerts_of, rows_of
from workflow.views.shell import may_write, page, project_of
from workflow.views.trail import trail

NEEDS = 10
STUCK = 5
AGENTS = 6
EVENTS = 8


@page
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    project, projects = project_of(request)
    if project is None:
        return render(request, "workflow/home.html", {"project": None, "projects": projects, "here": "home"})
    context = _home(project) | {"project": project, "may_write": may_write(request, project), "here": "home"}
    steps = onboarding.steps(project.pk)
    if not steps.is_complete or "starting" in request.GET:  # a page that led there also shows that it is reached
        context["onboarding"] = steps
    if request.headers.get("HX-Request"):
        return render(request, "workflow/_home.html", context)
    return render(request, "workflow/home.html", context | {"projects": projects})


def _home(project: Project) -> dict[str, Any]:
    seq = activity.newest(project_id=project.pk)
    now = timezone.now()
    rows = Task.objects.filter(project=project)
    states = agents.states(project_id=project.pk, at=now)
    counts = rows.aggregate(
        ready=Count("pk", filter=Q(status=Status.READY)),
        waiting=Count("pk", filter=Q(status=Status.PENDING)),
        running=Count("pk", filter=Q(status=Status.IN_PROGRESS)),
        day=Count("pk", filter=Q(status=Status.DONE, completed_at__gte=now - timedelta(days=1))),
        all=Count("pk"),
        undecided=Count("pk", filter=Q(status__in=[Status.REVIEW, Status.FAILED])),
    )
    undecided = rows.filter(status__in=[Status.REVIEW, Status.FAILED]).select_related("phase", "assigned_agent")
    needs = list(undecided.defer("description").order_by("-status", "-updated_at")[:NEEDS])
    stuck = task_selectors.waiting_on_failed(project_id=project.pk).defer("description").order_by("pk")
    shown, alerts = list(stuck[: STUCK + 1]), alerts_of(states)
    return {
        "seq": seq,
        "counts": counts,
        "limit": project.limit_of("in_progress"),
        "working": len([1 for state in states if state.status == "working"]),
        "idle": len([1 for state in states if state.status == "idle"]),
        "needs": needs,
        "more_needs": counts["undecided"] - len(needs),
        "stuck": shown[:STUCK],
        "more_stuck": len(shown) > STUCK,
        "alerts": alerts,
        "calls_for": counts["undecided"] + len(shown) + len(alerts),
        "trail": trail(activity.feed(project_id=project.pk)[:EVENTS]),
        "rows": rows_of(states[:AGENTS]),
    }
