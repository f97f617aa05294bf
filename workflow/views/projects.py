"""Projects: which there are, making one, its settings and members, and putting it away."""

from functools import cache
from typing import Any

import yaml
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.text import slugify
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from devflow.errors import DevFlowError
from devflow.shell import SESSION_KEY
from workflow.models import Membership, Project
from workflow.project_forms import NewMember, NewProject, Settings
from workflow.selectors import projects as project_selectors
from workflow.services import phases, projects
from workflow.views.shell import page, person_of, project_of

MEANS = {
    "analysis": "Understand first, then build, then check. For most work.",
    "bugfix": "Reproduce it, fix it, and show that it is gone.",
    "documentation": "Outline, write, and have every example tried.",
}


@cache
def templates() -> list[tuple[str, str, list[str]]]:
    """The templates with what they are for and the names of their phases."""
    found = []
    for name in phases.templates():
        files = sorted((phases.TEMPLATES / name).glob("*.yaml"))
        names = [str(yaml.safe_load(path.read_text(encoding="utf-8"))["name"]) for path in files]
        found.append((name, MEANS.get(name, ""), names))
    return found


def refused(request: HttpRequest, why: str) -> HttpResponse:
    return render(request, "403.html", {"why": why}, status=403)


def reachable(request: HttpRequest, slug: str) -> Project:
    """A project the person sees, or an archived one they administer. Raises Http404."""
    found = project_selectors.reachable(request.user).filter(slug=slug).first()
    if found is None:
        raise Http404("There is no such project, or it is not yours.")
    return found


def administers(request: HttpRequest, project: Project) -> bool:
    return project_selectors.may_administer(user_id=int(request.user.pk or 0), project_id=project.pk)


def not_an_admin(request: HttpRequest, project: Project) -> HttpResponse | None:
    """The answer for somebody who may not change this project; None: they may."""
    if administers(request, project):
        return None
    return refused(request, f"Only an admin of {project.name} may do that.")


@page
@require_safe
def listed(request: HttpRequest) -> HttpResponse:
    chosen, seen = project_of(request)
    rows = list(project_selectors.with_counts(project_selectors.reachable(request.user), user=request.user))
    context = {
        "project": chosen,
        "projects": seen,
        "open": [row for row in rows if row.archived_at is None],
        "archived": [row for row in rows if row.archived_at is not None],
        "may_create": project_selectors.may_create(request.user),
        "here": "projects",
    }
    return render(request, "workflow/projects.html", context)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    if not project_selectors.may_create(request.user):
        return refused(request, "Only an administrator makes projects. Ask one to make it and to add you.")
    form = NewProject(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid() and (made := _made(request, form)) is not None:
        messages.success(request, f"{made.name} was made.")
        request.session[SESSION_KEY] = made.slug
        return redirect(f"{reverse('home')}?project={made.slug}")
    context = {"form": form, "templates": templates(), "here": "projects"}
    return render(request, "workflow/project_new.html", context, status=422 if form.errors else 200)


def _made(request: HttpRequest, form: NewProject) -> Project | None:
    given = form.cleaned_data
    try:
        return projects.create(
            slug=given["slug"] or _free_slug(given["name"]),
            name=given["name"],
            description=given["description"],
            template=given["template"] or None,
            owner_id=request.user.pk,
            actor=person_of(request),
        )
    except DevFlowError as exc:
        form.add_error("slug", f"{exc.message} {exc.suggestion}")
        return None


def _free_slug(name: str) -> str:
    """A slug told from a name that no project has yet: `shop`, else `shop-2`."""
    stem = slugify(name)[:44].strip("-") or "project"
    taken = set(Project.objects.filter(slug__startswith=stem).values_list("slug", flat=True))
    names = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 2)))
    return next(slug for slug in names if slug not in taken)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: HttpRequest, slug: str) -> HttpResponse:
    project = reachable(request, slug)
    if request.method != "POST":
        return _page(request, project)
    if refusal := not_an_admin(request, project):
        return refusal
    form = Settings(request.POST, project=project)
    if not form.is_valid():
        return _page(request, project, form=form)
    try:
        if changes := form.changes(project):
            projects.configure(project_id=project.pk, actor=person_of(request), **changes)
    except DevFlowError as exc:
        form.add_error(None, exc.message)
        return _page(request, project, form=form)
    messages.success(request, "Saved." if changes else "Nothing was changed.")
    return redirect("project", slug)


def _page(
    request: HttpRequest, project: Project, *, form: Settings | None = None, member: NewMember | None = None
) -> HttpResponse:
    may_administer = administers(request, project)
    context: dict[str, Any] = {
        "project": project,
        "form": form or Settings(project=project),
        "member": member or NewMember(),
        "roles": Membership.Role.choices,
        "members": Membership.objects.filter(project=project).select_related("user").order_by("user__username"),
        "phases": project_selectors.phases_with_counts(project_id=project.pk),
        "may_administer": may_administer,
        "here": "projects",
    }
    faulty = (form and form.errors) or (member and member.errors)
    return render(request, "workflow/project.html", context, status=422 if faulty else 200)


@page
@require_POST
def members(request: HttpRequest, slug: str) -> HttpResponse:
    """Add a person, change a role (`member` and `role`), or take somebody out (`member` and `remove`)."""
    project = reachable(request, slug)
    if refusal := not_an_admin(request, project):
        return refusal
    who: dict[str, Any] = {"project_id": project.pk, "actor": person_of(request)}
    if (chosen := request.POST.get("member")) is None:
        form = NewMember(request.POST)
        if not form.is_valid():
            return _page(request, project, member=form)
        try:
            made = projects.add_member(**who, username=form.cleaned_data["user"], role=form.cleaned_data["role"])
        except DevFlowError as exc:
            form.add_error("user", f"{exc.message} {exc.suggestion}")
            return _page(request, project, member=form)
        messages.success(request, f"{made.user} is {made.role} of {project.name}.")
        return redirect("project", slug)
    found = Membership.objects.filter(project=project, user__username=chosen).select_related("user").first()
    if found is None:
        raise Http404("There is no such member.")
    name, user_id = found.user.get_username(), found.user_id
    try:
        if "remove" in request.POST:
            projects.remove_member(**who, user_id=user_id)
            messages.success(request, f"{name} was taken out of {project.name}.")
        else:
            member = projects.set_member(**who, user_id=user_id, role=request.POST.get("role", ""))
            messages.success(request, f"{name} is {member.role} now.")
    except DevFlowError as exc:
        messages.error(request, f"{exc.message} {exc.suggestion}")
    if user_id == request.user.pk and not project_selectors.reachable(request.user).filter(pk=project.pk).exists():
        return redirect("projects")
    return redirect("project", slug)


@page
@require_POST
def archive(request: HttpRequest, slug: str) -> HttpResponse:
    project = reachable(request, slug)
    if refusal := not_an_admin(request, project):
        return refusal
    try:
        projects.archive(project_id=project.pk, actor=person_of(request))
    except DevFlowError as exc:  # a task that was let go at the same moment
        messages.error(request, f"{exc.message} Try again.")
        return redirect("project", slug)
    messages.success(request, f"{project.name} is archived: nobody sees it until you bring it back.")
    return redirect("projects")


@page
@require_POST
def restore(request: HttpRequest, slug: str) -> HttpResponse:
    project = reachable(request, slug)
    if refusal := not_an_admin(request, project):
        return refusal
    projects.unarchive(project_id=project.pk, actor=person_of(request))
    messages.success(request, f"{project.name} is back.")
    return redirect("project", slug)
