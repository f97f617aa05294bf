"""The backlog: epics with their stories, in the order they are wanted."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from devflow.digits import whole
from devflow.errors import ERROR_TABLE, DevFlowError, invalid
from workflow.models import Kind, Project
from workflow.planning_forms import Place, Plan, QuickEpic, QuickStory
from workflow.selectors import planning as plans
from workflow.selectors.planning import ItemFilter
from workflow.services.agile import items, order
from workflow.views import planning
from workflow.views.shell import page, person_of, project_named

MOST_AT_ONCE = 200


@page
@require_safe
def first(request: HttpRequest) -> HttpResponse:
    return planning.first(request, "backlog")


@page
@require_safe
def backlog(request: HttpRequest, slug: str) -> HttpResponse:
    """The page; for its own script the part that changes. `?epic=12` is one epic's stories, `?epic=0` those of none."""
    project, context = planning.seen(request, slug, here="backlog", switch="backlog")
    wanted = ItemFilter.of(request.GET)
    epic = whole(request.GET.get("epic", ""), digits=9)
    context |= {
        "wanted": wanted,
        "backlog": plans.backlog(project_id=project.pk, wanted=wanted, page=request.GET.get("page", ""), epic=epic),
        "epic": epic,
        "words": planning.choices(project),
        "query": request.GET.urlencode(),
        "most": MOST_AT_ONCE,
    }
    if request.headers.get("HX-Request"):
        return render(request, "workflow/planning/_backlog.html", context)
    return render(request, "workflow/planning/backlog.html", context)


@page
@require_POST
def act(request: HttpRequest, slug: str, action: str) -> HttpResponse:
    """Add an epic or a story, plan stories (epic, sprint, status, person), shift one by a place, or drop it."""
    project, _ = project_named(request, slug)
    if (refused := planning.kept_out(request, project)) is not None:
        return refused
    acts = {"epic": _epic, "story": _story, "plan": _plan, "shift": _shift}
    if action == "place":
        return _place(request, project)
    if action not in acts:
        raise Http404("There is no such action.")
    planning.done(request, lambda: acts[action](request, project))
    return planning.again(request, reverse("backlog", args=[project.slug]))


def _valid(form: Any) -> dict[str, Any]:
    if not form.is_valid():
        name, why = next(iter(form.errors.items()))
        raise invalid(f"{name}: {why[0]}", **{name: str(why[0])})
    said: dict[str, Any] = form.cleaned_data
    return said


def _epic(request: HttpRequest, project: Project) -> None:
    said = _valid(QuickEpic(request.POST))
    items.create(Kind.EPIC, project=project, actor=person_of(request), fields={"subject": said["subject"]})


def _story(request: HttpRequest, project: Project) -> None:
    said = _valid(QuickStory(request.POST))
    fields = {"subject": said["subject"]}
    fields |= {f"{name}_id": said[name] for name in ("epic", "sprint") if said[name]}
    items.create(Kind.USER_STORY, project=project, actor=person_of(request), fields=fields)


def _ids(request: HttpRequest) -> list[int]:
    ids = [number for one in request.POST.getlist("story") if (number := whole(one, digits=9)) is not None]
    if not ids or len(ids) > MOST_AT_ONCE:
        raise invalid(f"Choose 1 to {MOST_AT_ONCE} stories.", story=f"{len(ids)} given")
    return list(dict.fromkeys(ids))


def _plan(request: HttpRequest, project: Project) -> None:
    """Each story stands for itself: what one refuses is said, the others are changed."""
    form = Plan(request.POST)
    _valid(form)
    fields, good = form.fields_said(), 0
    if not fields:
        raise invalid("Choose what is to change.", status="or epic, sprint, assignee")
    ids = _ids(request)
    for pk in ids:
        try:
            items.update(Kind.USER_STORY, project=project, pk=pk, actor=person_of(request), fields=fields)
            good += 1
        except DevFlowError as exc:
            messages.error(request, planning.told(exc))
            if good == 0:
                return  # what the first cannot take, the others cannot either
    messages.success(request, f"{good} {'story' if good == 1 else 'stories'} planned.")


def _shift(request: HttpRequest, project: Project) -> None:
    """`up 12`: that story; `up 7 epic`: that epic."""
    said = [*request.POST.get("move", "").split(), "", "", ""]
    where: Any = said[0]
    kind = Kind.EPIC if said[2] == "epic" else Kind.USER_STORY
    order.shift(kind, project=project, pk=whole(said[1], digits=9) or 0, where=where, actor=person_of(request))


def _place(request: HttpRequest, project: Project) -> HttpResponse:
    """A dropped story. Answers JSON: the page's script says a refusal and puts the story back."""
    try:
        said = _valid(Place(request.POST))
        epic: Any = False if said["epic"] is None else said["epic"] or None
        order.place(
            Kind.USER_STORY,
            project=project,
            pk=_ids(request)[0],
            actor=person_of(request),
            after=said["after"],
            before=said["before"],
            epic_id=epic,
        )
    except DevFlowError as exc:
        return JsonResponse({"detail": planning.told(exc)}, status=ERROR_TABLE[exc.code].http)
    return JsonResponse({})
