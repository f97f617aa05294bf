"""Code examples for a topic: the examples of the passages a search finds."""

from collections.abc import Sequence

from devflow.vectors.terms import symbols_in
from knowledge.indexing.parsers.languages import canonical
from knowledge.models import CodeExample
from knowledge.services import search
from knowledge.services.search import Filters, Found

__all__ = ["canonical", "find"]

PASSAGES = 40


def find(*, project_id: int, topic: str, language: str = "", top_k: int = 5) -> tuple[Sequence[CodeExample], Found]:
    """Examples best first, each once, and the search they come from. Raises `invalid_input` for an empty topic.

    An example stands as high as its passage; naming an identifier of the topic lifts it.
    """
    filters = Filters(has_code=True, language=language)
    found = search.find(project_id=project_id, query=topic, top_k=max(PASSAGES, 2 * top_k), filters=filters)
    inside = search.examples_in([hit.chunk for hit in found.hits])
    asked = {symbol.casefold() for symbol in symbols_in(topic)}
    best: dict[str, tuple[float, CodeExample]] = {}
    for hit in found.hits:
        for example in inside.get(hit.chunk.pk, ()):
            if language and example.language != language:
                continue
            names = {name.casefold() for name in example.symbols}
            score = hit.score + 0.2 * bool(asked & names) - 0.1 * (example.is_valid is False)
            example.source, example.document = hit.chunk.source, hit.chunk.document
            if example.hash not in best or best[example.hash][0] < score:
                best[example.hash] = (score, example)
    ranked = sorted(best.values(), key=lambda pair: (-pair[0], pair[1].pk))
    return [example for _, example in ranked[:top_k]], found
