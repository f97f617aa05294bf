"""Measures, question files, and a floor under retrieval: this project's own docs must answer their own questions."""

import json
import uuid
from pathlib import Path

import pytest

from devflow.config import PROJECT_ROOT
from devflow.errors import DevFlowError
from devflow.vectors.fusion import fuse
from knowledge.evaluation import faq, own
from knowledge.evaluation.measures import ndcg, paired_bootstrap, recall
from workflow.models import Project

from .conftest import Add

QUESTIONS = Path(__file__).parent / "questions.yaml"


def test_measures_know_perfect_partial_and_nothing() -> None:
    assert ndcg(["a", "b"], {"a", "b"}) == 1.0
    assert ndcg(["x", "a"], {"a"}) == pytest.approx(0.6309, abs=1e-4)
    assert ndcg(["x"] * 10 + ["a"], {"a"}) == 0.0
    assert (recall(["a", "x"], {"a", "b"}), recall([], {"a"}), recall(["a"], set())) == (0.5, 0.0, 0.0)


def test_the_interval_of_a_difference_holds_its_mean_and_repeats() -> None:
    ours, theirs = [0.9, 0.8, 1.0, 0.7] * 20, [0.5, 0.6, 0.9, 0.7] * 20
    low, high = paired_bootstrap(ours, theirs, rounds=500)
    assert low < 0.175 < high
    assert paired_bootstrap(ours, theirs, rounds=500) == (low, high)


def test_fusion_weighs_scores_and_lets_the_unindexed_speak_for_themselves() -> None:
    a, b, c = (uuid.UUID(int=number) for number in range(1, 4))
    hits = {"dense": [(a, 0.9), (b, 0.5)], "keyword": [(c, 9.0), (b, 3.0), (a, 0.0)]}
    weights = {"dense": 0.7, "keyword": 0.3}
    assert [hit.point for hit in fuse(hits, weights)] == [a, c, b]
    assert [hit.point for hit in fuse(hits, weights, unindexed={c})] == [c, a, b]
    assert fuse({"dense": [(a, 0.2), (b, 0.2)]}, weights)[0].score == 1.0
    assert fuse({"dense": []}, weights) == []


@pytest.mark.slow
def test_the_projects_own_docs_answer_their_questions(add: Add, shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from devflow import config

    conf = config.current().model_copy(update={"allowed_roots": [str(PROJECT_ROOT / "docs")]})
    monkeypatch.setattr(config, "current", lambda: conf)
    source = add("Docs", type="directory", path=str(PROJECT_ROOT / "docs"))
    assert (source.status, source.failed_count) == ("active", 0)

    questions = own.read(QUESTIONS)
    hybrid = own.evaluate(project_id=shop.pk, questions=questions)
    semantic = own.evaluate(project_id=shop.pk, questions=questions, mode="semantic")

    assert hybrid.questions == 20
    assert hybrid.recall_at_10 >= 0.7
    assert hybrid.ndcg_at_10 >= 0.6
    assert hybrid.ndcg_at_10 >= semantic.ndcg_at_10 - 0.02


@pytest.mark.parametrize(
    "content",
    [
        "",
        "just text",
        "[]",
        "- question: x",
        "- {question: '', relevant: [a]}",
        "- {question: x, relevant: []}",
        "{a: 1}",
        "- [",
    ],
)
def test_a_question_file_that_is_none_is_refused_by_name(content: str, tmp_path: Path) -> None:
    file = tmp_path / "q.yaml"
    file.write_text(content)
    with pytest.raises(DevFlowError, match=r"q\.yaml"):
        own.read(file)


def test_a_question_file_may_be_json(tmp_path: Path) -> None:
    file = tmp_path / "q.json"
    file.write_text(json.dumps([{"question": "Where?", "relevant": "a.md"}]))
    assert own.read(file) == [own.OwnQuestion("Where?", ("a.md",))]


def test_the_faq_set_cuts_the_question_off_its_passages(tmp_path: Path) -> None:
    (tmp_path / "general.rst.txt").write_text(
        "General\n=======\n\nWhat is this?\n-------------\n\nA language.\n\nWhy?\n----\n\nBecause it helps.\n"
    )
    questions = faq.load(tmp_path, lambda text: len(text.split()))
    assert [one.text for one in questions.questions] == ["What is this?", "Why?"]
    assert all("?" not in piece.embed_text for piece in questions.passages)
    for question in questions.questions:
        assert question.relevant
    first, second = questions.halves()
    assert (len(first.questions), len(second.questions)) == (1, 1)
    assert first.passages == second.passages == questions.passages
