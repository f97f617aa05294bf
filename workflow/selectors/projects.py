"""Projects a key or a person may see, and their phases."""

from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery

from devflow.errors import invalid, not_found
from devflow.ports import KeyScope
from workflow.models import ActiveProject, Event, Membership, Phase, Project, Status

LISTED = 20
"""How many slugs an ambiguous call is told."""


def visible(scope: KeyScope) -> QuerySet[Project]:
    """The projects a key sees: its own, else its owner's, else (a key of the server's command line) all of them."""
    projects = Project.objects.filter(archived_at__isnull=True).order_by("slug")
    if scope.project_id is not None:
        projects = projects.filter(pk=scope.project_id)
    if scope.user_id is not None:
        owner = get_user_model()._default_manager.filter(pk=scope.user_id, is_active=True)
        member = Membership.objects.filter(user__in=owner.values("pk")).values("project")
        projects = projects.filter(Q(pk__in=member) | Q(Exists(owner.filter(is_superuser=True))))
    return projects


def visible_to(user: Any) -> QuerySet[Project]:
    """The projects a logged-in person sees: for a superuser all, else those of their memberships."""
    projects = Project.objects.filter(archived_at__isnull=True).order_by("name", "pk")
    return projects if user.is_superuser else projects.filter(memberships__user=user)


def of_call(scope: KeyScope, *, slug: str | None, agent_name: str) -> Project:
    """The project of a call: `slug`, else the key's own, else the remembered one, else the only visible one.

    Raises `not_found` for a slug the key cannot see, `invalid_input` listing the slugs when several remain.
    """
    seen = visible(scope)
    if slug is not None:
        project = seen.filter(slug=slug).first()
        if project is None:
            raise not_found("Project", slug, suggestion="set_project or the header X-Project takes a project's slug.")
        return project
    if scope.project_id is None:
        active = ActiveProject.objects.filter(key_id=scope.key_id, agent_name=agent_name).values("project")
        if (project := seen.filter(pk__in=active).first()) is not None:
            return project
    found = list(seen[: LISTED + 1])
    if len(found) == 1:
        return found[0]
    if not found:
        raise invalid("There is no project this key can see.", project="ask an administrator for one")
    slugs = ", ".join(project.slug for project in found[:LISTED]) + (", ..." if len(found) > LISTED else "")
    raise invalid(
        f"Say which project: call set_project, or send the header X-Project. They are: {slugs}.",
        project=f"one of {slugs}",
    )


def phases(*, project_id: int) -> QuerySet[Phase]:
    """A project's phases in order, with done definitions and the phase each is entered through. Two queries."""
    return (
        Phase.objects.filter(project_id=project_id)
        .select_related("project", "entry_phase")
        .prefetch_related("done_definitions")
        .order_by("number")
    )


def phase(*, project_id: int, number: int) -> Phase:
    """One phase with its done definitions. Raises `not_found`."""
    found = phases(project_id=project_id).filter(number=number).first()
    if found is None:
        raise not_found("Phase", number, suggestion="get_kanban_board and the connect page name the phases there are.")
    return found


def phases_with_counts(*, project_id: int) -> QuerySet[Phase]:
    """The phases with `open_tasks`, `running_tasks` and `done_tasks`, for pages."""
    return phases(project_id=project_id).annotate(
        open_tasks=Count("tasks", filter=Q(tasks__status__in=[Status.PENDING, Status.READY])),
        running_tasks=Count("tasks", filter=Q(tasks__status__in=[Status.IN_PROGRESS, Status.REVIEW])),
        done_tasks=Count("tasks", filter=Q(tasks__status=Status.DONE)),
    )


def may_write(*, user_id: int, project_id: int) -> bool:
    """Whether an active person is a member or admin of the project, or a superuser. One query."""
    return _has_role(user_id, project_id, [Membership.Role.MEMBER, Membership.Role.ADMIN])


def may_administer(*, user_id: int, project_id: int) -> bool:
    """Whether an active person is an admin of the project, or a superuser. One query."""
    return _has_role(user_id, project_id, [Membership.Role.ADMIN])


def _has_role(user_id: int, project_id: int, roles: list[str]) -> bool:
    owner = get_user_model()._default_manager.filter(pk=user_id, is_active=True)
    member = Membership.objects.filter(user=OuterRef("pk"), project_id=project_id, role__in=roles)
    return owner.filter(Q(is_superuser=True) | Q(Exists(member))).exists()


def reachable(user: Any) -> QuerySet[Project]:
    """The projects a person may open the settings of: those they see, and archived ones they administer."""
    if user.is_superuser:
        return Project.objects.order_by("name", "pk")
    mine = Membership.objects.filter(user=user)
    kept = mine.filter(role=Membership.Role.ADMIN).values("project")
    open_ones = Q(archived_at__isnull=True, pk__in=mine.values("project"))
    return Project.objects.filter(open_ones | Q(pk__in=kept)).order_by("name", "pk")


def with_counts(projects: QuerySet[Project], *, user: Any) -> QuerySet[Project]:
    """`projects` with `open_tasks`, `running_tasks`, `done_tasks`, `last_event_at` and the `role` of that person."""
    newest = Event.objects.filter(project=OuterRef("pk")).order_by("-pk").values("at")[:1]
    role = Membership.objects.filter(project=OuterRef("pk"), user=user).values("role")[:1]
    counts = {
        "open_tasks": [Status.PENDING, Status.READY, Status.REVIEW, Status.FAILED],
        "running_tasks": [Status.IN_PROGRESS],
        "done_tasks": [Status.DONE],
    }
    return projects.annotate(
        **{name: Count("tasks", filter=Q(tasks__status__in=statuses)) for name, statuses in counts.items()},
        last_event_at=Subquery(newest),
        role=Subquery(role),
    )


def may_create(user: Any) -> bool:
    """Whether a person may make projects: superusers, and whom the admin gives that right."""
    return bool(user.has_perm("workflow.add_project"))
