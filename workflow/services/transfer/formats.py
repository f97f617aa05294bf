"""The project file, version 1: its models. Tasks are named by their `ref`, phases by their number, agents by name."""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from devflow.actors import MAX_SESSION
from workflow.models import Evidence, Membership, Note, Status
from workflow.services.phases import PhaseFile

FORMAT = "devflow.project"
VERSION = 1

MOST_TASKS = 10_000
"""Tasks one file brings: they are written in one transaction, and SQLite has one writer who may not keep it long."""
MOST_EVENTS = 100_000
_INTEGER = 2**31 - 1
_BIG = 2**62
_OLDEST = datetime(2000, 1, 1, tzinfo=UTC)

NOT_TAKEN = re.compile(r"(?:.*_id|version|part_of|undoes|note)$")
"""Keys of an Event's fields that name rows of the place it happened in, or let a move be taken back there."""


def _plausible(at: datetime) -> datetime:
    if not _OLDEST <= at <= datetime.now(UTC) + timedelta(days=1):
        raise ValueError("the time is before the year 2000 or in the future")
    return at.astimezone(UTC)


def _leaves(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            waiting += [*here, *here.values()]
        elif isinstance(here, list):
            waiting += here
        else:
            yield here


def _storable(value: Any) -> Any:
    """PostgreSQL's JSON takes neither NUL nor what is no number."""
    for leaf in _leaves(value):
        if (isinstance(leaf, str) and "\x00" in leaf) or (isinstance(leaf, float) and not math.isfinite(leaf)):
            raise ValueError("it holds a NUL character or a number that is none")
    return value


def _logged(fields: dict[str, Any]) -> dict[str, Any]:
    """The charts read the statuses of the history."""
    if fields.get("status", Status.PENDING) not in Status.values:
        raise ValueError(f"its status is none of {', '.join(Status.values)}")
    return fields


_CLEAN = r"^[^\x00]*$"
Text = Annotated[str, Field(max_length=1_000_000, pattern=_CLEAN)]
Said = Annotated[str, Field(min_length=1, max_length=1_000_000, pattern=_CLEAN)]
Name = Annotated[str, Field(min_length=1, max_length=150, pattern=_CLEAN)]
AgentName = Annotated[str, Field(min_length=1, max_length=120, pattern=_CLEAN)]
Line = Annotated[str, Field(min_length=1, max_length=500, pattern=_CLEAN)]
Tag = Annotated[str, Field(min_length=1, max_length=255, pattern=_CLEAN)]
Ref = Annotated[int, Field(ge=1, le=_INTEGER - 1)]
Number = Annotated[int, Field(ge=1, le=10_000)]
Moment = Annotated[AwareDatetime, AfterValidator(_plausible)]
Fields = Annotated[dict[str, JsonValue], AfterValidator(_storable)]
Logged = Annotated[Fields, AfterValidator(_logged)]
Actor = Literal["agent", "person", "system"]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ProjectRow(Part):
    slug: Annotated[str, Field(min_length=1, max_length=50, pattern=r"^[-a-zA-Z0-9_]+$")]
    name: Annotated[str, Field(min_length=1, max_length=100, pattern=_CLEAN)]
    description: Text = ""
    require_review: bool = False
    gates_enabled: bool = False
    column_limits: dict[str, Annotated[int, Field(ge=1, le=_INTEGER)]] = {}
    created_at: Moment | None = None


class PhaseRow(PhaseFile):
    """What a phase's YAML file holds, and its number."""

    number: Number
    name: Annotated[str, Field(min_length=1, max_length=100, pattern=_CLEAN)]
    done_definitions: Annotated[list[Line], Field(max_length=100)] = []


class AgentRow(Part):
    """One who worked in the project. It is brought in retired and comes back with its first call."""

    name: AgentName
    client: Annotated[str, Field(max_length=120, pattern=_CLEAN)] = ""
    started_at: Moment | None = None
    last_seen: Moment | None = None


class NoteRow(Part):
    body: Said
    kind: Note.Kind = Note.Kind.NOTE
    actor_kind: Actor
    actor_name: Name
    created_at: Moment | None = None


class EvidenceRow(Part):
    """`definition` is its text, `phase` the number of the phase it is of, where that is not the task's."""

    definition: Line
    phase: Number | None = None
    kind: Evidence.Kind = Evidence.Kind.TEXT
    content: Said
    actor_kind: Actor
    actor_name: Name
    created_at: Moment | None = None


class TaskRow(Part):
    ref: Ref
    phase: Number
    subject: Annotated[str, Field(min_length=1, max_length=255, pattern=_CLEAN)]
    description: Said
    status: Status = Status.PENDING
    priority: Literal["high", "medium", "low"] = "medium"
    boosted: bool = False
    tags: Annotated[list[Tag], Field(max_length=200)] = []
    metadata: Fields = {}
    position: Annotated[int, Field(ge=-_BIG, le=_BIG)] | None = None
    parent: Ref | None = None
    blocked_by: Annotated[list[Ref], Field(max_length=200)] = []
    manual_block: Annotated[str, Field(max_length=500, pattern=_CLEAN)] = ""
    created_by: Name | None = None
    assigned_agent: AgentName | None = None
    result: Text = ""
    attempts: Annotated[int, Field(ge=0, le=_INTEGER)] = 0
    iteration: Annotated[int, Field(ge=1, le=_INTEGER)] = 1
    created_at: Moment | None = None
    updated_at: Moment | None = None
    ready_since: Moment | None = None
    started_at: Moment | None = None
    completed_at: Moment | None = None
    notes: list[NoteRow] = []
    evidence: list[EvidenceRow] = []


class EventRow(Part):
    """One line of the history. It is kept for reading: no move among it can be taken back where it was brought to."""

    kind: Annotated[str, Field(max_length=40, pattern=r"^[a-z][a-z_]*\.[a-z][a-z_]*$")]
    actor_kind: Actor
    actor_name: Name
    tool: Annotated[str, Field(max_length=128, pattern=_CLEAN)] = ""
    agent: AgentName | None = None
    task: Ref | None = None
    phase: Number | None = None
    before: Logged = {}
    after: Logged = {}
    at: Moment


class MemberRow(Part):
    user: Name
    role: Membership.Role


class ProjectFile(Part):
    """A whole project. `events` and `members` are there only where they were asked for."""

    format: Literal["devflow.project"] = "devflow.project"
    version: Literal[1] = 1
    exported_at: Moment | None = None
    exported_by: Annotated[str, Field(max_length=MAX_SESSION)] = ""
    project: ProjectRow
    phases: Annotated[list[PhaseRow], Field(max_length=10_000)] = []
    agents: list[AgentRow] = []
    tasks: Annotated[list[TaskRow], Field(max_length=MOST_TASKS)] = []
    events: Annotated[list[EventRow], Field(max_length=MOST_EVENTS)] = []
    members: list[MemberRow] = []
