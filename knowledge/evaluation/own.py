"""Users' own questions against the sources of a project.

A file is YAML or JSON: a list of `{question: text, relevant: [text, ...]}`. A result is relevant when one of the
texts is its document's path or URL (or the end of it), its heading (or the end of its heading path), or
`path#heading`.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from devflow.errors import invalid
from knowledge.evaluation.measures import mean, ndcg, recall
from knowledge.models import Chunk
from knowledge.services import search
from knowledge.services.search import Mode

MAX_QUESTIONS = 5000


@dataclass(frozen=True, slots=True)
class OwnQuestion:
    text: str
    relevant: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Means over the questions; milliseconds of one search. `missed` found nothing relevant among the first ten."""

    questions: int
    ndcg_at_10: float
    recall_at_10: float
    p50_ms: float
    p95_ms: float
    missed: tuple[str, ...]


def read(path: Path) -> list[OwnQuestion]:
    """Read a question file. Raises `invalid_input` naming the entry that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        data: Any = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, ValueError, RecursionError, yaml.YAMLError) as exc:
        raise invalid(f"{path} cannot be read: {exc}", file="a YAML or JSON list of questions") from exc
    if not isinstance(data, list) or not 0 < len(data) <= MAX_QUESTIONS:
        raise invalid(f"{path} must be a list of 1 to {MAX_QUESTIONS} questions.", file="a list")
    return [_question(path, number, entry) for number, entry in enumerate(data, 1)]


def _question(path: Path, number: int, entry: Any) -> OwnQuestion:
    question = entry.get("question") if isinstance(entry, dict) else None
    relevant = entry.get("relevant") if isinstance(entry, dict) else None
    if isinstance(relevant, str):
        relevant = [relevant]
    if (
        not isinstance(question, str)
        or not question.strip()
        or not isinstance(relevant, list)
        or not relevant
        or not all(isinstance(one, str) and one for one in relevant)
    ):
        raise invalid(f"{path}: entry {number} needs `question` (text) and `relevant` (texts).", file="see docs")
    return OwnQuestion(question, tuple(relevant))


def matches(chunk: Chunk, wanted: str) -> bool:
    """Whether a passage is what `wanted` names."""
    path, _, heading = wanted.partition("#")
    if path and heading:
        return chunk.document.path.endswith(path) and chunk.heading.casefold().endswith(heading.casefold())
    return chunk.document.path.endswith(wanted) or chunk.heading.casefold().endswith(wanted.casefold())


def evaluate(*, project_id: int, questions: list[OwnQuestion], mode: Mode = "hybrid") -> Report:
    """Ask every question and measure the answers by what they name: several passages of one relevant document count
    as one find."""
    gains, recalls, seconds, missed = [], [], [], []
    for question in questions:
        started = time.perf_counter()
        found = search.find(project_id=project_id, query=question.text, mode=mode, top_k=10)
        seconds.append(time.perf_counter() - started)
        ranked: list[str] = []
        for hit in found.hits:
            named = next((one for one in question.relevant if matches(hit.chunk, one) and one not in ranked), None)
            ranked.append(named or f"\0{hit.chunk.pk}")
        gains.append(ndcg(ranked, question.relevant))
        recalls.append(recall(ranked, question.relevant))
        if not recalls[-1]:
            missed.append(question.text)
    seconds.sort()
    return Report(
        questions=len(questions),
        ndcg_at_10=mean(gains),
        recall_at_10=mean(recalls),
        p50_ms=seconds[len(seconds) // 2] * 1000,
        p95_ms=seconds[min(len(seconds) - 1, int(len(seconds) * 0.95))] * 1000,
        missed=tuple(missed),
    )
