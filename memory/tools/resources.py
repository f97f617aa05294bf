"""What clients can read and watch: one memory with its whole text and its chain."""

from typing import Any

from devflow.errors import not_found
from mcpbridge.tooling import Caller, Result, resource
from memory.models import Memory
from memory.selectors import memories as selectors

LISTED = 50


class MemoryResource(Result):
    """A memory as `devflow://memory/{id}` shows it."""

    memory_id: str
    content: str
    category: str
    original_category: str
    tags: list[str]
    metadata: dict[str, Any]
    trust: str
    untrusted: bool
    created_by: str
    task_id: str | None
    created_at: str
    updated_at: str
    expires_at: str | None
    pinned: bool
    version: int
    uses: int
    superseded_by: list[str]
    supersedes: list[str]


def _memories(caller: Caller) -> list[tuple[str, str]]:
    rows = selectors.shelf(project_id=caller.project.id)[:LISTED]
    return [(row.public_id, row.title) for row in rows]


@resource(name="memory", uri_template="devflow://memory/{id}", listing=_memories, toolset="memory")
def memory(caller: Caller, value: str) -> str:
    """A memory in full: its text, who stands for it, what it took the place of and what took its place."""
    row = selectors.by_id(project_ids=[caller.project.id], memory_id=value)
    if row.is_expired():
        raise not_found("Memory", value, suggestion="It has expired; a person can bring it back on the memories page.")
    return _shown(row).model_dump_json()


def _shown(row: Memory) -> MemoryResource:
    return MemoryResource(
        memory_id=row.public_id,
        content=row.content,
        category=row.category,
        original_category=row.original_category,
        tags=row.tags,
        metadata=row.metadata,
        trust=row.trust,
        untrusted=row.is_untrusted,
        created_by=row.created_by,
        task_id=row.task or None,
        created_at=row.created_at.isoformat(),
        updated_at=row.updated_at.isoformat(),
        expires_at=row.expires_at.isoformat() if row.expires_at else None,
        pinned=row.pinned,
        version=row.version,
        uses=row.uses,
        superseded_by=[one.public_id for one in selectors.newer(row)],
        supersedes=[one.public_id for one in selectors.older(row)],
    )
