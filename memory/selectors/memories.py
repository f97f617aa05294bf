"""Memories by id and by filter, and what took the place of what."""

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Literal

from django.db.models import Q
from django.utils import timezone

from devflow.errors import invalid, not_found
from memory.models import ALSO, KNOWN_CATEGORIES, Memory, MemoryQuerySet

MAX_CHAIN = 50
Match = Literal["any", "all"]
Shown = Literal["current", "superseded", "expired", "all"]

_ID = re.compile(r"^(?:memory-)?([1-9][0-9]{0,15})$", re.ASCII)


def number_of(memory_id: str | int) -> int:
    """The primary key in `memory-12`, `"12"` or `12`; raises `not_found` for anything else."""
    match = _ID.fullmatch(str(memory_id))
    if match is None:
        raise not_found("Memory", memory_id, suggestion="A memory id looks like memory-12; query_memories gives them.")
    return int(match[1])


def category_of(word: str) -> str:
    """The category a word stands for. Raises `invalid_input` listing the known ones."""
    if word not in KNOWN_CATEGORIES:
        known = ", ".join(KNOWN_CATEGORIES)
        raise invalid(f"There is no category {word!r}. Use one of: {known}.", category=f"one of {known}")
    return str(ALSO.get(word, word))


def by_id(*, project_ids: Collection[int], memory_id: str | int) -> Memory:
    """Raises `not_found` for an unknown id and for another project's."""
    memory = Memory.objects.filter(project__in=project_ids, pk=number_of(memory_id)).first()
    if memory is None:
        raise not_found("Memory", memory_id, suggestion="query_memories finds the memories of this project.")
    return memory


def find(
    *,
    project_ids: Collection[int],
    category: str = "",
    tags: Sequence[str] = (),
    match: Match = "any",
    at: datetime | None = None,
) -> MemoryQuerySet:
    """Memories of these projects that had been saved at `at` (now) and not expired. `match`: any or all of the tags.

    Raises `invalid_input` for an unknown category.
    """
    rows: MemoryQuerySet = Memory.objects.alive(at or timezone.now()).filter(project__in=project_ids)
    if at is not None:
        rows = rows.filter(created_at__lte=at)
    if category:
        rows = rows.filter(category=category_of(category))
    if tags:
        carried = [Q(tags__has=tag) for tag in tags]
        wanted = carried[0]
        for one in carried[1:]:
            wanted = wanted | one if match == "any" else wanted & one
        rows = rows.filter(wanted)
    return rows


def shelf(*, project_id: int, shown: Shown = "current", category: str = "", tag: str = "") -> MemoryQuerySet:
    """Newest first: those in force, those whose place others took, the expired, or all."""
    rows = Memory.objects.filter(project=project_id).select_related("superseded_by")
    if shown == "expired":
        rows = rows.filter(expires_at__lte=timezone.now())
    elif shown != "all":
        rows = rows.alive(timezone.now()).filter(superseded_by__isnull=shown == "current")
    if category:
        rows = rows.filter(category=category_of(category))
    if tag:
        rows = rows.filter(tags__has=tag)
    return rows.order_by("-pk")


def newer(memory: Memory) -> list[Memory]:
    """What took its place, what took the place of that, and so on, at most `MAX_CHAIN`."""
    chain: list[Memory] = []
    step = memory
    while step.superseded_by_id is not None and len(chain) < MAX_CHAIN:
        step = Memory.objects.get(pk=step.superseded_by_id)
        chain.append(step)
    return chain


def older(memory: Memory) -> list[Memory]:
    """What it took the place of, newest first, and what these had taken the place of; at most `MAX_CHAIN`."""
    chain: list[Memory] = []
    layer = [memory.pk]
    while layer and len(chain) < MAX_CHAIN:
        found = list(Memory.objects.filter(superseded_by__in=layer).order_by("-pk")[: MAX_CHAIN - len(chain)])
        chain += found
        layer = [row.pk for row in found]
    return chain
