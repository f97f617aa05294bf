"""Words and identifiers of a text as sparse vectors: BM25 over words, and exact symbols kept whole."""

import re
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING

from devflow.vectors.base import Sparse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qdrant_edge import Bm25

# Words of an average chunk after stop words: BM25's length normalisation compares with it.
AVERAGE_WORDS = 90
MAX_SYMBOLS = 200

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CAMEL = re.compile(r"\b[A-Za-z][a-z0-9]*(?:[A-Z]+[a-z0-9]*)+\b")
_SYMBOL = re.compile(
    r"""
      `([^`\n]{2,80})`                               # in backticks
    | \b([A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+)  # dotted
    | \b([A-Za-z_]\w*)(?=\(\))                       # called
    | \b([A-Za-z]\w*_\w+|_\w+)\b                     # snake_case
    | \b([A-Za-z][a-z0-9]+(?:[A-Z][a-z0-9]*)+)\b     # camelCase, CamelCase
    | \b([A-Z][A-Z0-9]{2,})\b                        # CONSTANT
    | (?<!\S)(--?[a-z][\w-]+)                        # --option
    """,
    re.VERBOSE,
)
_SEPARATOR = re.compile(r"\.|::|->")


def split_identifiers(text: str) -> str:
    """The parts of camelCase words in `text`, so that `getUserById` is found by "get user by id"."""
    return " ".join(_HUMP.sub(" ", word) for word in dict.fromkeys(_CAMEL.findall(text)))


def symbols_in(text: str) -> tuple[str, ...]:
    """What looks like an identifier in prose or in a question: backticked, dotted, called, snake_case, camelCase."""
    found: dict[str, None] = {}
    for match in _SYMBOL.finditer(text):
        symbol = next(group for group in match.groups() if group).strip().removesuffix("()")
        if symbol and " " not in symbol:
            found[symbol] = None
    return tuple(found)[:MAX_SYMBOLS]


@lru_cache(maxsize=1)
def _model() -> "Bm25":
    from qdrant_edge import Bm25, Bm25Config

    return Bm25(Bm25Config(avg_len=AVERAGE_WORDS))


def document_terms(text: str) -> Sparse:
    """BM25 weights of a document's words (stemmed, stop words dropped); the store multiplies by rarity."""
    vector = _model().embed_document(f"{text}\n{split_identifiers(text)}")
    return Sparse(tuple(vector.indices), tuple(vector.values))


def query_terms(text: str) -> Sparse:
    vector = _model().embed_query(f"{text} {split_identifiers(text)}")
    return Sparse(tuple(vector.indices), tuple(vector.values))


def symbol_terms(symbols: "Iterable[str]") -> Sparse:
    """Identifiers as a sparse vector: each whole, and the last part of a dotted one at half weight."""
    weights: dict[int, float] = {}
    for symbol in symbols:
        name = symbol.casefold()
        last = _SEPARATOR.split(name)[-1]
        for key, weight in ((name, 1.0), (last, 1.0 if last == name else 0.5)):
            if key:
                index = zlib.crc32(key.encode("utf-8", "replace"))
                weights[index] = max(weight, weights.get(index, 0.0))
    return Sparse(tuple(weights), tuple(weights.values()))
