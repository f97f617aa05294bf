"""A project file from outside: looked at whole before anything is written, then made into a new project."""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from devflow.actors import Actor
from devflow.errors import DevFlowError
from workflow.models import Membership, Project, Status
from workflow.services import activity, projects
from workflow.services.transfer import writing
from workflow.services.transfer.checks import Preview, Problem, whole
from workflow.services.transfer.formats import FORMAT, MOST_EVENTS, MOST_TASKS, VERSION, ProjectFile

_BOM = b"\xef\xbb\xbf"
_WORDS = {
    "extra_forbidden": "is not a key of this format; leave it out.",
    "missing": "is missing.",
    "string_pattern_mismatch": "holds a character that cannot be kept.",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """A file, the slug its project will have, and what would come of it. `file` is None where it cannot be read."""

    file: ProjectFile | None
    slug: str
    preview: Preview


def read(data: bytes, *, slug: str = "") -> Reading:
    """Look at a project file. `slug`: another than the one in the file. Two queries, and nothing is written."""
    file, problems = _parsed(data)
    if file is None:
        return Reading(None, slug, Preview({}, problems))
    wanted = slug or file.project.slug
    problems = [*_slug(wanted), *whole(file)]
    counts = {
        "phases": len(file.phases),
        "tasks": len(file.tasks),
        "dependencies": sum(len(set(task.blocked_by)) for task in file.tasks),
        "notes": sum(len(task.notes) for task in file.tasks),
        "pieces of evidence": sum(len(task.evidence) for task in file.tasks),
        "events": len(file.events),
        "members": len(file.members),
    }
    shown = {words: number for words, number in counts.items() if number or words in ("phases", "tasks")}
    return Reading(file, wanted, Preview(shown, problems, _notices(file)))


def _parsed(data: bytes) -> tuple[ProjectFile | None, list[Problem]]:
    try:
        found: Any = from_json(data.removeprefix(_BOM), allow_inf_nan=False)
    except ValueError as exc:
        said, _, place = str(exc).rpartition(" at ")
        return None, [Problem(place or "the file", f"is not valid JSON: {said or exc}.")]
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return None, [Problem("the file", f'is no project of DevFlow: it does not begin with "format": "{FORMAT}".')]
    version = found.get("version")
    if type(version) is not int or version < 1:
        return None, [Problem("version", f"is not the number of a version of this format, such as {VERSION}.")]
    if version > VERSION:
        words = (
            f"the file is of version {version} of the format, this DevFlow reads up to {VERSION}. "
            "Import it where a newer DevFlow runs, or update this one."
        )
        return None, [Problem("version", words)]
    for part, most in (("tasks", MOST_TASKS), ("events", MOST_EVENTS)):
        if isinstance(rows := found.get(part), list) and len(rows) > most:
            return None, [Problem(part, f"{len(rows):,} are too many for one file; it may have {most:,} at most.")]
    try:
        return ProjectFile.model_validate(found), []
    except ValidationError as exc:
        return None, [_problem(error, found) for error in exc.errors(include_url=False, include_input=False)]


def _problem(error: ErrorDetails, found: dict[str, Any]) -> Problem:
    place = ""
    for part in error["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
        if place.startswith("tasks[") and isinstance(part, int) and place.count("[") == 1:
            row = found["tasks"][part]
            ref = row.get("ref") if isinstance(row, dict) else None
            place += f" (#{ref})" if isinstance(ref, int) else ""
    words = _WORDS.get(error["type"], error["msg"].removeprefix("Value error, "))
    return Problem(place[:300] or "the file", words)


def _slug(slug: str) -> list[Problem]:
    try:
        projects.checked_slug(slug)
    except DevFlowError as exc:
        return [Problem("project.slug", exc.message)]
    if Project.objects.filter(slug=slug).exists():
        return [Problem("project.slug", f"there is a project {slug} here already; give the new one another slug.")]
    return []


def _notices(file: ProjectFile) -> list[str]:
    found = []
    if running := sum(task.status == Status.IN_PROGRESS for task in file.tasks):
        said = "1 task in progress becomes" if running == 1 else f"{running:,} tasks in progress become"
        found.append(f"{said} ready or waiting again: nobody holds them here.")
    if file.events:
        found.append("The history is kept for reading; moves in it cannot be taken back.")
    if file.members:
        known = _users(file)
        unknown = [member.user for member in file.members if member.user not in known]
        if unknown:
            more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
            found.append(f"Not known here, so left out of the members: {', '.join(unknown[:10])}{more}.")
    return found


def _users(file: ProjectFile) -> dict[str, int]:
    named = [member.user for member in file.members]
    rows = get_user_model()._default_manager.filter(username__in=named, is_active=True) if named else ()
    return {user.get_username(): user.pk for user in rows}


@transaction.atomic
def write(reading: Reading, *, actor: Actor, owner_id: int | None = None) -> Project:
    """Make the project a file holds, whole or not at all. `owner_id`: who is its admin, whatever the file says.

    Raises `invalid_input` naming the place of the first problem, `conflict` for a slug that was taken meanwhile.
    """
    file = reading.file
    if file is None or not reading.preview.is_good:
        raise reading.preview.refusal("The file")
    row = file.project
    project = projects.new_row(slug=reading.slug, name=row.name, description=row.description, owner_id=owner_id)
    project.require_review, project.gates_enabled = row.require_review, row.gates_enabled
    project.column_limits = dict(row.column_limits)
    project.next_ref = max((task.ref for task in file.tasks), default=0) + 1
    project.created_at = row.created_at or project.created_at
    project.save(update_fields=["require_review", "gates_enabled", "column_limits", "next_ref", "created_at"])
    _members(project, file, owner_id)
    phases = writing.phases(project, file.phases)
    agents = writing.agents(project, file)
    tasks = writing.tasks(project, file.tasks, phases=phases, agents=agents, actor=actor)
    if file.events:
        writing.events(project, file.events, phases=phases, agents=agents, tasks=tasks)
    activity.record(
        kind="project.imported",
        project=project,
        actor=actor,
        subject_id=f"project-{project.slug}",
        after={"name": project.name, **reading.preview.counts},
    )
    if not file.events:
        writing.log_made(tasks.values(), actor=actor)
    return project


def _members(project: Project, file: ProjectFile, owner_id: int | None) -> None:
    known = _users(file)
    Membership.objects.bulk_create(
        Membership(project=project, user_id=known[member.user], role=member.role)
        for member in file.members
        if member.user in known and known[member.user] != owner_id
    )
