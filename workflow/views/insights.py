"""What the project's history says in figures: a page of charts, each with its table, and every table as a file."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe
from tablib import Dataset

from devflow.ports import ProjectRef
from devflow.tables import SafeCsv
from workflow.selectors.insights import Span, percentile
from workflow.views import insight_figures as figures
from workflow.views.figures import lasting
from workflow.views.insight_figures import Insights
from workflow.views.shell import page, project_of

PERIODS = (7, 30, 90)
USUAL_PERIOD = 30


def _asked(request: HttpRequest) -> tuple[Insights | None, list[ProjectRef]]:
    """The insights an address means. What cannot be meant is the usual: it may be older than the phase it names."""
    project, projects = project_of(request)
    if project is None:
        return None, projects
    days = {str(period): period for period in PERIODS}.get(request.GET.get("days", ""), USUAL_PERIOD)
    span = Span.ending(timezone.now().date(), days)
    return Insights(project, span, request.GET.get("of", ""), request.GET.get("sprint", "")), projects


@page
@require_safe
def insights(request: HttpRequest) -> HttpResponse:
    of, projects = _asked(request)
    context: dict[str, Any] = {"project": of.project if of else None, "projects": projects, "here": "insights"}
    if of is not None:
        context |= {"days": len(of.span.days), "periods": PERIODS, "empty": of.is_empty}
        if not of.is_empty:
            context |= _figures(of)
    return render(request, "workflow/insights.html", context)


def _figures(of: Insights) -> dict[str, Any]:
    done = [task.cycle for task in of.finished if task.cycle is not None]
    half = percentile(done, 0.5)
    total = of.calls.total
    return {
        "of": of,
        "done": len(of.finished),
        "half": "–" if half is None else lasting(half),
        "expired": sum(tally["expired"] for tally in of.attempts.values()),
        "calls": total,
        "succeeded": f"{100 * (total.calls - total.failed) / total.calls:.1f} %" if total.calls else "–",
        "counted_late": of.calls.counted_from > of.span.first.isoformat(),
        "sections": [
            ("The work", [made(of) for made in figures.WORK]),
            ("Tool calls", [made(of) for made in figures.CALLS]),
        ],
    }


@page
@require_safe
def table(request: HttpRequest, name: str) -> HttpResponse:
    """One figure's table as CSV: plain numbers, durations in seconds."""
    of, _ = _asked(request)
    if of is None or name not in figures.FIGURES:
        raise Http404("There is no such table.")
    rows = Dataset()
    for line in figures.FIGURES[name](of).lines:
        rows.append(line)
    response = HttpResponse(SafeCsv().export_data(rows), content_type="text/csv; charset=utf-8")
    file_name = f"{of.project.slug}-{name}-{len(of.span.days)}-days.csv"
    response.headers["Content-Disposition"] = f'attachment; filename="{file_name}"'
    return response
