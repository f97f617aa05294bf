"""A project as one JSON file."""

import json
from typing import Any

from django.utils import timezone

from devflow import __version__
from devflow.errors import not_found
from workflow.models import Agent, Event, Evidence, Membership, Phase, Project, Task
from workflow.services.phases import EntryRule
from workflow.services.transfer.formats import (
    MOST_EVENTS,
    NOT_TAKEN,
    AgentRow,
    EventRow,
    EvidenceRow,
    MemberRow,
    NoteRow,
    PhaseRow,
    ProjectFile,
    ProjectRow,
    TaskRow,
)

BATCH = 1_000
_WHO = ("actor_kind", "actor_name")
_PHASE_FIELDS = tuple(name for name in PhaseRow.model_fields if name not in ("done_definitions", "entry"))
_TASK_FIELDS = (
    *("ref", "subject", "description", "status", "boosted", "tags", "metadata", "position", "manual_block"),
    *("result", "attempts", "iteration", "created_at", "updated_at", "ready_since", "started_at", "completed_at"),
)


def file_name(slug: str) -> str:
    """`shop-2026-03-14.json`."""
    return f"{slug}-{timezone.now():%Y-%m-%d}.json"


def project_json(*, project_id: int, with_events: bool = False, with_members: bool = False) -> str:
    """All of a project, archived or not, as JSON text that can be imported again. Raises `not_found`.

    Leases, keys, messages, gates and saved views stay behind: they mean nothing elsewhere. The parts are read one
    after another without holding up those who write meanwhile; what a later part names and an earlier one did not
    see yet is left out.
    """
    project = Project.objects.filter(pk=project_id).first()
    if project is None:
        raise not_found("Project", project_id)
    tasks = list(
        Task.objects.filter(project=project)
        .select_related("phase", "assigned_agent")
        .prefetch_related("notes", "evidence__definition__phase", "dependencies")
        .order_by("ref")
    )
    refs = {task.pk: task.ref for task in tasks}
    phases = list(
        Phase.objects.filter(project=project)
        .select_related("entry_phase")
        .prefetch_related("done_definitions")
        .order_by("number")
    )
    known = {item.pk for phase in phases for item in phase.done_definitions.all()}
    file = ProjectFile.model_construct(
        exported_at=timezone.now(),
        exported_by=f"devflow {__version__}",
        project=ProjectRow.model_construct(**{name: getattr(project, name) for name in ProjectRow.model_fields}),
        phases=[_phase(phase) for phase in phases],
        agents=[
            AgentRow.model_construct(**{name: getattr(agent, name) for name in AgentRow.model_fields})
            for agent in Agent.objects.filter(project=project).order_by("name")
        ],
        tasks=[_task(task, refs, known) for task in tasks],
        events=_events(project, refs) if with_events else [],
        members=_members(project) if with_members else [],
    )
    whole: dict[str, Any] = {"format": file.format, "version": file.version}
    whole |= file.model_dump(mode="json", exclude_defaults=True, warnings=False)
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def _phase(phase: Phase) -> PhaseRow:
    entry = phase.entry_phase
    return PhaseRow.model_construct(
        **{name: getattr(phase, name) for name in _PHASE_FIELDS},
        done_definitions=[item.text for item in phase.done_definitions.all()],
        entry=EntryRule(phase=entry.number, done_tasks=phase.entry_done_tasks) if entry else None,
    )


def _task(task: Task, refs: dict[int, int], definitions: set[int]) -> TaskRow:
    values: dict[str, Any] = {name: getattr(task, name) for name in _TASK_FIELDS}
    values |= {
        "phase": task.phase.number,
        "priority": task.priority_name,
        "parent": refs.get(task.parent_id or 0),
        "blocked_by": [refs[link.blocker_id] for link in task.dependencies.all() if link.blocker_id in refs],
        "created_by": task.created_by,
        "assigned_agent": task.assigned_agent.name if task.assigned_agent else None,
        "notes": [
            NoteRow.model_construct(**{name: getattr(note, name) for name in NoteRow.model_fields})
            for note in task.notes.all()
        ],
        "evidence": [_evidence(proof, task) for proof in task.evidence.all() if proof.definition_id in definitions],
    }
    return TaskRow.model_construct(**values)


def _evidence(proof: Evidence, task: Task) -> EvidenceRow:
    of = proof.definition
    values: dict[str, Any] = {name: getattr(proof, name) for name in ("kind", "content", *_WHO, "created_at")}
    values |= {"definition": of.text, "phase": of.phase.number if of.phase_id != task.phase_id else None}
    return EvidenceRow.model_construct(**values)


def _events(project: Project, refs: dict[int, int]) -> list[EventRow]:
    """The history, oldest first; of one too long for a file the newest part."""
    newest = Event.objects.filter(project=project).select_related("agent", "phase").order_by("-pk")[:MOST_EVENTS]
    return [_event(event, refs) for event in newest.iterator(chunk_size=BATCH)][::-1]


def _event(event: Event, refs: dict[int, int]) -> EventRow:
    values: dict[str, Any] = {name: getattr(event, name) for name in ("kind", *_WHO, "tool", "at")}
    values |= {
        "agent": event.agent.name if event.agent else None,
        "task": refs.get(event.task_id or 0),
        "phase": event.phase.number if event.phase else None,
        "before": taken(event.before),
        "after": taken(event.after),
    }
    return EventRow.model_construct(**values)


def taken(fields: dict[str, Any]) -> dict[str, Any]:
    """Those fields of an Event that mean the same elsewhere."""
    return {name: value for name, value in fields.items() if not NOT_TAKEN.match(name)}


def _members(project: Project) -> list[MemberRow]:
    rows = Membership.objects.filter(project=project).select_related("user").order_by("pk")
    return [MemberRow(user=member.user.get_username(), role=Membership.Role(member.role)) for member in rows]
