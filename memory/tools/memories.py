"""The memory tools: save, find, change, delete."""

from typing import Any, Literal

from devflow.errors import invalid
from mcpbridge.tooling import Caller, Effect, Intent, JsonObject, Limit, LongText, ShortText, Tags, tool
from memory.selectors import memories as selectors
from memory.selectors import moments, search
from memory.services import memories
from memory.services.uses import uses
from memory.tools.results import (
    CategoryWord,
    MemoryChanged,
    MemoryDeleted,
    MemoryId,
    MemoryItem,
    MemoryList,
    MemorySaved,
    SimilarMemory,
    Version,
)


def _with_similar(caller: Caller, answer: MemorySaved) -> MemorySaved:
    """Add what says nearly the same. Comparing meanings takes longer than the write itself."""
    memory = selectors.by_id(project_ids=[caller.project.id], memory_id=answer.memory_id)
    near = [
        SimilarMemory(
            memory_id=hit.memory.public_id,
            score=hit.score,
            content=hit.memory.content[: search.EXCERPT],
            category=hit.memory.category,
        )
        for hit in search.similar(memory)
    ]
    return answer.model_copy(update={"similar": near})


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="memory", finish=_with_similar)
def save_memory(
    caller: Caller,
    *,
    content: LongText,
    category: CategoryWord,
    tags: Tags = [],  # noqa: B006  # a published default, never changed
    metadata: JsonObject | None = None,
    supersedes: MemoryId | None = None,
) -> MemorySaved:
    """Save important information for future reference: what the next agent, or you tomorrow, should know.

    Worth remembering: decisions and their reasons, patterns you found, problems and how they were solved, conventions
    of this project. One fact per memory, in words that can be searched for; long documents belong into the knowledge
    base. The answer lists memories that say nearly the same: if one of them is out of date, save yours with
    `supersedes`. Never save secrets.

    Args:
        content: What to remember, in full sentences that make sense without this conversation.
        category: decision, pattern, problem or convention. error_fix and warning count as problem, discovery and
            learning as pattern, codebase_knowledge as convention.
        tags: Words to find it by.
        metadata: Anything more. `evidence` (a test, a commit, a file and line) makes others trust it more,
            `source_url` says that the text comes from outside, `task_id` names the task where it is not your own.
        supersedes: The memory whose place this one takes; it stays readable and comes last in searches.
    """
    saved = memories.save(
        project_id=caller.project.id,
        content=content,
        category=category,
        tags=tags,
        metadata=metadata,
        supersedes=[supersedes] if supersedes else [],
        actor=caller.writer("save_memory"),
        trace_id=caller.trace_id,
    )
    return MemorySaved(memory_id=saved.public_id)


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="memory")
def query_memories(
    caller: Caller,
    *,
    query: LongText,
    category: CategoryWord | None = None,
    tags: Tags | None = None,
    top_k: Limit = 10,
    match: Literal["any", "all"] = "any",
    as_of: ShortText | None = None,
    include_superseded: bool = True,
) -> MemoryList:
    """Search saved memories, by meaning and by words. Do this before you decide anything that may be decided already.

    What was saved a moment ago is found at once. Superseded memories come last and name what took their place; what
    has expired is not given. `degraded` tells when only part of the search ran.

    Args:
        query: What to search for, in words or identifiers.
        category: Only this category.
        tags: Only memories with these tags.
        top_k: How many results, 1 to 200.
        match: Whether a memory needs any of the tags or all of them.
        as_of: Only what was known then: a date (to its end, UTC) or a moment, such as 2026-07-01 or
            2026-07-01T12:00:00Z.
        include_superseded: False leaves out what was superseded.
    """
    findings = search.search(
        project_ids=[caller.project.id],
        text=query,
        category=category or "",
        tags=tags or (),
        match=match,
        at=moments.read(as_of, field="as_of") if as_of else None,
        include_superseded=include_superseded,
        limit=top_k,
    )
    uses.note(hit.memory.pk for hit in findings.found)
    return MemoryList(
        memories=[MemoryItem(**item) for item in search.shown(findings.found)],
        degraded=bool(findings.reason),
        reason=findings.reason,
    )


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="memory")
def update_memory(
    caller: Caller,
    *,
    memory_id: MemoryId,
    content: LongText | None = None,
    category: CategoryWord | None = None,
    tags: Tags | None = None,
    metadata: JsonObject | None = None,
    supersedes: MemoryId | None = None,
    pinned: bool | None = None,
    version: Version | None = None,
) -> MemoryChanged:
    """Correct a memory; what is left out stays. When something new became true, save a new memory that supersedes it.

    Args:
        memory_id: The memory to change.
        content: Its new text.
        category: Its new category.
        tags: Its new tags, all of them.
        metadata: Its new metadata, all of it.
        supersedes: A memory whose place this one takes.
        pinned: True lifts it a little in every search.
        version: Change it only if it still has this version.
    """
    given: dict[str, Any] = {"content": content, "category": category, "tags": tags, "metadata": metadata}
    changes = {name: value for name, value in {**given, "pinned": pinned}.items() if value is not None}
    if not changes and supersedes is None:
        raise invalid("Say what to change.", content="or category, tags, metadata, supersedes, pinned")
    memory = memories.update(
        project_id=caller.project.id,
        memory_id=memory_id,
        actor=caller.writer("update_memory"),
        version=version,
        supersedes=[supersedes] if supersedes else [],
        **changes,
    )
    return MemoryChanged(memory_id=memory.public_id, version=memory.version)


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="memory", destructive=True)
def delete_memory(caller: Caller, *, memory_id: MemoryId) -> MemoryDeleted:
    """Delete a memory for good. For what was true once, save a new memory that supersedes it instead.

    Args:
        memory_id: The memory to delete.
    """
    caller.writer("delete_memory")
    memories.delete(project_id=caller.project.id, memory_id=memory_id)
    return MemoryDeleted(memory_id=memory_id)
