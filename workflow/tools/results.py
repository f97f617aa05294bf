"""What the tools answer: the published output schemas, and how rows become them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.tooling import MAX_TEXT, Result
from workflow.models import Message, Note, Phase, Task
from workflow.selectors.board import Board
from workflow.selectors.tasks import Card
from workflow.services.tasks import Proof

Prose = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")]
"""Text that says something: 1 to 100,000 characters, not only white space."""

LeaseToken = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
MessageId = Annotated[int, Field(ge=1, le=2**53 - 1)]
GateName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9][a-z0-9-]*$")]
TaskStatus = Literal["pending", "ready", "in_progress", "review", "done", "failed", "cancelled"]


def iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


class EvidenceItem(BaseModel):
    """One done definition ticked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    definition: Annotated[int, Field(ge=1, le=1000)] | Annotated[str, Field(min_length=1, max_length=500)] = Field(
        description="Which done definition: its number in get_phase_info (from 1), or its text."
    )
    content: Prose = Field(description="What shows it: the text, URL, commit id or test output.")
    kind: Literal["text", "url", "commit", "test_output"] = Field("text", description="What the content is.")

    def proof(self) -> Proof:
        return Proof(definition=self.definition, content=self.content, kind=self.kind)


class BlockerItem(Result):
    task_id: str
    status: str = Field(description="A failed or cancelled blocker needs somebody to decide.")
    subject: str


class TaskCreated(Result):
    task_id: str = Field(description="The new task's id, such as task-123.")
    status: str = Field(description="ready, or pending while something blocks it.")
    kanban_column: str
    subject: str
    blocked_by: list[str] = Field(description="The open tasks it waits for.")


class TaskUpdated(Result):
    task_id: str
    status: str = Field(description="The status it has now: review instead of done where a review is required.")
    completed_at: str | None = Field(None, description="When it was done.")
    unblocked_tasks: list[str] = Field(
        default_factory=list, description="Tasks that became ready because this one was their last open blocker."
    )
    version: int = Field(description="Grows with every change of the task.")
    lease_token: str | None = Field(None, description="Proves that the task is yours; send it with later updates.")
    lease_expires_at: str | None = Field(None, description="Every call you make moves this on.")


class NoteItem(Result):
    kind: str = Field(description="note, handover, or feedback of a review.")
    author: str
    note: str
    created_at: str


class MessageItem(Result):
    id: int = Field(description="Give it to ack_message.")
    sender: str = Field(alias="from", serialization_alias="from")
    kind: str = Field(description="message, guardian or system.")
    message: str
    task_id: str | None = None
    delivered_at: str
    read_at: str | None = None
    acknowledged_at: str | None = None

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


class TaskDetails(Result):
    """A task in full, as its holder needs it."""

    id: str
    description: str
    phase_id: int
    priority: str
    created_by: str
    created_at: str
    subject: str
    status: str
    tags: list[str]
    metadata: dict[str, Any]
    parent: str | None
    iteration: int = Field(description="Above 1: it came back; read the feedback in `notes`.")
    attempts: int = Field(description="How often a holder fell silent on it.")
    version: int
    resumed: bool = Field(description="True when it was yours already.")
    lease_token: str | None = Field(description="Send it with update_task_status and release_task.")
    lease_expires_at: str | None = Field(description="Every call you make moves this on; silence until then loses it.")
    done_definitions: list[str] = Field(description="What done means in this phase.")
    missing_evidence: list[str] = Field(description="Done definitions still without evidence, where it is required.")
    working_directory: str
    notes: list[NoteItem] = Field(description="The last 20 notes, newest last.")
    memories: list[dict[str, Any]] = Field(description="Up to three memories that may help.")
    messages: list[MessageItem] = Field(description="Your unread messages, at most 20; ack_message clears them.")


class TaskItem(Result):
    id: str
    description: str
    phase_id: int
    status: str
    priority: str
    assigned_agent_id: str | None
    created_at: str
    ref: int = Field(description="Its number inside the project.")
    subject: str
    tags: list[str]
    blocked: bool
    blockers: list[BlockerItem] = Field(description="What it waits for.")
    manual_block: str = Field(description="Why somebody holds it back, if so.")
    iteration: int
    attempts: int
    version: int


class TaskList(Result):
    tasks: list[TaskItem]
    total: int = Field(description="How many match, also beyond the limit.")
    truncated: bool = Field(description="True when there are more after these: ask again with a higher offset.")


class PhaseInfo(Result):
    id: int = Field(description="The phase's number in the project.")
    name: str
    description: str
    done_definitions: list[str]
    additional_notes: str
    working_directory: str
    lease_minutes: int = Field(description="Minutes a claim lives without a call from you.")
    wip_limit: int | None
    requires_review: bool
    requires_evidence: bool
    entry_rule: str = Field(description="What must be done before tasks here become ready; empty: nothing.")
    allowed_toolsets: list[str]


class BoardColumns(Result):
    backlog: list[TaskItem]
    ready: list[TaskItem]
    in_progress: list[TaskItem]
    review: list[TaskItem]
    done: list[TaskItem]


class BoardStats(Result):
    total_tasks: int
    done: int
    in_progress: int
    blocked: int
    failed: int
    columns: dict[str, int] = Field(description="Exact number of cards in each column.")
    wip_limit: dict[str, int | None]
    truncated: dict[str, bool] = Field(description="Columns that have more cards than are listed.")


class KanbanBoard(Result):
    columns: BoardColumns
    stats: BoardStats


def task_item(card: Card) -> TaskItem:
    return TaskItem(
        id=card.public_id,
        description=card.description,
        phase_id=card.phase,
        status=card.status,
        priority=card.priority_name,
        assigned_agent_id=card.agent,
        created_at=card.created_at.isoformat(),
        ref=card.ref,
        subject=card.subject,
        tags=card.tags,
        blocked=card.blocked,
        blockers=[
            BlockerItem(task_id=blocker.public_id, status=blocker.status, subject=blocker.subject)
            for blocker in card.blockers
        ],
        manual_block=card.manual_block,
        iteration=card.iteration,
        attempts=card.attempts,
        version=card.version,
    )


def kanban(board: Board) -> KanbanBoard:
    return KanbanBoard(
        columns=BoardColumns(**{name: [task_item(card) for card in cards] for name, cards in board.columns.items()}),
        stats=BoardStats(
            total_tasks=board.total,
            done=board.counts["done"],
            in_progress=board.counts["in_progress"],
            blocked=board.blocked,
            failed=board.failed,
            columns=dict(board.counts),
            wip_limit=dict(board.limits),
            truncated=dict(board.truncated),
        ),
    )


def phase_info(phase: Phase) -> PhaseInfo:
    entry = phase.entry_phase
    return PhaseInfo(
        id=phase.number,
        name=phase.name,
        description=phase.description,
        done_definitions=[item.text for item in phase.done_definitions.all()],
        additional_notes=phase.additional_notes,
        working_directory=phase.working_directory,
        lease_minutes=int(phase.lease.total_seconds() // 60),
        wip_limit=phase.wip_limit,
        requires_review=phase.requires_review or phase.project.require_review,
        requires_evidence=phase.requires_evidence,
        entry_rule=f"at least {phase.entry_done_tasks} done in phase {entry}" if entry else "",
        allowed_toolsets=phase.allowed_toolsets,
    )


def note_item(note: Note) -> NoteItem:
    return NoteItem(kind=note.kind, author=note.actor_name, note=note.body, created_at=note.created_at.isoformat())


def message_item(message: Message) -> MessageItem:
    return MessageItem(
        id=message.pk,
        sender=message.sender_name,
        kind=message.kind,
        message=message.body,
        task_id=f"task-{message.task_id}" if message.task_id else None,
        delivered_at=message.delivered_at.isoformat(),
        read_at=iso(message.read_at),
        acknowledged_at=iso(message.acknowledged_at),
    )


def task_details(
    task: Task,
    *,
    resumed: bool,
    definitions: Sequence[str],
    missing: Sequence[str],
    notes: Sequence[Note],
    messages: Sequence[Message],
) -> TaskDetails:
    return TaskDetails(
        id=task.public_id,
        description=task.description,
        phase_id=task.phase.number,
        priority=task.priority_name,
        created_by=task.created_by,
        created_at=task.created_at.isoformat(),
        subject=task.subject,
        status=task.status,
        tags=task.tags,
        metadata=task.metadata,
        parent=f"task-{task.parent_id}" if task.parent_id else None,
        iteration=task.iteration,
        attempts=task.attempts,
        version=task.version,
        resumed=resumed,
        lease_token=task.lease_token,
        lease_expires_at=iso(task.lease_expires_at),
        done_definitions=list(definitions),
        missing_evidence=list(missing),
        working_directory=task.phase.working_directory,
        notes=[note_item(note) for note in notes],
        memories=[],
        messages=[message_item(message) for message in messages],
    )
