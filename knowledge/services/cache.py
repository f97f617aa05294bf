"""Answers given before, as long as nothing they were made from has changed. Bounded in time and in bytes."""

import json
from collections.abc import Hashable
from functools import lru_cache
from threading import Lock
from typing import Any

from cachetools import TTLCache

from devflow import config
from knowledge.selectors.sources import KIND, revision

_lock = Lock()


@lru_cache(maxsize=1)
def _kept() -> "TTLCache[Hashable, tuple[int, dict[str, Any]]]":
    conf = config.current().mcp_gateway.cache
    return TTLCache(maxsize=conf.max_size_mb * 1024 * 1024, ttl=conf.ttl_seconds, getsizeof=lambda kept: kept[0])


def key(project_id: int, *asked: Hashable) -> Hashable:
    """Of a question and the state of everything its answer depends on (two short queries)."""
    from devflow.vectors.models import Collection

    live = Collection.objects.filter(kind=KIND, state=Collection.State.LIVE).values_list("name", flat=True).first()
    return (project_id, revision(project_id), live, *asked)


def get(wanted: Hashable) -> dict[str, Any] | None:
    if not config.current().mcp_gateway.cache.enabled:
        return None
    with _lock:
        found = _kept().get(wanted)
    return found[1] if found else None


def put(wanted: Hashable, answer: dict[str, Any]) -> None:
    """Keep an answer; one larger than the whole cache is not kept."""
    if not config.current().mcp_gateway.cache.enabled:
        return
    size = len(json.dumps(answer, default=str)) * 3  # objects take about three times their JSON
    with _lock:
        if size <= _kept().maxsize:
            _kept()[wanted] = (size, answer)


def forget() -> None:
    with _lock:
        _kept().clear()
    _kept.cache_clear()
