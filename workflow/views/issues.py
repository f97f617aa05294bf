"""Issues: what was reported, narrowed by the address. The page of one is in `items`."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from devflow.errors import DevFlowError
from workflow.models import Kind, Project
from workflow.planning_forms import SEVERITIES, URGENCIES, ItemForm
from workflow.selectors import agile
from workflow.selectors import planning as plans
from workflow.selectors.planning import ItemFilter, Page
from workflow.services.agile import items, vocabulary
from workflow.views import planning
from workflow.views.items import url_of
from workflow.views.shell import page, person_of, project_named


@page
@require_safe
def first(request: HttpRequest) -> HttpResponse:
    return planning.first(request, "issues")


@page
@require_safe
def listed(request: HttpRequest, slug: str) -> HttpResponse:
    """The page; for its own script the part that changes."""
    project, context = planning.seen(request, slug, here="issues", switch="issues")
    wanted = ItemFilter.of(request.GET)
    rows = wanted.apply(agile.issues(project.pk).select_related("sprint"))
    counts = plans.issue_counts(project.pk)
    cut = Page.of(request.GET.get("page", ""), total=rows.count(), size=plans.ISSUES)
    context |= {
        "wanted": wanted,
        "rows": list(rows.order_by("-pk")[cut.slice]),
        "page": cut,
        "counts": counts,
        "words": planning.choices(project),
        "severities": SEVERITIES,
        "urgencies": URGENCIES,
        "query": request.GET.urlencode(),
    }
    name = "_issues" if request.headers.get("HX-Request") else "issues"
    return render(request, f"workflow/planning/{name}.html", context)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest, slug: str) -> HttpResponse:
    project, _ = project_named(request, slug)
    if (refused := planning.kept_out(request, project)) is not None:
        return refused
    vocabulary.ensure(project)
    words = planning.choices(project)
    usual = {"status": words.statuses[Kind.ISSUE][0].pk, "type": words.types[0].pk if words.types else ""}
    form = ItemForm(request.POST or None, kind=Kind.ISSUE, words=words)
    form.initial = usual
    if request.method == "POST" and form.is_valid() and (url := _made(request, project, form, words)):
        return redirect(url)
    context = {"project": project, "form": form, "here": "issues", "name": "issue"}
    return render(request, "workflow/planning/item_new.html", context, status=422 if form.errors else 200)


def _made(request: HttpRequest, project: Project, form: ItemForm, words: plans.Words) -> str:
    fields = form.changes(list(form.cleaned_data), {})
    try:
        made = items.create(Kind.ISSUE, project=project, actor=person_of(request), fields=fields)
    except DevFlowError as exc:
        form.add_error(None, planning.told(exc))
        return ""
    messages.success(request, f"#{made.ref} was reported.")
    return url_of(made)
