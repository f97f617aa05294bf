"""Making projects, their members, and the project an agent's key works in."""

from collections.abc import Mapping

from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import IntegrityError, transaction

from devflow.actors import SYSTEM, Actor
from devflow.errors import conflict, invalid, not_found
from devflow.ports import KeyScope
from workflow.models import ActiveProject, Membership, Project
from workflow.selectors import projects as project_selectors
from workflow.services import activity, phases

LIMITED_COLUMNS = ("backlog", "ready", "in_progress", "review")


def checked_limits(limits: Mapping[str, int | None]) -> dict[str, int]:
    """Column limits as they are stored. Raises `invalid_input`."""
    for column, limit in limits.items():
        if column not in LIMITED_COLUMNS:
            raise invalid(f"There is no limit for {column}.", column_limits=f"one of {', '.join(LIMITED_COLUMNS)}")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise invalid(f"The limit of {column} is a number from 1, or nothing.", column_limits=str(limit))
    return {column: limit for column, limit in limits.items() if limit}


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
    try:
        validate_slug(slug)
    except ValidationError:
        raise invalid("A slug has letters, digits, - and _ only.", slug=slug) from None
    if len(slug) > 50:
        raise invalid("A slug has at most 50 characters.", slug=f"{len(slug)} given")
    try:
        with transaction.atomic():
            project = Project.objects.create(slug=slug, name=name.strip() or slug, description=description)
    except IntegrityError:
        raise conflict(f"There is a project {slug} already.", suggestion="Choose another slug.") from None
    if owner_id is not None:
        Membership.objects.create(project=project, user_id=owner_id, role=Membership.Role.ADMIN)
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
    project = Project.objects.select_for_update(no_key=True).filter(pk=project_id).first()
    if project is None:
        raise not_found("Project", project_id)
    wanted = {
        "name": name,
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


@transaction.atomic
def set_member(*, project_id: int, user_id: int, role: str, actor: Actor) -> Membership:
    """Give a person a role in a project. Raises `invalid_input` for an unknown role, `not_found` for a project."""
    if role not in Membership.Role.values:
        raise invalid(f"A role is one of {', '.join(Membership.Role.values)}.", role=role)
    project = Project.objects.filter(pk=project_id).first()
    if project is None:
        raise not_found("Project", project_id)
    member, _ = Membership.objects.update_or_create(project=project, user_id=user_id, defaults={"role": role})
    activity.record(
        kind="project.member",
        project=project,
        actor=actor,
        subject_id=f"project-{project.slug}",
        after={"user": user_id, "role": role},
    )
    return member


@transaction.atomic
def remember(*, scope: KeyScope, slug: str, agent_name: str) -> Project:
    """Make a project the active one of (key, agent). Raises `not_found` for one the key cannot see."""
    project = project_selectors.of_call(scope, slug=slug, agent_name=agent_name)
    ActiveProject.objects.update_or_create(
        key_id=scope.key_id, agent_name=agent_name[:120], defaults={"project": project}
    )
    return project
