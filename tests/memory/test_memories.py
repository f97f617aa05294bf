"""Saving, editing, superseding, merging and deleting."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from devflow.actors import Actor
from devflow.errors import ErrorCode
from devflow.events import LiveEvent, bus
from devflow.vectors import index, stores
from devflow.vectors.models import CachedEmbedding, PendingPoint
from memory.models import ALSO, Category, Memory, Trust
from memory.selectors import memories as selectors
from memory.services import memories
from memory.tools.results import CategoryWord
from tests.memory.scenes import CACHE, NAMES, RETRY, asked, fresh, indexed, saved
from tests.workflow.scenes import joined, made, refused
from workflow.models import Project
from workflow.services import claims

pytestmark = pytest.mark.django_db


def test_a_memory_says_who_saved_it_through_what_at_which_task(project: Project, ada: Actor) -> None:
    task = made(project, ada)
    claims.start(project_id=project.pk, task_id=task.pk, actor=ada)
    memory = saved(project, ada, tags=["auth", " auth ", ""], trace_id="t-1")
    assert (memory.created_by, memory.agent_id, memory.tool) == ("ada", ada.agent_id, "test")
    assert (memory.task, memory.trace_id, memory.tags) == (task.public_id, "t-1", ["auth"])
    assert saved(project, ada, metadata={"task_id": "task-7"}).task == "task-7"


@pytest.mark.parametrize(("said", "kept"), [*((word, word) for word in Category.values), *ALSO.items()])
def test_other_words_for_the_categories_are_mapped_and_kept(project: Project, ada: Actor, said: str, kept: str) -> None:
    memory = saved(project, ada, category=said)
    assert (memory.category, memory.original_category) == (kept, said)


def test_the_tools_offer_every_known_category() -> None:
    assert set(CategoryWord.__args__) == {*Category.values, *ALSO}  # type: ignore[attr-defined]  # a Literal


def test_trust_follows_from_who_says_it_and_what_they_show(project: Project, ada: Actor, mia: Actor) -> None:
    assert saved(project, mia).trust == Trust.PERSON
    assert saved(project, ada, metadata={"evidence": ["commit 1a2b3c"]}).trust == Trust.EVIDENCE
    assert saved(project, ada, metadata={"evidence": ""}).trust == Trust.AGENT
    outside = saved(project, ada, metadata={"source_url": "https://example.org/post", "evidence": "it said so"})
    assert outside.trust == Trust.OUTSIDE
    assert saved(project, mia, metadata={"untrusted": True}).trust == Trust.OUTSIDE


def test_only_a_person_makes_text_from_outside_trusted(project: Project, ada: Actor, mia: Actor) -> None:
    memory = saved(project, ada, metadata={"source_url": "https://example.org/post"})
    who: dict[str, Any] = {"project_id": project.pk, "memory_id": memory.pk}
    assert memories.update(**who, actor=ada, content="Ours now", metadata={}).trust == Trust.OUTSIDE
    with refused(ErrorCode.FORBIDDEN, "evidence"):
        memories.vouch(**who, actor=ada)
    assert memories.vouch(**who, actor=mia).trust == Trust.PERSON
    assert memories.update(**who, actor=ada, content="Changed by an agent").trust == Trust.AGENT


def test_changing_only_the_tags_or_the_pin_leaves_the_trust(project: Project, ada: Actor, mia: Actor) -> None:
    memory = saved(project, ada, category="error_fix")
    changed = memories.update(
        project_id=project.pk,
        memory_id=memory.pk,
        actor=mia,
        tags=["x"],
        pinned=True,
        content=CACHE,
        category="problem",
    )
    assert (changed.trust, changed.pinned, changed.tags) == (Trust.AGENT, True, ["x"])
    assert changed.original_category == "error_fix"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"content": ""}, "Say what"),
        ({"content": " \n"}, "Say what"),
        ({"content": "x" * 100_001}, "100,000"),
        ({"content": "a\x00b"}, "NUL"),
        ({"content": "a\ud800b"}, "surrogate"),
        ({"category": "gossip"}, "codebase_knowledge"),
        ({"tags": [f"t{n}" for n in range(51)]}, "50 tags"),
        ({"tags": ["a,b"]}, "no comma"),
        ({"tags": ["x" * 65]}, "64 characters"),
        ({"tags": ["a\x00"]}, "64 characters"),
        ({"tags": [1]}, "list of words"),
        ({"tags": {"a": 1}}, "list of words"),
        ({"metadata": {"a": "x" * 100_001}}, "100,000"),
        ({"metadata": {"a": "\x00"}}, "NUL"),
        ({"metadata": {"a": float("nan")}}, "JSON"),
        ({"metadata": 5}, "JSON"),
    ],
)
def test_bad_input_is_refused_when_saving_and_when_editing(
    project: Project, ada: Actor, given: dict[str, Any], words: str
) -> None:
    with refused(ErrorCode.INVALID_INPUT, words):
        saved(project, ada, **given)
    assert not Memory.objects.exists()
    memory = saved(project, ada)
    with refused(ErrorCode.INVALID_INPUT, words):
        memories.update(project_id=project.pk, memory_id=memory.pk, actor=ada, **given)
    assert fresh(memory).version == 1


def test_the_longest_content_and_fifty_tags_are_kept(project: Project, ada: Actor) -> None:
    memory = saved(project, ada, "y" * 100_000, tags=[f"t{n}" for n in range(50)])
    assert (len(fresh(memory).content), len(memory.tags)) == (100_000, 50)


def test_the_same_text_saved_twice_is_two_memories(project: Project, ada: Actor) -> None:
    first, second = saved(project, ada), saved(project, ada)
    assert first.pk != second.pk
    assert first.point != second.point
    assert first.hash == second.hash


def test_an_edit_on_an_older_version_is_refused_and_changes_nothing(project: Project, ada: Actor) -> None:
    memory = saved(project, ada)
    who: dict[str, Any] = {"project_id": project.pk, "memory_id": memory.public_id, "actor": ada}
    assert memories.update(**who, version=1, content=RETRY).version == 2
    with refused(ErrorCode.CONFLICT, "version 2, yours is 1"):
        memories.update(**who, version=1, content=NAMES)
    assert fresh(memory).content == RETRY


def test_counting_uses_does_not_disturb_an_edit(project: Project, ada: Actor) -> None:
    memory = saved(project, ada)
    held = fresh(memory)
    Memory.objects.filter(pk=memory.pk).update(uses=5)
    memories.update(project_id=project.pk, memory_id=memory.pk, actor=ada, pinned=True)
    assert (fresh(memory).uses, held.uses) == (5, 0)


def test_another_projects_memory_is_not_found_by_any_operation(
    project: Project, other: Project, ada: Actor, mia: Actor
) -> None:
    theirs = saved(other, joined(other, "eve"))
    mine = saved(project, ada)
    who: dict[str, Any] = {"project_id": project.pk, "memory_id": theirs.public_id}
    for attempt in (
        lambda: selectors.by_id(project_ids=[project.pk], memory_id=theirs.public_id),
        lambda: memories.update(**who, actor=ada, pinned=True),
        lambda: memories.vouch(**who, actor=mia),
        lambda: memories.delete(**who),
        lambda: saved(project, ada, supersedes=[theirs.public_id]),
        lambda: memories.merge(
            project_id=project.pk, memory_ids=[mine.pk, theirs.pk], content="x", category="pattern", actor=mia
        ),
    ):
        with refused(ErrorCode.NOT_FOUND, theirs.public_id.removeprefix("memory-")):
            attempt()
    assert fresh(theirs).version == 1


@pytest.mark.parametrize("wrong", ["memory-0", "task-1", "memory-", "1 ", "-1", "9" * 17, "é", "memory-1\n"])
def test_what_is_no_memory_id_is_not_found(project: Project, wrong: str) -> None:
    with refused(ErrorCode.NOT_FOUND):
        selectors.by_id(project_ids=[project.pk], memory_id=wrong)


# --- chains ---------------------------------------------------------------------------------------------------------


def test_a_chain_of_superseded_memories_reads_in_both_directions(project: Project, ada: Actor) -> None:
    first = saved(project, ada, "Tokens live for 5 minutes")
    second = saved(project, ada, "Tokens live for 10 minutes", supersedes=[first.public_id])
    third = saved(project, ada, "Tokens live for an hour", supersedes=[str(second.pk)])
    assert [row.pk for row in selectors.newer(fresh(first))] == [second.pk, third.pk]
    assert [row.pk for row in selectors.older(third)] == [second.pk, first.pk]
    assert fresh(first).superseded_at is not None


def test_superseding_twice_is_a_conflict_that_names_the_newest(project: Project, ada: Actor) -> None:
    first = saved(project, ada)
    second = saved(project, ada, RETRY, supersedes=[first.pk])
    with refused(ErrorCode.CONFLICT, f"Supersede {second.public_id} instead"):
        saved(project, ada, NAMES, supersedes=[first.pk])
    assert Memory.objects.count() == 2
    again = memories.update(project_id=project.pk, memory_id=second.pk, actor=ada, supersedes=[first.pk])
    assert fresh(first).superseded_by_id == again.pk


def test_a_memory_cannot_supersede_itself_or_what_came_after_it(project: Project, ada: Actor) -> None:
    first = saved(project, ada)
    second = saved(project, ada, RETRY, supersedes=[first.pk])
    third = saved(project, ada, NAMES, supersedes=[second.pk])
    who: dict[str, Any] = {"project_id": project.pk, "actor": ada}
    with refused(ErrorCode.INVALID_INPUT, "itself"):
        memories.update(**who, memory_id=third.pk, supersedes=[third.pk])
    for newer in (second, third):
        with refused(ErrorCode.INVALID_INPUT, "took the place of"):
            memories.update(**who, memory_id=first.pk, supersedes=[newer.pk])
    with pytest.raises(IntegrityError), transaction.atomic():
        Memory.objects.filter(pk=third.pk).update(superseded_by=third.pk)


def test_deleting_a_link_keeps_the_chain_and_deleting_its_end_puts_the_one_before_in_force(
    project: Project, ada: Actor
) -> None:
    first = saved(project, ada)
    second = saved(project, ada, RETRY, supersedes=[first.pk])
    third = saved(project, ada, NAMES, supersedes=[second.pk])
    memories.delete(project_id=project.pk, memory_id=second.pk)
    assert fresh(first).superseded_by_id == third.pk
    memories.delete(project_id=project.pk, memory_id=third.pk)
    assert (fresh(first).superseded_by_id, fresh(first).superseded_at) == (None, None)


def test_merging_puts_one_text_in_the_place_of_several(project: Project, ada: Actor, mia: Actor) -> None:
    one, two = saved(project, ada), saved(project, ada, RETRY, pinned=True)
    merged = memories.merge(
        project_id=project.pk, memory_ids=[one.pk, two.public_id], content="Both", category="pattern", actor=mia
    )
    assert {row.pk for row in selectors.older(merged)} == {one.pk, two.pk}
    assert (merged.pinned, merged.trust, merged.created_by) == (True, Trust.PERSON, "mia")
    with refused(ErrorCode.INVALID_INPUT, "2 to 20"):
        memories.merge(project_id=project.pk, memory_ids=[one.pk, one.pk], content="x", category="pattern", actor=mia)


# --- the index and the listeners ------------------------------------------------------------------------------------


def test_a_deleted_memory_leaves_no_row_no_vector_and_no_cached_embedding(project: Project, ada: Actor) -> None:
    keep, drop = saved(project, ada, RETRY), saved(project, ada)
    indexed()
    name = index.collections("memory")[0].name
    assert stores.store().count(name) == CachedEmbedding.objects.count() == 2
    memories.delete(project_id=project.pk, memory_id=drop.pk)
    assert asked(project, "authentication tokens cached") == [keep]
    assert CachedEmbedding.objects.count() == 1
    indexed()
    assert [point for point, _ in stores.store().scroll(name)] == [keep.point]
    assert asked(project, "authentication tokens cached") == [keep]
    with refused(ErrorCode.NOT_FOUND):
        memories.delete(project_id=project.pk, memory_id=drop.pk)


def test_every_change_enqueues_the_point_in_the_same_transaction(project: Project, ada: Actor) -> None:
    memory = saved(project, ada)
    assert list(PendingPoint.objects.values_list("point", flat=True)) == [memory.point]
    with refused(ErrorCode.INVALID_INPUT), transaction.atomic():
        saved(project, ada, "gone again")
        saved(project, ada, "")
    assert PendingPoint.objects.count() == 1


def test_reconciling_finds_what_the_outbox_missed_and_takes_out_what_has_expired(project: Project, ada: Actor) -> None:
    stays, ends = saved(project, ada), saved(project, ada, RETRY)
    indexed()
    assert index.reconcile("memory") == 0
    Memory.objects.filter(pk=ends.pk).update(expires_at="2020-01-01T00:00:00Z")
    Memory.objects.filter(pk=stays.pk).update(tags=["late"])
    assert index.reconcile("memory") == 2
    indexed()
    name = index.collections("memory")[0].name
    assert [point for point, _ in stores.store().scroll(name)] == [stays.point]
    assert index.reconcile("memory") == 0


def test_a_lost_store_is_rebuilt_from_the_rows(project: Project, ada: Actor) -> None:
    saved(project, ada)
    saved(project, ada, RETRY)
    indexed()
    before = [row.pk for row in asked(project, "orders that fail on mondays")]
    assert index.forget_everything("memory") == 2
    indexed()
    assert [row.pk for row in asked(project, "orders that fail on mondays")] == before


@pytest.mark.django_db(transaction=True)
def test_listeners_hear_of_every_change_after_its_commit(
    project: Project, ada: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[LiveEvent] = []
    monkeypatch.setattr(bus, "deliver", heard.append)
    first = saved(project, ada)
    second = saved(project, ada, RETRY, supersedes=[first.pk])
    memories.delete(project_id=project.pk, memory_id=second.pk)
    assert [(event.type, event.id) for event in heard] == [
        ("memory.saved", first.public_id),
        ("memory.saved", second.public_id),
        ("memory.updated", first.public_id),
        ("memory.updated", first.public_id),
        ("memory.deleted", second.public_id),
    ]
    assert {event.project_id for event in heard} == {project.pk}
    assert heard[0].uris == (f"devflow://memory/{first.public_id}",)
