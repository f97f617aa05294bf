"""Saving, editing, superseding, merging and deleting memories.

Nothing here is merged by itself: the same text saved twice is two memories, and the answer to the second names the
first. Trust follows from who wrote it: a person; an agent that gives `metadata.evidence`; an agent. Text that says
where outside it comes from (`metadata.source_url`, or `metadata.untrusted`) is from outside whoever saved it, and stays
so until a person edits it.
"""

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict, Unpack

from django.db import transaction
from django.utils import timezone

from devflow import ports
from devflow.actors import Actor
from devflow.digits import whole
from devflow.errors import conflict, forbidden, invalid, not_found
from devflow.events import LiveEvent, bus
from devflow.vectors import cache, index
from memory.models import MAX_CONTENT, MAX_TAG, MAX_TAGS, Memory, Trust
from memory.selectors.memories import category_of, newer, number_of

MAX_METADATA = 100_000
MAX_MERGED = 20

_EDITED = (
    *("content", "hash", "keywords", "category", "original_category", "tags", "metadata", "trust", "pinned"),
    *("expires_at", "version", "updated_at"),
)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a memory comes from, for one that is brought in from an export."""

    created_by: str = ""
    trust: str = ""
    task: str = ""
    original_category: str = ""
    point: uuid.UUID | None = None
    created_at: datetime | None = None


class Changes(TypedDict, total=False):
    """What an edit may carry; what is absent stays. `expires_at` None: never."""

    content: str
    category: str
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    pinned: bool
    expires_at: datetime | None


@dataclass(slots=True)
class _Touched:
    """Rows whose points and listeners must follow a change."""

    kinds: dict[str, list[Memory]] = field(default_factory=dict)

    def add(self, kind: str, *rows: Memory) -> None:
        self.kinds.setdefault(kind, []).extend(rows)

    def tell(self) -> None:
        index.touch("memory", [row.point for rows in self.kinds.values() for row in rows])
        for kind, rows in self.kinds.items():
            for row in rows:
                bus.publish(LiveEvent(f"memory.{kind}", row.project_id, row.public_id, uris=(row.uri,)))


@transaction.atomic
def save(
    *,
    project_id: int,
    content: str,
    category: str,
    actor: Actor,
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    supersedes: Sequence[str | int] = (),
    pinned: bool = False,
    expires_at: datetime | None = None,
    trace_id: str = "",
    known: Provenance | None = None,
) -> Memory:
    """Remember something, in the place of `supersedes` where given.

    Raises `invalid_input` for an empty or too long content, an unknown category or bad tags, `not_found` for unknown
    memories to supersede, `conflict` for those that were superseded before.
    """
    given = checked_metadata(metadata or {})
    known = known or Provenance()
    now = timezone.now()
    memory = Memory(
        project_id=project_id,
        point=known.point or uuid.uuid4(),
        content=checked_content(content),
        category=category_of(category),
        original_category=known.original_category or category,
        tags=checked_tags(tags),
        metadata=given,
        trust=known.trust or _trust(actor, given),
        created_by=known.created_by or actor.name,
        agent_id=actor.agent_id or None,
        task=known.task or _task_of(actor, given),
        tool=actor.tool,
        trace_id=trace_id,
        pinned=pinned,
        expires_at=expires_at,
        created_at=known.created_at or now,
        updated_at=now,
    )
    memory.derive()
    memory.save(force_insert=True)
    touched = _Touched()
    touched.add("saved", memory)
    touched.add("updated", *_supersede(memory, supersedes))
    touched.tell()
    return memory


@transaction.atomic
def update(
    *,
    project_id: int,
    memory_id: str | int,
    actor: Actor,
    version: int | None = None,
    supersedes: Sequence[str | int] = (),
    **changes: Unpack[Changes],
) -> Memory:
    """Change what is given. Raises `conflict` when `version` is not the memory's any more, else as `save` does."""
    memory = _locked(project_id=project_id, memory_ids=[memory_id])[0]
    if version is not None and version != memory.version:
        raise conflict(
            f"{memory.public_id} changed meanwhile (version {memory.version}, yours is {version}).",
            suggestion="Read it again, then repeat your change on what it is now.",
            version=memory.version,
            yours=version,
        )
    said = memory.content, memory.metadata
    if "content" in changes:
        memory.content = checked_content(changes["content"])
    if (word := changes.get("category", memory.category)) != memory.category:
        memory.category, memory.original_category = category_of(word), word
    if "tags" in changes:
        memory.tags = checked_tags(changes["tags"])
    if "metadata" in changes:
        memory.metadata = checked_metadata(changes["metadata"])
    if (memory.content, memory.metadata) != said:
        memory.trust = _trust(actor, memory.metadata, before=memory.trust)
    memory.pinned = changes.get("pinned", memory.pinned)
    memory.expires_at = changes.get("expires_at", memory.expires_at)
    memory.derive()
    memory.version += 1
    memory.updated_at = timezone.now()
    memory.save(update_fields=_EDITED)
    touched = _Touched()
    touched.add("updated", memory, *_supersede(memory, supersedes))
    touched.tell()
    return memory


@transaction.atomic
def vouch(*, project_id: int, memory_id: str | int, actor: Actor) -> Memory:
    """A person stands for what a memory says. Raises `forbidden` for anybody else."""
    if actor.kind != "person":
        raise forbidden("Only a person can stand for a memory.", suggestion="Give metadata.evidence instead.")
    memory = _locked(project_id=project_id, memory_ids=[memory_id])[0]
    memory.trust = Trust.PERSON
    memory.version += 1
    memory.updated_at = timezone.now()
    memory.save(update_fields=["trust", "version", "updated_at"])
    touched = _Touched()
    touched.add("updated", memory)
    touched.tell()
    return memory


@transaction.atomic
def merge(
    *,
    project_id: int,
    memory_ids: Sequence[str | int],
    content: str,
    category: str,
    actor: Actor,
    tags: Sequence[str] = (),
) -> Memory:
    """Put one text in the place of two or more memories, which stay readable as superseded by it.

    It is pinned where one of them was. Raises as `save` does.
    """
    numbers = {number_of(memory_id) for memory_id in memory_ids}
    if not 2 <= len(numbers) <= MAX_MERGED:
        raise invalid(f"Choose 2 to {MAX_MERGED} memories to merge.", memory_ids=f"{len(numbers)} given")
    pinned = Memory.objects.filter(project=project_id, pk__in=numbers, pinned=True).exists()
    return save(
        project_id=project_id,
        content=content,
        category=category,
        tags=tags,
        supersedes=sorted(numbers),
        pinned=pinned,
        actor=actor,
    )


@transaction.atomic
def delete(*, project_id: int, memory_id: str | int) -> None:
    """Delete a memory for good: its row and, soon after, its vector. What it superseded passes to its successor,
    or is in force again. Raises `not_found`."""
    memory = _locked(project_id=project_id, memory_ids=[memory_id])[0]
    before = list(Memory.objects.select_for_update().filter(superseded_by=memory).order_by("pk"))
    for row in before:
        row.superseded_by_id = memory.superseded_by_id
        row.superseded_at = row.superseded_at if memory.superseded_by_id else None
        _save_successor(row)
    touched = _Touched()
    touched.add("updated", *before)
    touched.add("deleted", Memory(pk=memory.pk, project_id=project_id, point=memory.point))
    memory.delete()
    cache.forget([memory.content])
    touched.tell()


def _locked(*, project_id: int, memory_ids: Collection[str | int]) -> list[Memory]:
    numbers = {number_of(memory_id): memory_id for memory_id in memory_ids}
    rows = list(Memory.objects.select_for_update().filter(project=project_id, pk__in=numbers).order_by("pk"))
    for number in numbers.keys() - {row.pk for row in rows}:
        raise not_found("Memory", numbers[number], suggestion="query_memories finds the memories of this project.")
    return rows


def _supersede(memory: Memory, memory_ids: Sequence[str | int]) -> list[Memory]:
    """Put `memory` in the place of these. Raises `invalid_input` for itself and for its own successors."""
    rows = _locked(project_id=memory.project_id, memory_ids=memory_ids) if memory_ids else []
    after = {memory.pk, *(row.pk for row in newer(memory))} if rows else set()
    for row in rows:
        if row.pk == memory.pk:
            raise invalid("A memory cannot supersede itself.", supersedes="an older memory")
        if row.pk in after:
            raise invalid(
                f"{row.public_id} is newer: it took the place of {memory.public_id}.", supersedes="an older memory"
            )
        if row.superseded_by_id == memory.pk:
            continue
        if row.superseded_by_id is not None:
            raise conflict(
                f"memory-{row.superseded_by_id} took the place of {row.public_id} already.",
                suggestion=f"Supersede memory-{row.superseded_by_id} instead.",
                superseded_by=f"memory-{row.superseded_by_id}",
            )
        row.superseded_by_id, row.superseded_at = memory.pk, timezone.now()
        _save_successor(row)
    return rows


def _save_successor(row: Memory) -> None:
    row.version += 1
    row.updated_at = timezone.now()
    row.save(update_fields=["superseded_by", "superseded_at", "version", "updated_at"])


def _trust(actor: Actor, metadata: Mapping[str, Any], *, before: str = "") -> str:
    if actor.kind == "person" and before:
        return Trust.PERSON
    if before == Trust.OUTSIDE or metadata.get("source_url") or metadata.get("untrusted"):
        return Trust.OUTSIDE
    if actor.kind == "person":
        return Trust.PERSON
    return Trust.EVIDENCE if metadata.get("evidence") else Trust.AGENT


def _task_of(actor: Actor, metadata: Mapping[str, Any]) -> str:
    """The task named in `metadata.task_id`, else the one the agent holds."""
    named = str(metadata.get("task_id", "")).removeprefix("task-")
    if whole(named, digits=16) is not None:
        return f"task-{named}"
    return ports.directory().held_task(actor.agent_id, session=actor.session) if actor.agent_id else ""


def _storable(text: str) -> bool:
    """Whether every database keeps it: no NUL, no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def checked_content(content: str) -> str:
    """The content as it may be stored. Raises `invalid_input`."""
    if not content.strip():
        raise invalid("Say what is to be remembered.", content="is empty")
    if len(content) > MAX_CONTENT:
        raise invalid(f"A memory has at most {MAX_CONTENT:,} characters.", content=f"{len(content):,} given")
    if not _storable(content):
        raise invalid("NUL and lone surrogates are not text.", content="holds NUL or a lone surrogate")
    return content


def checked_tags(tags: Sequence[str]) -> list[str]:
    """Tags without blanks and repetitions. Raises `invalid_input`."""
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise invalid("Tags are a list of words.", tags="is no list of words")
    clean = list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    if len(clean) > MAX_TAGS:
        raise invalid(f"A memory has at most {MAX_TAGS} tags.", tags=f"{len(clean)} given")
    for tag in clean:
        if len(tag) > MAX_TAG or "," in tag or not _storable(tag):
            raise invalid(f"A tag has 1 to {MAX_TAG} characters and no comma.", tags=f"{tag[:40]!a} is not one")
    return clean


def checked_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as it may be stored. Raises `invalid_input`."""
    try:
        given = dict(metadata)
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        raise invalid("The metadata must be a JSON object.", metadata="is not a JSON object") from None
    if len(text) > MAX_METADATA or not _storable(text) or "\\u0000" in text:
        raise invalid(
            f"The metadata has at most {MAX_METADATA:,} characters as JSON, without NUL.", metadata="is refused"
        )
    return given
