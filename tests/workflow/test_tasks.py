import pytest
from hypothesis import given
from hypothesis import strategies as st

from devflow.actors import Actor
from devflow.errors import ErrorCode
from workflow.models import Event, Note, Project, Status, Task
from workflow.selectors import tasks as task_selectors
from workflow.services import tasks
from workflow.services.tasks import Proof, subject_of

from .scenes import fresh, made, refused, status_of

pytestmark = pytest.mark.django_db


def test_a_task_without_blockers_is_ready_at_once(project: Project, ada: Actor) -> None:
    task = made(project, ada, "# Build login\n\nWith tests.", priority="high", tags=["auth", "auth", " api "])
    assert task.status == Status.READY
    assert task.subject == "Build login"
    assert task.priority_name == "high"
    assert task.tags == ["auth", "api"]
    assert task.created_by == "ada"
    assert fresh(task).ready_since is not None


def test_a_task_with_an_open_blocker_waits(project: Project, ada: Actor) -> None:
    first = made(project, ada)
    assert made(project, ada, blocked_by=[first.public_id]).status == Status.PENDING


def test_refs_count_inside_each_project(project: Project, other: Project, ada: Actor) -> None:
    assert [made(project, ada).ref for _ in range(3)] == [1, 2, 3]
    assert made(other, ada).ref == 1


def test_creating_refuses_unknown_and_foreign_things_alike(project: Project, other: Project, ada: Actor) -> None:
    foreign = made(other, ada)
    with refused(ErrorCode.NOT_FOUND, "Phase 9", "1, 2, 3"):
        made(project, ada, phase=9)
    for blocker in (foreign.public_id, "task-999999"):
        with refused(ErrorCode.NOT_FOUND, f"{blocker} was not found"):
            made(project, ada, blocked_by=[blocker])
        with refused(ErrorCode.NOT_FOUND):
            made(project, ada, parent=blocker)
    with refused(ErrorCode.INVALID_INPUT):
        made(project, ada, "  \n ")
    assert not project.tasks.exists()
    assert made(project, ada).ref == 1


@given(st.text())
def test_a_subject_is_one_line_of_at_most_255_characters(text: str) -> None:
    subject = subject_of(text)
    assert 1 <= len(subject) <= 255
    assert "\n" not in subject


def test_an_edit_on_an_older_version_is_a_conflict_and_changes_nothing(project: Project, ada: Actor) -> None:
    task = made(project, ada)
    version = task.version
    tasks.edit(project_id=project.pk, task_id=task.pk, actor=ada, version=version, subject="First")
    with refused(ErrorCode.CONFLICT, "changed meanwhile") as caught:
        tasks.edit(project_id=project.pk, task_id=task.pk, actor=ada, version=version, subject="Second")
    assert caught.value.details == {"version": version + 1, "yours": version}
    assert fresh(task).subject == "First"


def test_every_change_is_logged_with_before_and_after(project: Project, ada: Actor) -> None:
    task = made(project, ada)
    tasks.edit(project_id=project.pk, task_id=task.pk, actor=ada, subject="New", priority="low")
    event = Event.objects.get(kind="task.edited")
    assert (event.actor_kind, event.actor_name, event.tool, event.task_id) == ("agent", "ada", "test", task.pk)
    assert event.before["subject"] == "Do it"
    assert event.after["subject"] == "New"
    assert event.after["version"] == event.before["version"] + 1


def test_moving_a_task_to_another_phase_asks_that_phases_entry_rule(project: Project, ada: Actor) -> None:
    task = made(project, ada, phase=1)
    second = project.phases.get(number=2)
    second.entry_phase = project.phases.get(number=1)
    second.save()
    assert tasks.edit(project_id=project.pk, task_id=task.pk, actor=ada, phase_number=2).status == Status.PENDING


def test_a_task_held_back_by_hand_waits_until_it_is_let_go(project: Project, ada: Actor) -> None:
    task = made(project, ada)
    tasks.hold_back(project_id=project.pk, task_id=task.pk, reason="Wait for the key", actor=ada)
    assert status_of(task) == Status.PENDING
    tasks.hold_back(project_id=project.pk, task_id=task.pk, reason="", actor=ada)
    assert status_of(task) == Status.READY


def test_notes_say_something_and_belong_to_a_task_of_the_project(project: Project, other: Project, ada: Actor) -> None:
    task = made(project, ada)
    tasks.add_note(project_id=project.pk, task_id=task.public_id, body="Found it", actor=ada)
    assert Note.objects.get().body == "Found it"
    with refused(ErrorCode.INVALID_INPUT):
        tasks.add_note(project_id=project.pk, task_id=task.pk, body=" ", actor=ada)
    with refused(ErrorCode.NOT_FOUND):
        tasks.add_note(project_id=other.pk, task_id=task.pk, body="x", actor=ada)


def test_evidence_names_a_definition_by_number_or_text_and_a_second_proof_replaces(
    project: Project, ada: Actor
) -> None:
    task = made(project, ada)
    text = task.phase.done_definitions.all()[1].text
    tasks.add_evidence(
        project_id=project.pk, task_id=task.pk, actor=ada, proofs=[Proof(1, "a"), Proof(text.upper(), "b", "commit")]
    )
    tasks.add_evidence(project_id=project.pk, task_id=task.pk, actor=ada, proofs=[Proof("1", "c")])
    assert sorted(task.evidence.values_list("content", "kind")) == [("b", "commit"), ("c", "text")]
    assert len(tasks.missing_evidence(task)) == 1
    with refused(ErrorCode.INVALID_INPUT, "1. The change does"):
        tasks.add_evidence(project_id=project.pk, task_id=task.pk, actor=ada, proofs=[Proof(9, "x")])
    with refused(ErrorCode.INVALID_INPUT, "1. The change does"):  # a digit that is no number
        tasks.add_evidence(
            project_id=project.pk, task_id=task.pk, actor=ada, proofs=[Proof("\N{SUPERSCRIPT TWO}", "x")]
        )


def test_tasks_are_found_by_all_of_some_tags(project: Project, ada: Actor) -> None:
    both = made(project, ada, tags=["a", "é\"'%"])
    made(project, ada, tags=["a"])
    made(project, ada, tags=["ab"])
    found = task_selectors.find(project_id=project.pk, tags=["a", "é\"'%"])
    assert list(found.values_list("pk", flat=True)) == [both.pk]
    assert Task.objects.filter(tags__has="a").count() == 2


def test_tasks_are_found_by_phase_status_and_text(project: Project, ada: Actor) -> None:
    first = made(project, ada, "Alpha", phase=1)
    waiting = made(project, ada, "Beta", blocked_by=[first.pk])
    assert [card.pk for card in task_selectors.cards(task_selectors.find(project_id=project.pk, phase_number=1))] == [
        first.pk
    ]
    (card,) = task_selectors.cards(task_selectors.find(project_id=project.pk, status="blocked"))
    assert (card.pk, card.blocked, [blocker.public_id for blocker in card.blockers]) == (
        waiting.pk,
        True,
        [first.public_id],
    )
    assert [card.pk for card in task_selectors.cards(task_selectors.find(project_id=project.pk, text="alph"))] == [
        first.pk
    ]
