"""Run a question set through the parts a search is made of: the embedder, a vector store of its own, the fusion."""

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devflow.vectors import terms
from devflow.vectors.base import DENSE, SYMBOLS, TEXT, Embedder, Hits, Point, Query, VectorStore
from devflow.vectors.fusion import fuse
from knowledge.evaluation.faq import QuestionSet
from knowledge.evaluation.measures import mean, ndcg, recall
from knowledge.services.search import CANDIDATES, WEIGHTS

COLLECTION = "trial"

Ranking = Sequence[int]


@dataclass(frozen=True, slots=True)
class Asked:
    """One question's candidates by leg, and how long they took."""

    hits: Hits
    seconds: float


@dataclass(frozen=True, slots=True)
class Score:
    ndcg: float
    recall: float
    each: tuple[float, ...]
    """nDCG@10 of every question."""


@contextmanager
def indexed(questions: QuestionSet, embedder: Embedder) -> Iterator[VectorStore]:
    """A vector store in a temporary directory that holds the passages; their ids are their places."""
    from devflow.vectors.edge import EdgeStore

    place = Path(tempfile.mkdtemp(prefix="devflow-eval-"))
    store = EdgeStore(place)
    try:
        store.create(COLLECTION, embedder.dimensions)
        vectors = embedder.embed([piece.embed_text for piece in questions.passages])
        store.upsert(
            COLLECTION,
            [
                Point(
                    id=uuid.UUID(int=number),
                    dense=vector,
                    text=terms.document_terms(piece.embed_text),
                    symbols=terms.symbol_terms(piece.symbols),
                    payload={"project": 1, "hash": ""},
                )
                for number, (piece, vector) in enumerate(zip(questions.passages, vectors, strict=True))
            ],
        )
        yield store
    finally:
        store.close()
        shutil.rmtree(place, ignore_errors=True)


def ask(questions: QuestionSet, store: VectorStore, embedder: Embedder) -> list[Asked]:
    """Every question's candidates."""
    answers = []
    for question in questions.questions:
        started = time.perf_counter()
        query = Query(
            where={"project": [1]},
            dense=embedder.embed_query(question.text),
            text=terms.query_terms(question.text),
            symbols=terms.symbol_terms(terms.symbols_in(question.text)),
            limit=CANDIDATES,
        )
        hits = store.search(COLLECTION, query)
        fuse(hits, WEIGHTS)
        answers.append(Asked(hits, time.perf_counter() - started))
    return answers


def weighted(weights: Mapping[str, float] = WEIGHTS) -> Callable[[Hits], Ranking]:
    """The ranking search gives with these weights."""
    return lambda hits: [hit.point.int for hit in fuse(hits, weights)]


def leg(name: str) -> Callable[[Hits], Ranking]:
    """One leg alone."""
    return lambda hits: [point.int for point, _ in hits.get(name, ())]


def reciprocal_ranks(k: int = 60) -> Callable[[Hits], Ranking]:
    """Default reciprocal rank fusion of meaning and words."""

    def rank(hits: Hits) -> Ranking:
        scores: dict[int, float] = {}
        for name in (DENSE, TEXT):
            for place, (point, _) in enumerate(hits.get(name, ())):
                scores[point.int] = scores.get(point.int, 0.0) + 1 / (k + place + 1)
        return sorted(scores, key=lambda one: (-scores[one], one))

    return rank


def score(questions: QuestionSet, answers: Sequence[Asked], ranking: Callable[[Hits], Ranking]) -> Score:
    """Measure a way of ranking."""
    ranked = [ranking(one.hits) for one in answers]
    each = tuple(ndcg(found, question.relevant) for found, question in zip(ranked, questions.questions, strict=True))
    found = [recall(found, question.relevant) for found, question in zip(ranked, questions.questions, strict=True)]
    return Score(mean(each), mean(found), each)


def best_weights(questions: QuestionSet, answers: Sequence[Asked]) -> dict[str, float]:
    """The weights with the highest nDCG on these questions, out of a small grid."""
    grid = [
        {DENSE: dense / 10, TEXT: 1 - dense / 10, SYMBOLS: symbols / 10}
        for dense in range(3, 11)
        for symbols in (0, 1, 2, 3, 4)
    ]
    return max(grid, key=lambda weights: score(questions, answers, weighted(weights)).ndcg)
