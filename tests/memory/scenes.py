"""The things the memory room's tests start from."""

from typing import Any

from devflow.actors import Actor
from devflow.vectors import index
from memory.models import Memory
from memory.selectors import search
from memory.services import memories
from workflow.models import Project

CACHE = "Authentication tokens are cached for five minutes, which cut the database queries by 60 %."
RETRY = "The payment provider times out on Mondays: retry with backoff instead of failing the order."
NAMES = "Money is kept in cents as integers; the helper `toMinorUnits` converts it at the edges."


def saved(project: Project, by: Actor, content: str = CACHE, *, category: str = "pattern", **more: Any) -> Memory:
    return memories.save(project_id=project.pk, content=content, category=category, actor=by, **more)


def indexed() -> None:
    """Bring the vectors up to date, as the standing job does."""
    index.drain()
    assert index.lag("memory").pending == 0


def fresh(memory: Memory) -> Memory:
    return Memory.objects.get(pk=memory.pk)


def asked(project: Project, text: str, **more: Any) -> list[Memory]:
    """What a search answers, best first."""
    return [hit.memory for hit in search.search(project_ids=[project.pk], text=text, **more).found]
