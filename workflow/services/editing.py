"""A person's edit of a whole task: what the form holds, who changed what meanwhile, and writing it in one piece."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from django.db import transaction

from devflow.actors import Actor
from devflow.digits import whole
from devflow.errors import invalid
from workflow.models import Task, UserStory
from workflow.services import tasks
from workflow.services.agile import work
from workflow.services.rows import check_version, locked_task


@dataclass(frozen=True, slots=True)
class Draft:
    """What a person can say of a task, as its form says it: names and numbers, lines ended by a newline alone."""

    subject: str
    description: str
    priority: str
    tags: tuple[str, ...]
    phase: int
    boosted: bool
    manual_block: str
    reserved_for: str
    story: str = ""
    """The story it is part of, by its number in the project: `#12`."""

    @classmethod
    def of(cls, task: Task) -> "Draft":
        return cls(
            subject=task.subject,
            description=task.description.replace("\r\n", "\n").strip(),
            priority=task.priority_name,
            tags=tuple(task.tags),
            phase=task.phase.number,
            boosted=task.boosted,
            manual_block=task.manual_block,
            reserved_for=task.reserved_for.name if task.reserved_for else "",
            story=f"#{task.user_story.ref}" if task.user_story else "",
        )

    def marks(self) -> dict[str, str]:
        """A short hash of each field: enough to tell later whether it is still the same."""
        return {name: _mark(value) for name, value in asdict(self).items()}


def _mark(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Clash:
    """A field somebody else changed since the edit began. `is_both`: and so did the one who edits."""

    field: str
    theirs: Any
    mine: Any
    is_both: bool


def compare(*, marks: Mapping[str, str], theirs: Draft, mine: Draft) -> tuple[Draft, list[Clash]]:
    """What both sides made of a draft known by its `marks`: the two merged, and where they differ.

    Merged means: their value where only they changed a field, else mine.
    """
    merged, clashes = mine, []
    if _body(mine, marks) == _body(theirs, marks):  # at most the title at its head differs, which follows the subject
        merged = mine = replace(mine, description=theirs.description)
    for field in fields(Draft):
        their_value, my_value = getattr(theirs, field.name), getattr(mine, field.name)
        was = marks.get(field.name)
        if their_value == my_value or _mark(their_value) == was:
            continue
        is_both = _mark(my_value) != was
        clashes.append(Clash(field.name, their_value, my_value, is_both))
        if not is_both:
            merged = replace(merged, **{field.name: their_value})
    return merged, clashes


def _body(draft: Draft, marks: Mapping[str, str]) -> str:
    """The description without a first line that only repeats the subject, as it is or as it was."""
    head, _, rest = draft.description.partition("\n")
    return rest.strip() if head == draft.subject or _mark(head) == marks.get("subject") else draft.description


def _story(project_id: int, said: str) -> int | None:
    """The id of the story called `#12`, or None for an empty text. Raises `invalid_input`."""
    if not said:
        return None
    number = whole(said.removeprefix("#"), digits=9)
    rows = UserStory.objects.filter(project=project_id, ref=number or 0)
    found = rows.values_list("pk", flat=True).first()
    if found is None:
        raise invalid("Name a story of this project by its number, such as #12.", story=said[:80])
    return found


@transaction.atomic
def save(*, project_id: int, task_id: str | int, draft: Draft, version: int, actor: Actor) -> Task:
    """Make a task what `draft` says; what it already says stays untouched and unlogged.

    A new subject also replaces the first line of a description that began with the old one.

    Raises `conflict` where the task changed since `version`, and what `tasks.edit`, `hold_back` and `reserve` raise.
    """
    task = locked_task(project_id=project_id, task_id=task_id)
    check_version(task, version)
    now = Draft.of(task)
    who: dict[str, Any] = {"project_id": project_id, "task_id": task.pk, "actor": actor}
    changed = {field.name for field in fields(Draft) if getattr(draft, field.name) != getattr(now, field.name)}
    said: dict[str, Any] = {
        name: getattr(draft, name) for name in changed - {"phase", "manual_block", "reserved_for", "story"}
    }
    if "subject" in changed and "description" not in changed and now.description.startswith(now.subject):
        said["description"] = draft.subject + now.description[len(now.subject) :]
    if "phase" in changed:
        said["phase_number"] = draft.phase
    if said:
        task = tasks.edit(**who, **said)
    if "story" in changed:
        story_id = _story(project_id, draft.story)
        task = work.update(project=task.project, pk=task.pk, actor=actor, fields={"user_story_id": story_id})
    if "reserved_for" in changed:
        task = tasks.reserve(**who, agent=draft.reserved_for)
    if "manual_block" in changed:
        task = tasks.hold_back(**who, reason=draft.manual_block)
    return task
