"""What every page needs first: a person who is logged in, their projects, and the one they look at."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse

from devflow import actors, ports
from devflow.actors import Actor
from devflow.ports import KeyScope, ProjectRef

P = ParamSpec("P")
SESSION_KEY = "project"


def scope_of(request: HttpRequest) -> KeyScope:
    return KeyScope(key_id=0, user_id=int(request.user.pk or 0))


def projects_of(request: HttpRequest) -> list[ProjectRef]:
    return sorted(ports.directory().visible_projects(scope_of(request)), key=lambda project: (project.name, project.id))


def project_named(request: HttpRequest, slug: str) -> tuple[ProjectRef, list[ProjectRef]]:
    """A project by its slug, which is remembered, and all there are. Raises Http404 for one the person does not see."""
    seen = projects_of(request)
    chosen = next((project for project in seen if project.slug == slug), None)
    if chosen is None:
        raise Http404("There is no such project, or it is not yours.")
    if request.session.get(SESSION_KEY) != chosen.slug:
        request.session[SESSION_KEY] = chosen.slug
    return chosen, seen


def project_of(request: HttpRequest) -> tuple[ProjectRef | None, list[ProjectRef]]:
    """`?project=`, or the project looked at last, with all there are. None: the person sees no project at all."""
    if wanted := request.GET.get("project"):
        return project_named(request, wanted)
    seen = projects_of(request)
    last = request.session.get(SESSION_KEY)
    return next((project for project in seen if project.slug == last), seen[0] if seen else None), seen


def may_write(request: HttpRequest, project_id: int) -> bool:
    return ports.directory().role_allows(scope_of(request), project_id, write=True)


def person_of(request: HttpRequest) -> Actor:
    return actors.person(user_id=int(request.user.pk or 0), name=request.user.get_username(), tool="browser")


def page(view: Callable[Concatenate[HttpRequest, P], HttpResponse]) -> Callable[..., Any]:
    """A page for people who are logged in; it is never stored by anything in between."""

    @login_required
    @wraps(view)
    def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        response = view(request, *args, **kwargs)
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response

    return guarded
