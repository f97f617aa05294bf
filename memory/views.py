"""The memories of a project, for people: found, read, corrected, merged, forgotten."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from devflow.digits import whole
from devflow.errors import DevFlowError
from devflow.ports import ProjectRef
from devflow.shell import may_write, page, person_of, project_of, projects_of
from memory.forms import EditForm, MemoryForm
from memory.models import MAX_TAGS, Category, Memory
from memory.selectors import memories as selectors
from memory.selectors import search
from memory.services import memories

MOST_ROWS = 50
SHOWN = {"current": "In force", "superseded": "Superseded", "expired": "Expired", "all": "All"}


@page
@require_http_methods(["GET", "HEAD", "POST"])
def shelf(request: HttpRequest) -> HttpResponse:
    """`/memories/`: the newest, or those that answer `?q=`; and the form for a new one."""
    project, projects = project_of(request)
    if project is None:
        return render(request, "memory/shelf.html", {"project": None, "projects": projects, "here": "memories"})
    writes = may_write(request, project.id)
    form = MemoryForm(request.POST or None)
    status = 200
    if request.method == "POST":
        if not writes:
            return _refused(request)
        if form.is_valid() and (made := _save(request, project, form)) is not None:
            messages.success(request, f"{made.public_id} was saved.")
            return redirect("memory", made.pk)
        status = 422
    context = _listed(request, project) | {"project": project, "projects": projects, "may_write": writes, "form": form}
    context |= {"here": "memories", "categories": Category.values, "choices": SHOWN}
    return render(request, "memory/shelf.html", context, status=status)


def _refused(request: HttpRequest) -> HttpResponse:
    return render(request, "403.html", {"why": "You may read this project, not change it."}, status=403)


def _save(request: HttpRequest, project: ProjectRef, form: MemoryForm) -> Memory | None:
    try:
        return memories.save(project_id=project.id, actor=person_of(request), **form.values())
    except DevFlowError as exc:
        form.add_error(None, f"{exc.message} {exc.suggestion}")
        return None


def _listed(request: HttpRequest, project: ProjectRef) -> dict[str, Any]:
    question, tag = (request.GET.get(name, "").replace("\x00", "").strip() for name in ("q", "tag"))
    category = known if (known := request.GET.get("category", "")) in Category.values else ""
    shown = known if (known := request.GET.get("show", "")) in SHOWN else "current"
    context: dict[str, Any] = {"q": question, "category": category, "tag": tag, "show": shown}
    if question:
        findings = search.search(
            project_ids=[project.id],
            text=question,
            category=category,
            tags=[tag] if tag else [],
            include_superseded=shown != "current",
            limit=MOST_ROWS,
        )
        rows = [hit.memory for hit in findings.found]
        return context | {"memories": rows, "reason": findings.reason}
    found = selectors.shelf(project_id=project.id, shown=shown, category=category, tag=tag)  # type: ignore[arg-type]  # one of SHOWN
    if (before := whole(request.GET.get("before", ""))) is not None:
        found = found.filter(pk__lt=before)
    rows = list(found[: MOST_ROWS + 1])
    older = rows[MOST_ROWS - 1].pk if len(rows) > MOST_ROWS else None
    is_empty = not rows and not Memory.objects.filter(project=project.id).exists()
    return context | {"memories": rows[:MOST_ROWS], "older": older, "is_empty": is_empty}


def _memory(request: HttpRequest, number: int) -> tuple[Memory, ProjectRef]:
    projects = {project.id: project for project in projects_of(request)}
    row = Memory.objects.select_related("superseded_by").filter(pk=number, project__in=projects).first()
    if row is None:
        raise Http404("There is no such memory, or it is not in a project of yours.")
    return row, projects[row.project_id]


@page
@require_safe
def memory(request: HttpRequest, number: int) -> HttpResponse:
    row, project = _memory(request, number)
    return _detail(request, row, project, EditForm.of(row))


def _detail(
    request: HttpRequest, row: Memory, project: ProjectRef, form: MemoryForm, *, status: int = 200
) -> HttpResponse:
    context = {
        "memory": row,
        "project": project,
        "form": form,
        "newer": selectors.newer(row),
        "older": selectors.older(row),
        "similar": search.similar(row) if row.superseded_by_id is None and not row.is_expired() else [],
        "may_write": may_write(request, project.id),
        "here": "memories",
    }
    return render(request, "memory/memory.html", context, status=status)


@page
@require_POST
def act(request: HttpRequest, number: int, action: str) -> HttpResponse:
    """What a person does with a memory: edit, pin, unpin, vouch, expire, delete."""
    row, project = _memory(request, number)
    if not may_write(request, project.id):
        return _refused(request)
    who: dict[str, Any] = {"project_id": project.id, "memory_id": row.pk}
    actor = person_of(request)
    try:
        if action == "edit":
            return _edited(request, row, project)
        if action in ("pin", "unpin"):
            memories.update(**who, actor=actor, pinned=action == "pin")
        elif action == "vouch":
            memories.vouch(**who, actor=actor)
        elif action == "expire":
            memories.update(**who, actor=actor, expires_at=timezone.now())
        elif action == "delete":
            memories.delete(**who)
            messages.success(request, f"{row.public_id} was deleted.")
            return redirect("memories")
        else:
            raise Http404("There is no such action.")
    except DevFlowError as exc:
        messages.error(request, f"{exc.message} {exc.suggestion}")
    return redirect("memory", row.pk)


def _edited(request: HttpRequest, row: Memory, project: ProjectRef) -> HttpResponse:
    form = EditForm(request.POST, initial=EditForm.of(row).initial)
    if not form.is_valid():
        return _detail(request, row, project, form, status=422)
    values = form.values()
    if "expires_on" not in form.changed_data:
        values.pop("expires_at")  # a moment inside that day stays what it is
    try:
        memories.update(project_id=project.id, memory_id=row.pk, actor=person_of(request), **values)
    except DevFlowError as exc:
        form.data = {**request.POST.dict(), "version": str(row.version)}  # sent again, it is meant
        form.add_error(None, f"{exc.message} {exc.suggestion}")
        return _detail(request, row, project, form, status=409 if "version" in exc.details else 422)
    messages.success(request, f"{row.public_id} was changed.")
    return redirect("memory", row.pk)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def merge(request: HttpRequest) -> HttpResponse:
    """`/memories/merge/?id=1&id=2`: one text in the place of several."""
    numbers = [number for text in request.GET.getlist("id") if (number := whole(text)) is not None]
    rows = [_memory(request, number) for number in dict.fromkeys(numbers[: memories.MAX_MERGED])]
    chosen = [row for row, _ in rows]
    if len(chosen) < 2 or len({project.id for _, project in rows}) > 1:
        messages.error(request, f"Tick two to {memories.MAX_MERGED} memories of one project to merge them.")
        return redirect("memories")
    project = rows[0][1]
    if not may_write(request, project.id):
        return _refused(request)
    tags = list(dict.fromkeys(tag for row in chosen for tag in row.tags))[:MAX_TAGS]
    initial = {
        "content": "\n\n".join(dict.fromkeys(row.content for row in chosen)),
        "category": chosen[0].category,
        "tags": tags,
    }
    form = MemoryForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid() and (made := _merged(request, project, chosen, form)) is not None:
        messages.success(request, f"{made.public_id} took the place of {len(chosen)} memories.")
        return redirect("memory", made.pk)
    context = {"project": project, "chosen": chosen, "form": form, "here": "memories"}
    return render(request, "memory/merge.html", context, status=422 if request.method == "POST" else 200)


def _merged(request: HttpRequest, project: ProjectRef, chosen: list[Memory], form: MemoryForm) -> Memory | None:
    values = form.values()
    del values["expires_at"]
    try:
        return memories.merge(
            project_id=project.id, memory_ids=[row.pk for row in chosen], actor=person_of(request), **values
        )
    except DevFlowError as exc:
        form.add_error(None, f"{exc.message} {exc.suggestion}")
        return None
