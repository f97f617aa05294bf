"""What happened, as people say it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workflow.models import Event, Priority

SAID = {
    "task.created": "created",
    "task.claimed": "claimed",
    "task.ready": "made ready",
    "task.waiting": "sent back to wait",
    "task.done": "finished",
    "task.submitted": "handed in for review",
    "task.approved": "approved",
    "task.rejected": "sent back with feedback",
    "task.failed": "gave up",
    "task.retried": "put back to work",
    "task.cancelled": "cancelled",
    "task.released": "released",
    "task.lease_expired": "took back after silence",
    "task.edited": "edited",
    "task.noted": "wrote a note on",
    "task.evidence": "showed evidence for",
    "task.blocked": "blocked",
    "task.unblocked": "let go on",
    "task.blocked_by": "made wait",
    "task.unblocked_from": "freed from a blocker",
    "task.reordered": "moved",
    "task.started": "started",
    "task.reserved": "reserved",
    "task.unreserved": "opened to everybody",
    "task.undone": "took back a move of",
    "message.sent": "sent a message",
    "agent.joined": "joined",
    "agent.retired": "retired an agent",
    "gate.set": "set a gate",
    "gate.cleared": "cleared a gate",
    "gate.consumed": "used up a gate",
    "project.created": "made the project",
    "project.changed": "changed the project",
    "project.member": "changed the members",
    "project.archived": "archived the project",
    "project.restored": "brought the project back",
    "project.imported": "imported the project",
    "project.tasks_imported": "imported tasks",
    "phase.created": "made a phase",
    "phase.changed": "changed a phase",
    "project.words": "changed the words of planning",
    "task.deleted": "deleted a task",
    "epic.created": "made the epic",
    "epic.changed": "changed the epic",
    "epic.moved": "moved the epic",
    "epic.commented": "commented on the epic",
    "epic.deleted": "deleted the epic",
    "story.created": "made the story",
    "story.changed": "changed the story",
    "story.moved": "moved the story",
    "story.commented": "commented on the story",
    "story.deleted": "deleted the story",
    "issue.created": "reported the issue",
    "issue.changed": "changed the issue",
    "issue.commented": "commented on the issue",
    "issue.deleted": "deleted the issue",
    "sprint.created": "made the sprint",
    "sprint.changed": "changed the sprint",
    "sprint.closed": "closed the sprint",
    "sprint.reopened": "opened the sprint again",
    "sprint.deleted": "deleted the sprint",
}
"""Each kind of event after its actor's name; the activity page offers them as filters."""

WORDS = ("feedback", "reason", "text", "manual_block")
EDITED = {"boosted": "urgency"}
UNTOLD = frozenset({"status", "version", "position", "metadata"})
MOST = 140


@dataclass(frozen=True, slots=True)
class Told:
    """An event with its words: `said` follows the actor's name, `detail` says the rest, `quote` somebody's own text."""

    event: Event
    said: str
    detail: str = ""
    quote: str = ""


def said(kind: str) -> str:
    return SAID.get(kind, kind.replace(".", " ").replace("_", " "))


def trail(events: Iterable[Event]) -> list[Told]:
    return [
        Told(event, said(event.kind), _detail(event.kind, event.before, event.after), _quote(event.after))
        for event in events
    ]


def _quote(after: Mapping[str, Any]) -> str:
    found = next((str(after[name]) for name in WORDS if after.get(name)), "")
    return found if len(found) <= MOST else f"{found[:MOST]}…"


def _detail(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if kind == "task.edited":
        return ", ".join(_edited(name, before, after) for name in after if name not in UNTOLD)
    if kind in ("task.blocked_by", "task.unblocked_from"):
        return "for " * (kind == "task.blocked_by") + ", ".join((after or before).get("blocked_by", []))
    if kind == "task.evidence":
        return "; ".join(after.get("definitions", []))
    if kind == "message.sent":
        return f"to {', '.join(after.get('to', []))}"
    if kind.startswith("gate."):
        return str(after.get("name", ""))
    if kind.startswith(("epic.", "story.", "issue.")):
        return _planned(kind, before, after)
    if kind.startswith("sprint."):
        return str(after.get("name", ""))
    if kind == "project.words":
        return f"{after.get('did', '')} the {after.get('what', '')} {after.get('name', '')}".strip()
    if kind == "task.undone":
        return f"it is {str(after.get('status', '')).replace('_', ' ')} again"
    return ""


def _planned(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    told = {**before, **after}
    named = f"#{told.get('ref', '')} {told.get('subject', '')}"
    if not kind.endswith(".changed"):
        return named
    moved = [f"{name} {before[name]} → {after.get(name)}" for name in before if name == "status"]
    return f"{named}: {', '.join([*moved, *(name.replace('_', ' ') for name in before if name != 'status')])}"


def _edited(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if name == "priority":
        return f"priority {Priority(before[name]).label} → {Priority(after[name]).label}"
    if name == "phase":
        return f"phase {before[name]} → {after[name]}"
    return EDITED.get(name, name.replace("_", " "))
