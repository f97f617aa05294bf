"""Phases: making and changing them, their YAML files `NN_name.yaml`, and the templates new projects start from."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from devflow.actors import Actor
from devflow.errors import conflict, invalid, not_found
from workflow.models import DoneDefinition, Phase, Project
from workflow.services import activity, readiness

TEMPLATES = Path(__file__).resolve().parent.parent / "phase_templates"
FILE_NAME = re.compile(r"^(\d{1,5})_[\w.-]+\.ya?ml$", re.ASCII)

_Line = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]
_Text = Annotated[str, Field(max_length=100_000, pattern=r"^[^\x00]*$")]


class EntryRule(BaseModel):
    """Tasks become ready once `done_tasks` tasks of `phase` (its number) are done."""

    model_config = ConfigDict(extra="forbid")

    phase: int = Field(ge=1, le=10_000)
    done_tasks: int = Field(1, ge=1, le=100_000)


class PhaseFile(BaseModel):
    """What a phase's YAML file holds."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=100)]
    description: _Text = ""
    done_definitions: Annotated[list[_Line], Field(min_length=1, max_length=100)]
    additional_notes: _Text = ""
    working_directory: Annotated[str, Field(max_length=500)] = ""
    lease_minutes: int | None = Field(None, ge=1, le=1440)
    wip_limit: int | None = Field(None, ge=1, le=100_000)
    requires_review: bool = False
    requires_evidence: bool = False
    entry: EntryRule | None = None
    allowed_toolsets: Annotated[list[str], Field(max_length=20)] = []


def templates() -> list[str]:
    """The names of the templates there are."""
    return sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir())


@transaction.atomic
def apply_template(*, project_id: int, template: str, actor: Actor) -> list[Phase]:
    """Give a project the phases of a template. Raises `not_found` for an unknown one."""
    if template not in templates():
        raise not_found("Template", template, suggestion=f"The templates are: {', '.join(templates())}.")
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted((TEMPLATES / template).glob("*.yaml"))}
    return import_files(project_id=project_id, files=files, actor=actor)


def _parsed(name: str, text: str) -> tuple[int, PhaseFile]:
    match = FILE_NAME.fullmatch(Path(name).name)
    if match is None or int(match[1]) < 1 or int(match[1]) > 10_000:
        raise invalid(f"{name}: a phase's file is called NN_name.yaml, such as 01_analysis.yaml.", file=name)
    try:
        loaded = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as exc:  # ValueError: what looks like a date but is none
        raise invalid(f"{name} is not valid YAML: {exc}", file=name) from None
    try:
        return int(match[1]), PhaseFile.model_validate(loaded)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise invalid(f"{name}: {where}: {first['msg']}", **{where: first["msg"]}) from None


@transaction.atomic
def import_files(*, project_id: int, files: Mapping[str, str], actor: Actor) -> list[Phase]:
    """Make or change phases from YAML files (name to text): all of them or none. Importing again changes nothing.

    Raises `invalid_input` naming the file and the key that cannot be used.
    """
    project = Project.objects.filter(pk=project_id).first()
    if project is None:
        raise not_found("Project", project_id)
    wanted: dict[int, PhaseFile] = {}
    for name, text in sorted(files.items()):
        number, content = _parsed(name, text)
        if number in wanted:
            raise invalid(f"{name}: there is another file for phase {number}.", file=name)
        wanted[number] = content
    for number, content in wanted.items():
        save(project_id=project_id, number=number, content=content.model_copy(update={"entry": None}), actor=actor)
    return [
        save(project_id=project_id, number=number, content=content, actor=actor) for number, content in wanted.items()
    ]


def export_files(*, project_id: int) -> dict[str, str]:
    """The phases of a project as YAML files, name to text."""
    phases = (
        Phase.objects.filter(project_id=project_id)
        .select_related("entry_phase")
        .prefetch_related("done_definitions")
        .order_by("number")
    )
    return {file_name(phase): dump(phase) for phase in phases}


def file_name(phase: Phase) -> str:
    stem = re.sub(r"[^a-z0-9]+", "_", phase.name.lower()).strip("_") or "phase"
    return f"{phase.number:02d}_{stem}.yaml"


def dump(phase: Phase) -> str:
    content = PhaseFile.model_construct(
        name=phase.name,
        description=phase.description,
        done_definitions=[item.text for item in phase.done_definitions.all()],
        additional_notes=phase.additional_notes,
        working_directory=phase.working_directory,
        lease_minutes=phase.lease_minutes,
        wip_limit=phase.wip_limit,
        requires_review=phase.requires_review,
        requires_evidence=phase.requires_evidence,
        entry=EntryRule(phase=phase.entry_phase.number, done_tasks=phase.entry_done_tasks)
        if phase.entry_phase
        else None,
        allowed_toolsets=phase.allowed_toolsets,
    )
    filled = {name: value for name, value in content.model_dump().items() if value not in (None, "", [], False)}
    return yaml.safe_dump(filled, sort_keys=False, allow_unicode=True, width=100)


@transaction.atomic
def save(*, project_id: int, number: int, content: PhaseFile, actor: Actor) -> Phase:
    """Make phase `number`, or change it to `content`. Evidence for done definitions that stay is kept.

    Raises `invalid_input` for an entry rule that names no phase of the project, or the phase itself.
    """
    project = Project.objects.get(pk=project_id)
    phase = Phase.objects.select_for_update().filter(project_id=project_id, number=number).first()
    is_new = phase is None
    phase = phase or Phase(project=project, number=number)
    entry = None
    if content.entry is not None:
        entry = Phase.objects.filter(project_id=project_id, number=content.entry.phase).exclude(pk=phase.pk).first()
        if entry is None:
            raise invalid(
                f"Phase {number} is entered through phase {content.entry.phase}, which is not another phase here.",
                entry=str(content.entry.phase),
            )
        _check_entry_cycle(phase, entry)
    fields: dict[str, Any] = content.model_dump(exclude={"entry", "done_definitions"})
    fields |= {"entry_phase": entry, "entry_done_tasks": content.entry.done_tasks if content.entry else 1}
    rule_changed = not is_new and any(
        getattr(phase, name) != fields[name] for name in ("entry_phase", "entry_done_tasks")
    )
    changed = is_new or any(getattr(phase, name) != value for name, value in fields.items())
    for name, value in fields.items():
        setattr(phase, name, value)
    phase.save()
    changed = _set_definitions(phase, content.done_definitions) or changed
    if changed:
        activity.record(
            kind="phase.created" if is_new else "phase.changed",
            project=project,
            actor=actor,
            phase=phase,
            after={"name": phase.name},
        )
    if rule_changed:
        readiness.phase_refreshed(phase_ids=[phase.pk], actor=actor)
    return phase


def _check_entry_cycle(phase: Phase, entry: Phase) -> None:
    """Two phases that are each entered through the other would never start."""
    seen: list[int] = [phase.number]
    above: Phase | None = entry
    while above is not None:
        if above.pk == phase.pk or above.number in seen[1:]:
            chain = " through ".join(str(number) for number in [*seen, phase.number])
            raise conflict(f"Phases would wait for each other: {chain}.", suggestion="Leave out one entry rule.")
        seen.append(above.number)
        above = above.entry_phase


def _set_definitions(phase: Phase, texts: Sequence[str]) -> bool:
    wanted = list(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if not wanted:
        raise invalid("A phase has at least one done definition.", done_definitions="is empty")
    current = list(phase.done_definitions.values_list("text", flat=True))
    if current == wanted:
        return False
    phase.done_definitions.exclude(text__in=wanted).delete()
    DoneDefinition.objects.bulk_create(
        [DoneDefinition(phase=phase, position=position, text=text) for position, text in enumerate(wanted, 1)],
        update_conflicts=True,
        unique_fields=["phase", "text"],
        update_fields=["position"],
    )
    return True
