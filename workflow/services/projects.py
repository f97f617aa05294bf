"""Making projects, their members, and the project an agent's key works in."""

from collections.abc import Mapping
from datetime import datetime

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import IntegrityError, transaction
from django.utils import timezone

from devflow import ports
from devflow.actors import SYSTEM, Actor
from devflow.errors import conflict, invalid, not_found
from devflow.ports import KeyScope
from workflow.models import ActiveProject, Membership, Project, Task
from workflow.selectors import projects as project_selectors
from workflow.services import activity, claims, phases

MAX_NAME = 100
LIMITED_COLUMNS = ("backlog", "ready", "in_progress", "review")


def checked_limits(limits: Mapping[str, int | None]) -> dict[str, int]:
    """Column limits as they are stored. Raises `invalid_input`."""
    for column, limit in limits.items():
        if column not in LIMITED_COLUMNS:
            raise invalid(f"There is no limit for {column}.", column_limits=f"one of {', '.join(LIMITED_COLUMNS)}")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise invalid(f"The limit of {column} is a number from 1, or nothing.", column_limits=str(limit))
    return {column: limit for column, limit in limits.items() if limit}


def checked_slug(slug: str) -> str:
    """A slug that a project can have. Raises `invalid_input`."""
    try:
        validate_slug(slug)
    except ValidationError:
        raise invalid("A slug has letters, digits, - and _ only.", slug=slug) from None
    if len(slug) > 50:
        raise invalid("A slug has at most 50 characters.", slug=f"{len(slug)} given")
    return slug


def new_row(*, slug: str, name: str = "", description: str = "", owner_id: int | None = None) -> Project:
    """The row of a new project and its first admin, for those who log its making. Raises `conflict`."""
    name = _checked_name(name.strip() or slug)
    try:
        with transaction.atomic():
            project = Project.objects.create(slug=checked_slug(slug), name=name, description=description)
    except IntegrityError:
        raise conflict(f"There is a project {slug} already.", suggestion="Choose another slug.") from None
    if owner_id is not None:
        Membership.objects.create(project=project, user_id=owner_id, role=Membership.Role.ADMIN)
    return project


def _checked_name(name: str) -> str:
    if not name.strip():
        raise invalid("A project has a name.", name="is empty")
    if len(name) > MAX_NAME:
        raise invalid(f"A name has at most {MAX_NAME} characters.", name=f"{len(name)} given")
    return name.strip()


@transaction.atomic
def create(
    *,
    slug: str,
    name: str = "",
    description: str = "",
    template: str | None = "analysis",
    owner_id: int | None = None,
    actor: Actor = SYSTEM,
) -> Project:
    """Make a project with the phases of a template, and its first admin. Raises `conflict` for a slug in use."""
    project = new_row(slug=slug, name=name, description=description, owner_id=owner_id)
    activity.record(
        kind="project.created",
        project=project,
        actor=actor,
        subject_id=f"project-{project.slug}",
        after={"name": project.name},
    )
    if template is not None:
        phases.apply_template(project_id=project.pk, template=template, actor=actor)
    return project


@transaction.atomic
def configure(
    *,
    project_id: int,
    actor: Actor,
    name: str | None = None,
    description: str | None = None,
    require_review: bool | None = None,
    gates_enabled: bool | None = None,
    column_limits: Mapping[str, int | None] | None = None,
) -> Project:
    """Change a project's settings. Raises `not_found`, `invalid_input`."""
    project = _locked(project_id)
    wanted = {
        "name": None if name is None else _checked_name(name),
        "description": description,
        "require_review": require_review,
        "gates_enabled": gates_enabled,
        "column_limits": None if column_limits is None else checked_limits(column_limits),
    }
    changed = {
        field: value for field, value in wanted.items() if value is not None and getattr(project, field) != value
    }
    before = {field: getattr(project, field) for field in changed}
    for field, value in changed.items():
        setattr(project, field, value)
    if changed:
        project.save(update_fields=list(changed))
        activity.record(
            kind="project.changed",
            project=project,
            actor=actor,
            subject_id=f"project-{project.slug}",
            before=before,
            after=changed,
        )
    return project


def _locked(project_id: int) -> Project:
    """The project's row, locked: what serialises changes of its settings and members."""
    project = Project.objects.select_for_update(no_key=True).filter(pk=project_id).first()
    if project is None:
        raise not_found("Project", project_id)
    return project


def _check_an_admin_stays(project: Project, user_id: int) -> None:
    """Refuse to take the role `admin` from the last active person who has it."""
    admins = Membership.objects.filter(project=project, role=Membership.Role.ADMIN, user__is_active=True)
    if admins.filter(user_id=user_id).exists() and not admins.exclude(user_id=user_id).exists():
        raise conflict(f"{project.name} would have no admin any more.", suggestion="Make somebody else an admin first.")


@transaction.atomic
def set_member(*, project_id: int, user_id: int, role: str, actor: Actor) -> Membership:
    """Give a person a role in a project; the one they have already changes nothing.

    Raises `invalid_input` for an unknown role, `not_found` for a project, `conflict` where no admin would be left.
    """
    if role not in Membership.Role.values:
        raise invalid(f"A role is one of {', '.join(Membership.Role.values)}.", role=role)
    project = _locked(project_id)
    known = Membership.objects.filter(project=project, user_id=user_id).first()
    if known is not None and known.role == role:
        return known
    if known is not None:
        _check_an_admin_stays(project, user_id)
    member, _ = Membership.objects.update_or_create(project=project, user_id=user_id, defaults={"role": role})
    activity.record(
        kind="project.member",
        project=project,
        actor=actor,
        subject_id=f"project-{project.slug}",
        before={"user": user_id, "role": known.role} if known else {},
        after={"user": user_id, "role": role},
    )
    return member


def add_member(*, project_id: int, username: str, role: str, actor: Actor) -> Membership:
    """Give the active person of that user name a role. Raises as `set_member` does, `not_found` for a person."""
    users = get_user_model()._default_manager
    user_id = users.filter(username=username.strip(), is_active=True).values_list("pk", flat=True).first()
    if user_id is None:
        raise not_found(
            "User", username.strip() or "without a name", suggestion="An administrator makes users in the admin."
        )
    return set_member(project_id=project_id, user_id=user_id, role=role, actor=actor)


@transaction.atomic
def remove_member(*, project_id: int, user_id: int, actor: Actor) -> None:
    """Take a person out of a project; one who is not in it is no fault.

    Raises `not_found` for a project, `conflict` where no admin would be left.
    """
    project = _locked(project_id)
    member = Membership.objects.filter(project=project, user_id=user_id).first()
    if member is None:
        return
    _check_an_admin_stays(project, user_id)
    member.delete()
    activity.record(
        kind="project.member",
        project=project,
        actor=actor,
        subject_id=f"project-{project.slug}",
        before={"user": user_id, "role": member.role},
        after={"user": user_id, "role": None},
    )


@transaction.atomic
def archive(*, project_id: int, actor: Actor) -> Project:
    """Put a project away: nobody sees or changes it until it is brought back. Tasks that agents hold are released.

    One that is archived already is left as it is. Raises `not_found`.
    """
    held = Task.objects.filter(project_id=project_id, project__archived_at=None, lease_token__isnull=False)
    for task_id in held.order_by("pk").values_list("pk", flat=True):  # before the project's row, as moves lock them
        claims.release(project_id=project_id, task_id=task_id, actor=actor, reason="the project was archived")
    project = _locked(project_id)
    return project if project.archived_at else _set_archived(project, timezone.now(), actor=actor)


@transaction.atomic
def unarchive(*, project_id: int, actor: Actor) -> Project:
    """Bring an archived project back as it was; one that is not archived is left as it is. Raises `not_found`."""
    project = _locked(project_id)
    return project if project.archived_at is None else _set_archived(project, None, actor=actor)


def _set_archived(project: Project, at: datetime | None, *, actor: Actor) -> Project:
    before, project.archived_at = project.archived_at, at
    project.save(update_fields=["archived_at"])
    activity.record(
        kind="project.restored" if at is None else "project.archived",
        project=project,
        actor=actor,
        subject_id=f"project-{project.slug}",
        before={"archived_at": before},
        after={"archived_at": at},
    )
    transaction.on_commit(ports.directory().forget)
    return project


@transaction.atomic
def remember(*, scope: KeyScope, slug: str, agent_name: str) -> Project:
    """Make a project the active one of (key, agent). Raises `not_found` for one the key cannot see."""
    project = project_selectors.of_call(scope, slug=slug, agent_name=agent_name)
    ActiveProject.objects.update_or_create(
        key_id=scope.key_id, agent_name=agent_name[:120], defaults={"project": project}
    )
    return project
