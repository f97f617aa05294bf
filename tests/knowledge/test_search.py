"""What a search finds, cites, hides, and says when it is weaker than asked."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from devflow import config
from devflow.errors import DevFlowError
from devflow.vectors import index, stores
from devflow.vectors import search as vectors
from devflow.vectors.base import Hits, Query, StoreError
from devflow.vectors.models import Collection, PendingPoint
from knowledge.models import Document, Source
from knowledge.services import answers, examples, search, sources
from workflow.models import Project

from .conftest import ADA, Add

AUTH = """# Signing in

## Tokens

Access tokens are JSON web tokens that live ten minutes. Validate them with the algorithm named:

```python
def validate_access_token(token):
    return jwt.decode(token, KEY, algorithms=["HS256"])
```

## Passwords

A wrong password takes as long as a right one, so nobody can tell which names exist.
"""

OPS = """# Operations

## Deployments

A deployment drains one server after the other. Run `drain_server()` and wait until it is idle.

## Backups

Every night the database is copied to another building.
"""


@pytest.fixture
def filled(add: Add) -> tuple[Source, Source]:
    return add("Signing in", AUTH, tags=["auth"]), add("Operations", OPS, tags=["ops"], priority=5)


def ask(project: Project, query: str, **given: object) -> dict[str, object]:
    return answers.answer(project_id=project.pk, query=query, **given)  # type: ignore[arg-type]


def first(answer: dict[str, object]) -> dict[str, object]:
    return answer["results"][0]  # type: ignore[index]


def test_a_question_in_other_words_finds_the_passage_that_answers_it(filled: object, shop: Project) -> None:
    found = ask(shop, "When is our data saved to a safe place?")
    assert "copied to another building" in first(found)["content"]
    assert (found["degraded"], found["reason"]) == (False, "")


def test_an_identifier_finds_where_it_is_written(filled: object, shop: Project) -> None:
    found = ask(shop, "drain_server", explain=True)
    assert "drain_server()" in first(found)["content"]
    assert "symbols" in first(found)["explain"]["legs"]


def test_parts_of_a_camel_case_name_find_it(add: Add, shop: Project) -> None:
    add("Code", "# Users\n\nThe function `getUserById` reads a row.\n")
    add("Noise", OPS)
    assert "getUserById" in first(ask(shop, "get user by id"))["content"]


def test_a_result_cites_lines_that_hold_its_content(filled: object, shop: Project) -> None:
    for result in ask(shop, "How are tokens validated?")["results"]:
        cited = result["metadata"]
        document = Document.objects.get(pk=int(cited["document_id"].removeprefix("document-")))
        start, end = cited["lines"]
        assert "\n".join(document.text.split("\n")[start - 1 : end]).strip() == result["content"].strip()
        assert cited["open"] == f"/knowledge/documents/{document.pk}/#L{start}-L{end}"
        assert result["url"].endswith(cited["open"])
        assert cited["stale"] is False


@pytest.mark.parametrize("mode", ["semantic", "hybrid", "reranked"])
def test_every_mode_answers_and_keeps_to_top_k(mode: str, filled: object, shop: Project) -> None:
    found = ask(shop, "passwords", mode=mode, top_k=2)
    assert len(found["results"]) == 2  # type: ignore[arg-type]
    assert all(0 <= one["score"] <= 1 for one in found["results"])  # type: ignore[attr-defined]
    assert found["mode"] == mode


def test_reranking_without_a_model_says_so_and_keeps_the_order(filled: object, shop: Project) -> None:
    plain = ask(shop, "passwords")
    fallback = ask(shop, "passwords", mode="reranked")
    assert fallback["reranker"] == "fallback"
    assert "DEVFLOW_LLM_BASE_URL" in str(fallback["reason"])
    assert [one["content"] for one in fallback["results"]] == [one["content"] for one in plain["results"]]


def test_filters_narrow_by_tag_source_and_code(filled: tuple[Source, Source], shop: Project) -> None:
    auth, ops = filled
    sources_of = lambda answer: {one["metadata"]["source_id"] for one in answer["results"]}  # noqa: E731
    assert sources_of(ask(shop, "server", filters={"tags": ["auth"]})) == {auth.public_id}
    assert sources_of(ask(shop, "tokens", filters={"sources": [ops.public_id]})) == {ops.public_id}
    assert sources_of(ask(shop, "tokens", filters={"tags": ["auth", "ops"]})) == set()
    assert all(one["metadata"]["has_code"] for one in ask(shop, "server", filters={"has_code": True})["results"])


@pytest.mark.parametrize(
    "filters",
    [{"tag": ["x"]}, {"tags": "x"}, {"tags": [1]}, {"sources": ["nonsense"]}, {"has_code": "yes"}, {"sources": [""]}],
)
def test_filters_that_are_none_are_refused(filters: dict[str, object], filled: object, shop: Project) -> None:
    with pytest.raises(DevFlowError):
        ask(shop, "tokens", filters=filters)


def test_another_projects_sources_are_never_found(filled: tuple[Source, Source], other: Project) -> None:
    auth, _ = filled
    assert ask(other, "How are tokens validated?")["results"] == []
    assert ask(other, "tokens", filters={"sources": [auth.public_id]})["results"] == []
    assert examples.find(project_id=other.pk, topic="validate token")[0] == []


def test_a_deleted_document_is_found_no_more_even_from_the_cache(filled: tuple[Source, Source], shop: Project) -> None:
    assert "JSON web tokens" in first(ask(shop, "access tokens"))["content"]
    sources.delete_document(document=Document.objects.get(source=filled[0]), actor=ADA)
    assert all("JSON web tokens" not in one["content"] for one in ask(shop, "access tokens")["results"])


def test_the_same_question_is_answered_from_the_cache_until_something_changes(
    filled: tuple[Source, Source], shop: Project
) -> None:
    made = ask(shop, "backups")
    with CaptureQueriesContext(connection) as again:
        assert ask(shop, "backups")["results"] == made["results"]
    assert len(again) <= 2
    sources.configure(source=filled[1], actor=ADA, title="Running it")
    assert first(ask(shop, "backups"))["source"] == "Running it"


def test_a_search_takes_the_same_queries_for_few_results_and_for_many(add: Add, shop: Project) -> None:
    for number in range(12):
        add(f"Note {number}", f"# Note {number}\n\nThe deployment of service {number} is described here.\n")
    counts = []
    for top_k in (1, 12):
        with CaptureQueriesContext(connection) as queries:
            assert len(ask(shop, "deployment", top_k=top_k, include_code_examples=True)["results"]) == top_k
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 10


def test_text_is_found_by_words_before_its_vectors_are_there(
    add: Add, shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("Operations", OPS)
    monkeypatch.setattr(stores.store(), "upsert", _gone)
    add("Signing in", AUTH)

    found = ask(shop, "JSON web tokens")

    assert "JSON web tokens" in first(found)["content"]
    assert found["index_lag"]["pending_chunks"] > 0  # type: ignore[index]
    fault = Collection.objects.get(kind="knowledge").fault
    assert "gone" in fault

    monkeypatch.undo()
    from devflow.vectors import index

    index.drain()
    assert not PendingPoint.objects.exists()
    assert ask(shop, "JSON web tokens")["index_lag"]["pending_chunks"] == 0  # type: ignore[index]


def _gone(*_args: object, **_kwargs: object) -> Hits:
    raise StoreError("the store is gone")


def test_without_the_store_keywords_answer_and_say_so(
    filled: object, shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores.store(), "search", _gone)
    found = ask(shop, "database copied backups")
    assert "copied to another building" in first(found)["content"]
    assert found["degraded"] is True
    assert "the store is gone" in str(found["reason"])

    monkeypatch.undo()
    vectors.resting.end()
    assert ask(shop, "database copied backups")["degraded"] is False


def test_a_lost_collection_is_no_fault_of_the_store(filled: object, shop: Project) -> None:
    lost = Collection.objects.get(kind="knowledge")
    stores.store().drop(lost.name)
    found = ask(shop, "database copied backups")
    assert "copied to another building" in first(found)["content"]
    assert "devflow reindex" in str(found["reason"])
    index.reconcile("knowledge")
    index.drain()
    assert ask(shop, "database backups copied")["degraded"] is False


def test_a_store_that_failed_is_left_alone_for_a_moment(
    filled: object, shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Query] = []

    def failing(collection: str, query: Query) -> Hits:
        asked.append(query)
        raise StoreError("the store is gone")

    monkeypatch.setattr(stores.store(), "search", failing)
    for word in ("tokens", "passwords", "backups"):
        assert ask(shop, word)["degraded"] is True
    assert len(asked) == 1


def test_an_empty_knowledge_base_answers_nothing(shop: Project) -> None:
    found = ask(shop, "anything")
    assert (found["results"], found["total_results"], found["degraded"]) == ([], 0, False)


def test_an_empty_question_is_refused(shop: Project) -> None:
    with pytest.raises(DevFlowError, match="what to look for"):
        ask(shop, "   ")


def test_higher_priority_ranks_higher_among_equals_and_shows(add: Add, shop: Project) -> None:
    add("Low", "# Notes\n\nThe cache is purged after a deployment by hand.\n", priority=1)
    add("High", "# Notes\n\nThe cache is purged after a deployment by the server.\n", priority=10)
    found = ask(shop, "The cache is purged after a deployment", explain=True)
    assert first(found)["source"] == "High"
    assert first(found)["explain"]["priority"] == 1.1


def test_a_passage_that_stands_in_two_documents_is_shown_once(add: Add, shop: Project) -> None:
    add("One", OPS)
    add("Two", OPS)
    contents = [one["content"] for one in ask(shop, "backups")["results"]]
    assert len(contents) == len(set(contents))


def test_a_file_that_changed_since_is_marked_stale(
    add: Add, shop: Project, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pathlib import Path

    root = Path(str(tmp_path))
    conf = config.current().model_copy(update={"allowed_roots": [str(root)]})
    monkeypatch.setattr(config, "current", lambda: conf)
    (root / "ops.md").write_text(OPS)
    add("Docs", type="directory", path=str(root))
    assert first(ask(shop, "backups"))["metadata"]["stale"] is False

    (root / "ops.md").write_text(OPS + "\nMore.\n")
    answers.cache.forget()
    assert first(ask(shop, "backups"))["metadata"]["stale"] is True


def test_code_examples_come_with_context_and_place_and_obey_the_language(
    filled: object, add: Add, shop: Project
) -> None:
    add("Shell", "# Deploy\n\nDeploy with this command:\n\n```sh\ndeploy --now\n```\n")
    found, _ = examples.find(project_id=shop.pk, topic="validate a JWT", language="python")
    assert [one.language for one in found] == ["python"]
    assert "validate_access_token" in found[0].code
    assert found[0].context.startswith("Validate them") or "Access tokens" in found[0].context
    found, _ = examples.find(project_id=shop.pk, topic="deploy", language=examples.canonical("bash"))
    assert "deploy --now" in found[0].code


def test_included_code_examples_stand_in_their_result(filled: object, shop: Project) -> None:
    found = ask(shop, "validate access tokens", include_code_examples=True)
    assert "validate_access_token" in first(found)["code_examples"][0]["code"]


def test_another_embedder_answers_only_when_its_index_is_complete(
    filled: object, shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from devflow.vectors import embedders, index

    bundled = embedders.current()

    class Renamed:
        """The bundled model under another name: what a configured one would be."""

        name = "another-model"
        dimensions = bundled.dimensions
        max_tokens = bundled.max_tokens
        embed = staticmethod(bundled.embed)
        embed_query = staticmethod(bundled.embed_query)
        count_tokens = staticmethod(bundled.count_tokens)

    other = Renamed()
    monkeypatch.setattr(embedders, "current", lambda: other)
    monkeypatch.setattr(embedders, "by_name", lambda name: other if name == other.name else bundled)
    old = Collection.objects.get(kind="knowledge", state="live")

    index.drain(stop=lambda: True)
    assert {one.state for one in Collection.objects.filter(kind="knowledge")} == {"live", "building"}
    assert ask(shop, "backups")["degraded"] is False

    index.drain()
    live = Collection.objects.get(kind="knowledge")
    assert (live.embedder, live.state) == ("another-model", "live")
    assert old.name not in stores.store().collections()
    assert "copied to another building" in first(ask(shop, "backups"))["content"]


def test_a_removed_document_leaves_the_keyword_index_too(filled: tuple[Source, Source], shop: Project) -> None:
    sources.delete(source=filled[0], actor=ADA)
    assert search.by_words(search.chunks_of(shop.pk, [], search.Filters()), "tokens", 10) == []
