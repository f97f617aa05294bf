"""The answer of `search_knowledge`: what a search found, cited, and kept until something of the project changes."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from devflow.vectors.fusion import Leg
from devflow.vectors.index import Lag
from knowledge.models import CodeExample
from knowledge.services import cache, citations, search
from knowledge.services.search import WEIGHTS, Filters, Found, Hit, Mode


def answer(
    *,
    project_id: int,
    query: str,
    mode: Mode = "hybrid",
    top_k: int = 10,
    filters: Mapping[str, Any] | None = None,
    include_code_examples: bool = False,
    explain: bool = False,
) -> dict[str, Any]:
    """The answer of `search_knowledge`, kept until something of the project changes. Raises `invalid_input`."""
    started = time.perf_counter()
    checked = Filters.of(filters)
    key = cache.key(project_id, query, mode, top_k, checked, include_code_examples, explain)
    made = cache.get(key)
    if made is None:
        found = search.find(project_id=project_id, query=query, mode=mode, top_k=top_k, filters=checked)
        made = _answer(found, mode, include_code_examples, explain)
        if not found.reason and not found.lag.pending:
            cache.put(key, made)
    return {**made, "search_time_ms": round((time.perf_counter() - started) * 1000)}


def _answer(found: Found, mode: Mode, include_code_examples: bool, explain: bool) -> dict[str, Any]:
    code = search.examples_in([hit.chunk for hit in found.hits]) if include_code_examples else {}
    return {
        "results": [
            _result(hit, code.get(hit.chunk.pk, ()) if include_code_examples else None, explain) for hit in found.hits
        ],
        "total_results": len(found.hits),
        "mode": mode,
        "degraded": bool(found.reason),
        "reason": found.reason,
        "reranker": found.reranker or None,
        "index_lag": lag_of(found.lag),
    }


def lag_of(lag: Lag) -> dict[str, int]:
    return {"pending_chunks": lag.pending, "oldest_seconds": round(lag.seconds)}


def _result(hit: Hit, code: Sequence[CodeExample] | None, explain: bool) -> dict[str, Any]:
    shown = {
        "content": hit.chunk.text,
        "source": hit.chunk.source.title,
        "url": citations.url(hit.chunk),
        "score": round(min(hit.score, 1.0), 4),
        "metadata": citations.metadata(hit.chunk),
    }
    if explain:
        shown["explain"] = _explained(hit)
    if code is not None:
        shown["code_examples"] = [citations.example(one) for one in code]
    return shown


def _explained(hit: Hit) -> dict[str, Any]:
    def leg(one: Leg) -> dict[str, float]:
        return {"score": round(one.score, 4), "share": round(one.share, 4)}

    return {
        "legs": {name: leg(one) | {"weight": WEIGHTS[name]} for name, one in hit.fused.legs.items()},
        "fused": round(hit.fused.score, 4),
        **{name: round(value, 4) for name, value in hit.factors.items()},
    }
