"""Gates: named markers set and cleared by compare-and-set, mirrored as files where a project root is given.

They rule what the gateway does to the outside, never DevFlow's own tools: a gated change asks `analysis-done`,
consumes it and leaves `execution-done`.
"""

import re
from pathlib import Path

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from devflow import config
from devflow.actors import Actor
from devflow.errors import DevFlowError, ErrorCode, conflict, forbidden, invalid
from workflow.models import Gate, Phase, Project, Task
from workflow.selectors import tasks as task_selectors
from workflow.services import activity
from workflow.services.rows import phase_numbered

ANALYSIS_DONE = "analysis-done"
EXECUTION_DONE = "execution-done"
NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,63}$")


def _mirror(project_root: str, name: str) -> Path:
    """The marker's file. Raises `forbidden` outside the allowed roots, `invalid_input` for what is no directory."""
    try:
        root = Path(project_root).resolve(strict=True)
    except (OSError, ValueError):
        raise invalid("project_root is not a directory on this server.", project_root=project_root) from None
    roots = [Path(allowed).resolve() for allowed in config.current().allowed_roots]
    if not any(root.is_relative_to(allowed) for allowed in roots):
        raise forbidden(
            "project_root is outside the directories this server may touch.",
            suggestion="Ask an administrator to add it to DEVFLOW_ALLOWED_ROOTS, or leave project_root out.",
        )
    if not root.is_dir():
        raise invalid("project_root is not a directory on this server.", project_root=project_root)
    return root / f".{name}"


def _write_mirror(path: Path, *, is_set: bool, text: str) -> None:
    if path.is_symlink():  # a link planted there must not lead the write elsewhere
        return
    if is_set:
        path.write_text(text, encoding="utf-8")
    else:
        path.unlink(missing_ok=True)


@transaction.atomic
def set_gate(
    *,
    project_id: int,
    name: str,
    actor: Actor,
    is_set: bool = True,
    task_id: str | int | None = None,
    phase_number: int | None = None,
    reason: str = "",
    expected_version: int | None = None,
    project_root: str | None = None,
) -> Gate:
    """Set or clear a marker on a task, a phase or the project; what it already is stays as it is.

    `expected_version`: 0 for a marker that must not exist yet, else the version the decision was made on. Raises
    `conflict` when it changed since, `not_found` for an unknown task or phase.
    """
    if not NAME.fullmatch(name):
        raise invalid("A gate's name has lower-case letters, digits and -, such as analysis-done.", name=name)
    if task_id is not None and phase_number is not None:
        raise invalid("A gate belongs to a task or to a phase, not to both.", phase_id="leave one of them out")
    path = _mirror(project_root, name) if project_root else None
    project = Project.objects.get(pk=project_id)
    task = None if task_id is None else task_selectors.by_id(project_id=project_id, task_id=task_id)
    phase = None if phase_number is None else phase_numbered(project_id=project_id, number=phase_number)
    gate, is_new = _row(project=project, task=task, phase=phase, name=name, actor=actor)
    if expected_version is not None and expected_version != (0 if is_new else gate.version):
        raise conflict(
            f"The gate {name} changed meanwhile (version {gate.version}).",
            suggestion="get_gates shows what it is now; decide again.",
            version=0 if is_new else gate.version,
        )
    if gate.is_set != is_set:
        changed = Gate.objects.filter(pk=gate.pk, version=gate.version).update(
            is_set=is_set,
            version=gate.version if is_new else F("version") + 1,
            actor_kind=actor.kind,
            actor_name=actor.name,
            reason=reason,
            changed_at=timezone.now(),
        )
        if not changed:
            raise conflict(f"The gate {name} changed meanwhile.", suggestion="get_gates shows what it is now.")
        gate.refresh_from_db()
        activity.record(
            kind="gate.set" if is_set else "gate.cleared",
            project=project,
            actor=actor,
            task=task,
            phase=phase,
            subject_id=f"gate-{name}",
            after={"name": name, "reason": reason[:200], "version": gate.version},
        )
    if path is not None:
        text = f"{actor.name}: {reason}\n"
        transaction.on_commit(lambda: _write_mirror(path, is_set=is_set, text=text), robust=True)
    return gate


def _row(*, project: Project, task: Task | None, phase: Phase | None, name: str, actor: Actor) -> tuple[Gate, bool]:
    gate, is_new = Gate.objects.get_or_create(
        project=project,
        task=task,
        phase=phase,
        name=name,
        defaults={"is_set": False, "actor_kind": actor.kind, "actor_name": actor.name},
    )
    return gate, is_new


def is_open(*, project_id: int, name: str, task_id: int | None = None, project_root: str | None = None) -> bool:
    """Whether the marker stands, as a row (of the task, its phase or the project) or as a file: either suffices."""
    rows = Gate.objects.filter(project_id=project_id, name=name, is_set=True)
    if task_id is None:
        rows = rows.filter(task__isnull=True, phase__isnull=True)
    else:
        phase = Task.objects.filter(pk=task_id, project_id=project_id).values("phase")
        rows = (
            rows.filter(task=task_id)
            | rows.filter(task__isnull=True, phase__in=phase)
            | rows.filter(task__isnull=True, phase__isnull=True)
        )
    if rows.exists():
        return True
    return project_root is not None and _mirror(project_root, name).is_file()


@transaction.atomic
def consume(
    *, project_id: int, name: str, actor: Actor, task_id: int | None = None, project_root: str | None = None
) -> None:
    """Take the marker a gated change needs, the nearest first: task, phase, project, file. One taker gets it.

    Raises `precondition_failed` where there is none.
    """
    rows = Gate.objects.filter(project_id=project_id, name=name, is_set=True)
    places = [rows.filter(task__isnull=True, phase__isnull=True)]
    if task_id is not None:
        phase = Task.objects.filter(pk=task_id, project_id=project_id).values("phase")
        places = [rows.filter(task=task_id), rows.filter(task__isnull=True, phase__in=phase), *places]
    path = _mirror(project_root, name) if project_root else None
    for place in places:
        taken = place.update(
            is_set=False,
            version=F("version") + 1,
            actor_kind=actor.kind,
            actor_name=actor.name,
            reason="consumed",
            changed_at=timezone.now(),
        )
        if taken:
            if path is not None:
                transaction.on_commit(lambda: _write_mirror(path, is_set=False, text=""), robust=True)
            activity.record(
                kind="gate.consumed",
                project=Project.objects.get(pk=project_id),
                actor=actor,
                subject_id=f"gate-{name}",
                after={"name": name},
            )
            return
    if path is not None and path.is_file() and not path.is_symlink():
        path.unlink(missing_ok=True)
        return
    raise DevFlowError(
        ErrorCode.PRECONDITION_FAILED,
        f"The gate {name} is not set.",
        suggestion=f"Analyse first, then call set_gate(name='{name}') with the reason.",
    )
