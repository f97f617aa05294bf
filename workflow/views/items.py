"""The pages of one epic, one story and one issue: what it says, what it consists of, who said and did what."""

from typing import Any

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from devflow.digits import whole
from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode
from workflow.models import Epic, Event, Issue, Kind, Project, UserStory
from workflow.models.agile import WorkItem
from workflow.planning_forms import ItemForm, QuickStory, QuickTask, Say
from workflow.selectors import activity, agile
from workflow.selectors import planning as plans
from workflow.services.agile import items, work
from workflow.views import planning
from workflow.views.backlog import _valid
from workflow.views.shell import may_write, page, person_of, projects_of
from workflow.views.trail import trail

EVENTS = 20
COMMENTS = 50
MOST_PARTS = 200
NAMES = {Kind.EPIC: "epic", Kind.USER_STORY: "story", Kind.ISSUE: "issue"}
"""Each kind as addresses, events and people call it."""

Item = Epic | UserStory | Issue


def url_of(item: WorkItem) -> str:
    if isinstance(item, Issue):
        return reverse("issue", args=[item.project.slug, item.pk])
    return reverse("epic" if isinstance(item, Epic) else "story", args=[item.pk])


def item_of(request: HttpRequest, kind: Kind, number: int, slug: str | None) -> Any:
    """An item of one of the person's projects, with its progress. Raises Http404."""
    mine = [project.id for project in projects_of(request) if slug in (None, project.slug)]
    where = items.MODELS[kind]._default_manager.filter(pk=number, project__in=mine)
    project_id = where.values_list("project", flat=True).first()
    if project_id is None:
        raise Http404(f"There is no such {NAMES[kind]}, or it is not in a project of yours.")
    if kind is Kind.ISSUE:
        return agile.issues(project_id).select_related("sprint").get(pk=number)
    rows: Any = agile.stories(project_id) if kind is Kind.USER_STORY else agile.epics(project_id)
    return rows.get(pk=number)


@page
@require_safe
def item(request: HttpRequest, kind: str, number: int, slug: str | None = None) -> HttpResponse:
    """The page; for its own script only the parts that can change."""
    found = item_of(request, Kind(kind), number, slug)
    context = _context(request, Kind(kind), found)
    name = "_item" if request.headers.get("HX-Request") else "item"
    return render(request, f"workflow/planning/{name}.html", context)


def _context(request: HttpRequest, kind: Kind, found: Any) -> dict[str, Any]:
    """What an item's page is drawn from. A fixed number of queries."""
    project: Project = found.project
    seq = activity.newest(project_id=project.pk)  # before the rest is read: what comes later is told later
    every = request.GET.get("comments") == "all"
    comments = list(found.comments.order_by("-pk")[: None if every else COMMENTS + 1])
    events = list(_events(kind, found)[: EVENTS + 1])
    context: dict[str, Any] = {
        "item": found,
        "kind": kind,
        "name": NAMES[kind],
        "url": url_of(found),
        "seq": seq,
        "project": project,
        "statuses": list(agile.statuses(project.pk, kind)),
        "comments": comments[:COMMENTS][::-1] if not every else comments[::-1],
        "earlier": len(comments) > COMMENTS and not every,
        "trail": trail(events[:EVENTS]),
        "more_events": len(events) > EVENTS,
        "may_write": may_write(request, project),
        "here": "issues" if kind is Kind.ISSUE else "backlog",
    }
    if kind is Kind.USER_STORY:
        rows = list(plans.tasks_of(found.pk).select_related("assigned_agent")[: MOST_PARTS + 1])
        context |= {"tasks": rows[:MOST_PARTS], "more_parts": len(rows) > MOST_PARTS}
        context |= {"progress": agile.story_progress(found)}
    if kind is Kind.EPIC:
        stories = list(agile.stories(project.pk).filter(epic=found.pk).order_by("position", "pk")[: MOST_PARTS + 1])
        context |= {"stories": stories[:MOST_PARTS], "more_parts": len(stories) > MOST_PARTS}
        context |= {"progress": agile.epic_progress(found)}
    return context


def _events(kind: Kind, found: Any) -> Any:
    if kind is Kind.USER_STORY:
        return agile.story_events(project_id=found.project_id, story_id=found.pk, ref=found.ref)
    own = Q(kind__startswith=f"{NAMES[kind]}.", after__ref=found.ref)
    return Event.objects.filter(own, project_id=found.project_id).select_related("task").order_by("-pk")


@page
@require_POST
def act(request: HttpRequest, kind: str, number: int, action: str, slug: str | None = None) -> HttpResponse:
    """A comment, another status, a task of a story, a story of an epic, or its end."""
    found = item_of(request, Kind(kind), number, slug)
    project: Project = found.project
    if (refused := planning.kept_out(request, project)) is not None:
        return refused
    acts = {"comment": _comment, "status": _status, "delete": _delete}
    acts |= {"task": _task} if kind == Kind.USER_STORY else {"story": _story} if kind == Kind.EPIC else {}
    if action not in acts:
        raise Http404("There is no such action.")
    try:
        done = acts[action](request, Kind(kind), found)
    except DevFlowError as exc:
        messages.error(request, planning.told(exc))
        context = _context(request, Kind(kind), item_of(request, Kind(kind), number, slug))
        context["typed"] = {"action": action, "text": request.POST.get("text", request.POST.get("subject", ""))}
        return render(request, "workflow/planning/item.html", context, status=ERROR_TABLE[exc.code].http)
    return redirect(done or url_of(found))


def _comment(request: HttpRequest, kind: Kind, found: Any) -> str:
    said = _valid(Say(request.POST))
    items.say(found, body=said["text"], actor=person_of(request))
    return f"{url_of(found)}#comments"


def _status(request: HttpRequest, kind: Kind, found: Any) -> str:
    wanted, version = (whole(request.POST.get(name, ""), digits=9) for name in ("status", "version"))
    fields = {"status_id": wanted or 0}
    items.update(kind, project=found.project, pk=found.pk, actor=person_of(request), fields=fields, version=version)
    return ""


def _task(request: HttpRequest, kind: Kind, found: Any) -> str:
    said = _valid(QuickTask(request.POST))
    made = work.create(
        project=found.project, story_id=found.pk, actor=person_of(request), fields={"subject": said["subject"]}
    )
    messages.success(request, f"Task #{made.ref} was added; its card is on the board.")
    return ""


def _story(request: HttpRequest, kind: Kind, found: Any) -> str:
    said = _valid(QuickStory(request.POST))
    fields = {"subject": said["subject"], "epic_id": found.pk}
    items.create(Kind.USER_STORY, project=found.project, actor=person_of(request), fields=fields)
    return ""


def _delete(request: HttpRequest, kind: Kind, found: Any) -> str:
    items.delete(kind, project=found.project, pk=found.pk, actor=person_of(request))
    messages.success(request, f"#{found.ref} {found.subject} was deleted.")
    return reverse("issues" if kind is Kind.ISSUE else "backlog", args=[found.project.slug])


@page
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, kind: str, number: int, slug: str | None = None) -> HttpResponse:
    """The form of an item. Only what a person changed is written; where somebody else changed the same, both are
    shown, and saving once more takes the person's own."""
    of_kind = Kind(kind)
    found = item_of(request, of_kind, number, slug)
    project: Project = found.project
    if (refused := planning.kept_out(request, project)) is not None:
        return refused
    words = planning.choices(project)
    if request.method != "POST":
        return _edited(request, of_kind, found, ItemForm(kind=of_kind, words=words, item=found))
    form = ItemForm(request.POST, kind=of_kind, words=words, item=found)
    if not form.is_valid():
        return _edited(request, of_kind, found, form, status=422)
    changed = [name for name in form.changed_data if name != "version"]
    if form.cleaned_data["version"] != found.version and (theirs := _clashes(form, changed, found)):
        return _clashed(request, of_kind, found, words, theirs)
    try:
        fields = form.changes(changed, found.points if isinstance(found, UserStory) else {})
        if fields:
            items.update(
                of_kind,
                project=project,
                pk=found.pk,
                actor=person_of(request),
                fields=fields,
                version=found.version,
            )
    except DevFlowError as exc:
        if exc.code == ErrorCode.CONFLICT and "yours" in exc.details:  # it changed between reading and writing
            return edit(request, kind, number, slug)  # type: ignore[no-any-return]  # the shell's decorator says Any
        form.add_error(None, planning.told(exc))
        return _edited(request, of_kind, found, form, status=ERROR_TABLE[exc.code].http)
    messages.success(request, "Saved." if fields else "Nothing was changed.")
    return redirect(url_of(found))


def _clashes(form: ItemForm, changed: list[str], found: Any) -> list[tuple[str, str]]:
    """The fields both changed, with what they say now."""
    now = ItemForm.initial_of(found)
    clashes = []
    for name in changed:
        bound = form[name]
        began, mine = form.data.get(bound.html_initial_name), form.cleaned_data[name]
        if _plain(now.get(name)) not in (_plain(began), _plain(mine)):
            clashes.append((str(bound.label), _said(bound, now.get(name))))
    return clashes


def _plain(value: Any) -> str:
    return "" if value is None else str(value).replace("\r\n", "\n").strip()


def _said(bound: Any, value: Any) -> str:
    """A field's value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    names = {str(one): label for one, label in getattr(bound.field, "choices", ())}
    return str(names.get("" if value is None else str(value), "" if value is None else value))


def _clashed(
    request: HttpRequest, kind: Kind, found: Any, words: plans.Words, theirs: list[tuple[str, str]]
) -> HttpResponse:
    """The person's words, as begun from what the item says now."""
    data = request.POST.copy()
    fresh = ItemForm(kind=kind, words=words, item=found)
    for name, value in ItemForm.initial_of(found).items():
        if name in fresh.fields:
            data["version" if name == "version" else fresh[name].html_initial_name] = _plain(value)
    form = ItemForm(data, kind=kind, words=words, item=found)
    return _edited(request, kind, found, form, status=409, theirs=theirs)


def _edited(
    request: HttpRequest, kind: Kind, found: Any, form: ItemForm, *, status: int = 200, **more: Any
) -> HttpResponse:
    context = {
        "item": found,
        "name": NAMES[kind],
        "url": url_of(found),
        "project": found.project,
        "form": form,
        "here": "issues" if kind is Kind.ISSUE else "backlog",
        **more,
    }
    return render(request, "workflow/planning/item_edit.html", context, status=status)
