"""Finding memories: by meaning, by words, at once after saving, and while the vectors are away."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from devflow.actors import Actor
from devflow.errors import ErrorCode
from devflow.vectors import search as vectors
from memory.models import Memory
from memory.selectors import moments, search
from memory.services import memories
from memory.services.recall import MemoryRecall
from memory.services.uses import uses
from tests.memory.scenes import CACHE, NAMES, RETRY, asked, fresh, indexed, saved
from tests.workflow.scenes import joined, later, refused
from workflow.models import Project

pytestmark = pytest.mark.django_db

QUESTIONS = {
    "how do we make logging in cheaper on the database?": CACHE,
    "what to do when charging a card takes too long": RETRY,
    "in which unit are prices stored": NAMES,
    "toMinorUnits": NAMES,
    "to minor units": NAMES,
    "60 % fewer queries": CACHE,
}


@pytest.fixture
def three(project: Project, ada: Actor) -> list[Memory]:
    return [saved(project, ada, text) for text in (CACHE, RETRY, NAMES)]


@pytest.fixture
def vectors_away() -> Iterator[None]:
    vectors.resting.begin("The vector store does not answer: refused")
    yield
    vectors.resting.end()


@pytest.mark.parametrize(("question", "answer"), QUESTIONS.items())
def test_questions_in_other_words_and_identifiers_find_the_right_memory(
    project: Project, three: list[Memory], question: str, answer: str
) -> None:
    indexed()
    findings = search.search(project_ids=[project.pk], text=question)
    assert findings.reason == ""
    assert findings.found[0].memory.content == answer
    assert all(0 <= hit.score <= 1 for hit in findings.found)


def test_a_memory_is_found_at_once_and_among_the_first(project: Project, three: list[Memory], ada: Actor) -> None:
    indexed()
    new = saved(project, ada, "Deployments freeze on Fridays after noon.")
    findings = search.search(project_ids=[project.pk], text="may I deploy: deployments on fridays")
    assert findings.found[0].memory == new
    assert findings.reason == ""
    memories.update(project_id=project.pk, memory_id=new.pk, actor=ada, content="Releases pause while migrations run.")
    assert asked(project, "migrations pause releases")[0] == new


def test_before_the_first_indexing_words_answer_and_the_reason_is_said(project: Project, three: list[Memory]) -> None:
    findings = search.search(project_ids=[project.pk], text="payment provider retry")
    assert findings.found[0].memory.content == RETRY
    assert "being built" in findings.reason


def test_while_the_vectors_are_away_words_answer_and_the_reason_is_said(
    project: Project, three: list[Memory], vectors_away: None
) -> None:
    indexed()
    findings = search.search(project_ids=[project.pk], text="payment provider retry")
    assert [hit.memory.content for hit in findings.found] == [RETRY]
    assert "does not answer" in findings.reason


def test_without_a_memory_nothing_is_embedded_and_nothing_is_wrong(project: Project, vectors_away: None) -> None:
    assert search.search(project_ids=[project.pk], text="anything") == search.Findings()
    assert MemoryRecall().related(project.pk, "anything", limit=3) == []


def test_another_projects_memories_are_never_found(project: Project, other: Project, three: list[Memory]) -> None:
    saved(other, joined(other, "eve"), CACHE)
    for _ in range(2):
        assert {row.project_id for row in asked(project, "authentication tokens", limit=200)} == {project.pk}
        assert {row.project_id for row in asked(other, "authentication tokens", limit=200)} == {other.pk}
        indexed()
    both = search.search(project_ids=[project.pk, other.pk], text="authentication tokens", limit=200)
    assert {hit.memory.project_id for hit in both.found} == {project.pk, other.pk}


@pytest.mark.parametrize("is_indexed", [True, False])
def test_results_are_narrowed_by_category_and_tags(project: Project, ada: Actor, is_indexed: bool) -> None:
    a = saved(project, ada, CACHE, category="decision", tags=["auth", "speed"])
    b = saved(project, ada, f"{CACHE} Again.", category="error_fix", tags=["auth"])
    c = saved(project, ada, f"{CACHE} Thrice.", category="problem", tags=["speed"])
    if is_indexed:
        indexed()
    ask: Any = lambda **more: {row.pk for row in asked(project, "cached tokens", **more)}  # noqa: E731  # read below
    assert ask() == {a.pk, b.pk, c.pk}
    assert ask(category="problem") == ask(category="warning") == {b.pk, c.pk}
    assert ask(tags=["auth"]) == {a.pk, b.pk}
    assert ask(tags=["auth", "speed"]) == {a.pk, b.pk, c.pk}
    assert ask(tags=["auth", "speed"], match="all") == {a.pk}
    assert ask(tags=["nothing"]) == set()
    with refused(ErrorCode.INVALID_INPUT, "decision"):
        ask(category="gossip")


@pytest.mark.parametrize("is_indexed", [True, False])
def test_superseded_memories_come_last_and_expired_ones_never(project: Project, ada: Actor, is_indexed: bool) -> None:
    old = saved(project, ada, "Tokens are cached for five minutes")
    new = saved(project, ada, "Sessions and tokens: kept for an hour in the cache", supersedes=[old.pk])
    saved(project, ada, "Tokens are cached for five minutes", expires_at=timezone.now() - timedelta(seconds=1))
    if is_indexed:
        indexed()
    findings = search.search(project_ids=[project.pk], text="Tokens are cached for five minutes")
    assert [(hit.memory, hit.is_superseded) for hit in findings.found] == [(new, False), (old, True)]
    assert search.shown(findings.found)[1]["superseded_by"] == new.public_id
    assert asked(project, "tokens cached five minutes", include_superseded=False) == [new]


def test_what_was_known_at_a_date_is_found_as_it_stood(project: Project, ada: Actor) -> None:
    old = saved(project, ada, "Tokens are cached for five minutes", expires_at=timezone.now() + timedelta(days=20))
    with later(days=10):
        new = saved(project, ada, "Tokens are cached for an hour", supersedes=[old.pk])
    with later(days=30):
        indexed()
        then = timezone.now() - timedelta(days=25)
        findings = search.search(project_ids=[project.pk], text="tokens cached", at=then)
        assert [(hit.memory.pk, hit.is_superseded) for hit in findings.found] == [(old.pk, False)]
        assert search.shown(findings.found)[0]["superseded_by"] is None
        between = search.search(project_ids=[project.pk], text="tokens cached", at=then + timedelta(days=8))
        assert {hit.memory.pk: hit.is_superseded for hit in between.found} == {new.pk: False, old.pk: True}
        assert [row.pk for row in asked(project, "tokens cached")] == [new.pk]


def test_pins_and_trust_order_what_answers_equally_well(project: Project, ada: Actor, mia: Actor) -> None:
    outside = saved(project, ada, CACHE, metadata={"source_url": "https://example.org"})
    plain = saved(project, ada, CACHE)
    proven = saved(project, ada, CACHE, metadata={"evidence": "benchmark"})
    human = saved(project, mia, CACHE)
    pinned = saved(project, ada, CACHE, pinned=True)
    other = saved(project, mia, NAMES, pinned=True)
    indexed()
    rows = asked(project, "cached authentication tokens")
    assert rows == [pinned, human, proven, plain, outside, other]


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_question_is_refused(project: Project, text: str) -> None:
    with refused(ErrorCode.INVALID_INPUT, "what to look for"):
        search.search(project_ids=[project.pk], text=text)


@pytest.mark.parametrize("text", ['"', "'; DROP TABLE", "a AND OR NOT", "*", "é" * 5000, "x" * 100_000, "👋", "%_\\"])
def test_no_question_breaks_the_search(project: Project, three: list[Memory], text: str) -> None:
    search.search(project_ids=[project.pk], text=text)
    indexed()
    search.search(project_ids=[project.pk], text=text)


def test_similar_memories_are_named_with_their_likeness(project: Project, three: list[Memory], ada: Actor) -> None:
    indexed()
    near = saved(project, ada, "Auth tokens get cached five minutes; that cut database queries by 60 percent.")
    assert [hit.memory for hit in search.similar(near)] == [three[0]]
    indexed()
    first, second = search.similar(saved(project, ada, CACHE))
    assert (first.memory, first.score) == (three[0], 1.0)
    assert second.memory == near
    assert search.SIMILAR_FROM <= second.score < 1
    assert search.similar(three[1]) == []


def test_without_vectors_similar_memories_are_found_by_their_words(
    project: Project, three: list[Memory], ada: Actor, vectors_away: None
) -> None:
    assert [hit.memory for hit in search.similar(saved(project, ada, f"{CACHE} Really."))] == [three[0]]


def test_superseded_and_expired_memories_are_not_called_similar(project: Project, ada: Actor) -> None:
    old = saved(project, ada)
    saved(project, ada, CACHE, expires_at=timezone.now())
    new = saved(project, ada, f"{CACHE} Still.", supersedes=[old.pk])
    indexed()
    assert search.similar(new) == []


def test_long_answers_are_cut_to_excerpts_that_say_so(project: Project, ada: Actor) -> None:
    for number in range(4):
        saved(project, ada, f"tokens {number} " + "y" * 90_000)
    found = search.search(project_ids=[project.pk], text="tokens").found
    shown = search.shown(found)
    assert [item["truncated"] for item in shown] == [False, False, True, True]
    assert sum(len(item["content"]) for item in shown) < search.MAX_ANSWER


# --- memories with a claim, and counting uses -----------------------------------------------------------------------


def test_work_is_given_the_memories_near_it_and_no_others(project: Project, three: list[Memory]) -> None:
    indexed()
    related = MemoryRecall().related(project.pk, "Make the checkout survive a slow payment provider", limit=3)
    assert [item["memory_id"] for item in related] == [three[1].public_id]
    assert related[0].keys() >= {"memory_id", "content", "category", "tags", "created_at", "score"}
    assert MemoryRecall().related(project.pk, "Paint the garden fence green", limit=3) == []
    assert MemoryRecall().related(project.pk, " ", limit=3) == ()


def test_uses_are_counted_in_one_statement_per_count_and_later(
    project: Project, three: list[Memory], django_assert_num_queries: Any
) -> None:
    uses.note([three[0].pk, three[1].pk])
    uses.note([three[0].pk])
    assert fresh(three[0]).uses == 0
    with django_assert_num_queries(4):  # two updates and the savepoint around them
        assert uses.write() == 2
    assert [fresh(row).uses for row in three] == [2, 1, 0]
    assert fresh(three[0]).last_used_at is not None
    assert uses.write() == 0


# --- moments --------------------------------------------------------------------------------------------------------


def test_a_date_means_its_end_and_a_moment_without_an_offset_is_utc() -> None:
    assert moments.read("2026-07-01", field="as_of") == datetime(2026, 7, 1, 23, 59, 59, 999999, tzinfo=UTC)
    assert moments.read(" 2026-07-01T12:00:00 ", field="as_of") == datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert moments.read("2026-07-01T12:00:00+02:00", field="as_of") == datetime(2026, 7, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01", "9999-12-31", "0001-01-01T00:00:00+14:00", "1e9", "2026-07-01T25:00"]
)
def test_a_moment_that_is_none_is_refused_by_name(text: str) -> None:
    with refused(ErrorCode.INVALID_INPUT, "as_of"):
        moments.read(text, field="as_of")
