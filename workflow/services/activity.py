"""The Event log and the live notices that go with it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

from devflow.actors import Actor
from devflow.events import REJOINED, LiveEvent, bus
from workflow.models import Event, Phase, Project, Task

MOST_NOTICES = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of one task, to be logged."""

    kind: str
    task: Task
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)


def plain(value: Any) -> Any:
    """A field's value as JSON keeps it."""
    return value.isoformat() if isinstance(value, datetime) else value


def record(
    *,
    kind: str,
    project: Project,
    actor: Actor,
    task: Task | None = None,
    phase: Phase | None = None,
    subject_id: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    heard_by: Iterable[str] = (),
) -> Event:
    """Append one Event and tell listeners when the transaction commits.

    `subject_id` names what changed where it is neither a task nor a phase. `heard_by`: names of the only agents it
    concerns (nobody named: everybody).
    """
    event = Event.objects.create(
        project=project,
        kind=kind,
        actor_kind=actor.kind,
        actor_name=actor.name,
        agent_id=actor.agent_id,
        tool=actor.tool,
        task=task,
        phase=phase,
        before={name: plain(value) for name, value in (before or {}).items()},
        after={name: plain(value) for name, value in (after or {}).items()},
    )
    uris = [f"devflow://board/{project.slug}"] if task is not None or phase is not None else []
    if task is not None:
        uris.append(f"devflow://task/{task.public_id}")
    if phase is not None:
        uris.append(f"devflow://phase/{phase.number}")
    identity = task.public_id if task else f"phase-{phase.number}" if phase else subject_id
    for name in tuple(heard_by) or (None,):
        inbox = [f"devflow://inbox/{quote(name, safe='')}"] if name else []
        bus.publish(LiveEvent(kind, project.pk, identity, event.pk, name, (*uris, *inbox)))
    return event


def record_tasks(*, entries: Iterable[Entry], actor: Actor) -> None:
    """Append the Events of many tasks in one statement. Each task needs its `project` loaded.

    Past `MOST_NOTICES` the listeners of a project are told once to look at everything anew.
    """
    entries = list(entries)
    if not entries:
        return
    rows = Event.objects.bulk_create(
        Event(
            project_id=entry.task.project_id,
            kind=entry.kind,
            actor_kind=actor.kind,
            actor_name=actor.name,
            agent_id=actor.agent_id,
            tool=actor.tool,
            task=entry.task,
            before={name: plain(value) for name, value in entry.before.items()},
            after={name: plain(value) for name, value in entry.after.items()},
        )
        for entry in entries
    )
    if len(rows) > MOST_NOTICES:
        for project in {entry.task.project for entry in entries}:
            bus.publish(LiveEvent(REJOINED, project.pk, uris=(f"devflow://board/{project.slug}",)))
        return
    for entry, row in zip(entries, rows, strict=True):
        task = entry.task
        uris = (f"devflow://board/{task.project.slug}", f"devflow://task/{task.public_id}")
        bus.publish(LiveEvent(entry.kind, task.project_id, task.public_id, row.pk, None, uris))
