from typing import Any

import pytest

from devflow.actors import SYSTEM, Actor
from devflow.errors import ErrorCode
from workflow.models import Message, Note, Phase, Project, Status, Task
from workflow.services import claims, messages, projects, transitions
from workflow.services.tasks import Proof

from .scenes import fresh, joined, later, made, person_named, refused, status_of

pytestmark = pytest.mark.django_db


def started(project: Project, by: Actor) -> Task:
    task = made(project, by)
    claims.start(project_id=project.pk, task_id=task.pk, actor=by)
    return fresh(task)


def finish(project: Project, task: Task, by: Actor, **more: Any) -> Task:
    return transitions.finish(project_id=project.pk, task_id=task.pk, actor=by, **more).task


@pytest.fixture
def reviewed(project: Project) -> Project:
    return projects.configure(project_id=project.pk, actor=SYSTEM, require_review=True)


def test_finishing_closes_the_task_with_its_result_and_ends_the_lease(project: Project, ada: Actor) -> None:
    task = started(project, ada)
    done = finish(project, task, ada, result="All good", metadata={"commit": "abc"})
    assert (done.status, done.result, done.metadata, done.lease_token) == (
        Status.DONE, "All good", {"commit": "abc"}, None,
    )  # fmt: skip
    assert done.completed_at is not None
    assert done.assigned_agent_id == ada.agent_id


def test_finishing_again_changes_nothing(project: Project, ada: Actor) -> None:
    task = started(project, ada)
    version = finish(project, task, ada, result="first").version
    again = finish(project, task, ada, result="second", lease_token=task.lease_token)
    assert (again.version, again.result) == (version, "first")


def test_whoever_created_a_task_may_close_it_unclaimed_and_nobody_else(
    project: Project, ada: Actor, ben: Actor
) -> None:
    task = made(project, ada)
    with refused(ErrorCode.CONFLICT, "nobody has claimed it"):
        finish(project, task, ben)
    assert finish(project, task, ada).status == Status.DONE


def test_a_creator_cannot_close_what_another_holds_without_its_lease(project: Project, ada: Actor, ben: Actor) -> None:
    task = made(project, ada)
    held = claims.start(project_id=project.pk, task_id=task.pk, actor=ben).task
    assert held is not None
    with refused(ErrorCode.CONFLICT, "claimed by ben"):
        finish(project, task, ada)
    with refused(ErrorCode.CONFLICT, "not valid"):
        finish(project, task, ada, lease_token="guessed")
    assert finish(project, task, ada, lease_token=held.lease_token).status == Status.DONE


def test_another_session_of_the_agent_needs_the_lease(project: Project, ada: Actor) -> None:
    task = started(project, ada)
    elsewhere = joined(project, "ada", session="s2")
    with refused(ErrorCode.CONFLICT, "lease_token"):
        finish(project, task, elsewhere)
    assert finish(project, task, elsewhere, lease_token=task.lease_token).status == Status.DONE


def test_a_blocked_task_cannot_be_finished_naming_what_it_waits_for(project: Project, ada: Actor) -> None:
    first = made(project, ada)
    task = made(project, ada, blocked_by=[first.pk])
    with refused(ErrorCode.CONFLICT, f"{first.public_id} (ready)"):
        finish(project, task, ada)


def test_a_failed_task_waits_for_a_person_and_can_be_retried(project: Project, ada: Actor, ben: Actor) -> None:
    task = started(project, ada)
    with refused(ErrorCode.CONFLICT):
        transitions.fail(project_id=project.pk, task_id=task.pk, actor=ben)
    for _ in range(2):
        transitions.fail(project_id=project.pk, task_id=task.pk, actor=ada, result="no key")
    assert (fresh(task).status, fresh(task).result) == (Status.FAILED, "no key")
    with refused(ErrorCode.CONFLICT, "retry it"):
        claims.start(project_id=project.pk, task_id=task.pk, actor=ben)
    transitions.retry(project_id=project.pk, task_id=task.pk, actor=person_named("mia"))
    row = fresh(task)
    assert (row.status, row.iteration, row.attempts, row.assigned_agent_id) == (Status.READY, 2, 0, None)


def test_done_becomes_review_where_project_or_phase_asks_for_it(reviewed: Project, ada: Actor, ben: Actor) -> None:
    task = started(reviewed, ada)
    child = made(reviewed, ada, blocked_by=[task.pk])
    submitted = finish(reviewed, task, ada)
    assert (submitted.status, submitted.completed_at) == (Status.REVIEW, None)
    assert status_of(child) == Status.PENDING
    approved = transitions.review(project_id=reviewed.pk, task_id=task.pk, decision="approve", actor=ben)
    assert approved.task.status == Status.DONE
    assert approved.unblocked_ids == [child.public_id]
    with refused(ErrorCode.CONFLICT, "not in review"):
        transitions.review(project_id=reviewed.pk, task_id=task.pk, decision="approve", actor=ben)


def test_a_rejection_hands_the_task_back_to_its_agent_with_the_feedback(
    reviewed: Project, ada: Actor, ben: Actor
) -> None:
    task = started(reviewed, ada)
    finish(reviewed, task, ada)
    with refused(ErrorCode.INVALID_INPUT, "change"):
        transitions.review(project_id=reviewed.pk, task_id=task.pk, decision="reject", actor=ben)
    joined(reviewed, "ada")  # its session, as record_call keeps it
    transitions.review(project_id=reviewed.pk, task_id=task.pk, decision="reject", feedback="No tests", actor=ben)
    row = fresh(task)
    assert (row.status, row.iteration) == (Status.IN_PROGRESS, 2)
    assert row.lease_token not in (None, task.lease_token)
    assert Note.objects.get(kind="feedback").body == "No tests"
    assert "No tests" in Message.objects.get(recipient_id=ada.agent_id).body
    again = claims.claim(project_id=reviewed.pk, phase_number=2, actor=ada)
    assert again.task is not None
    assert (again.task.pk, again.resumed) == (task.pk, True)


def test_evidence_is_asked_for_where_the_phase_requires_it(project: Project, ada: Actor) -> None:
    Phase.objects.filter(project=project, number=2).update(requires_evidence=True)
    task = started(project, ada)
    count = task.phase.done_definitions.count()
    with refused(ErrorCode.PRECONDITION_FAILED, "Tests cover") as caught:
        finish(project, task, ada, evidence=[Proof(1, "https://ci/1", "url")])
    assert len(caught.value.details["missing"]) == count - 1
    done = finish(project, task, ada, evidence=[Proof(number, "shown") for number in range(1, count + 1)])
    assert done.status == Status.DONE


def test_cancelling_takes_the_task_from_its_holder_and_tells_it(project: Project, ada: Actor, ben: Actor) -> None:
    task = started(project, ada)
    with refused(ErrorCode.CONFLICT):
        transitions.cancel(project_id=project.pk, task_id=task.pk, actor=ben)
    mia = person_named("mia")
    for _ in range(2):
        transitions.cancel(project_id=project.pk, task_id=task.pk, actor=mia, reason="obsolete")
    assert status_of(task) == Status.CANCELLED
    assert Message.objects.get().body == f"{task.public_id} was cancelled: obsolete"
    with refused(ErrorCode.CONFLICT, "is cancelled"):
        transitions.retry(project_id=project.pk, task_id=task.pk, actor=mia)


@pytest.mark.parametrize("operation", ["finish", "fail", "cancel", "retry"])
def test_another_projects_task_is_as_unknown_as_no_task(
    project: Project, other: Project, ada: Actor, operation: str
) -> None:
    foreign = made(other, ada)
    said = []
    for task_id in (foreign.public_id, "task-987654"):
        with refused(ErrorCode.NOT_FOUND) as caught:
            getattr(transitions, operation)(project_id=project.pk, task_id=task_id, actor=ada)
        said.append((caught.value.message.replace(task_id, "X"), caught.value.suggestion))
    assert said[0] == said[1]


def test_messages_reach_one_all_or_a_phase(project: Project, ada: Actor, ben: Actor) -> None:
    vera = joined(project, "vera")
    task = made(project, ada)
    claims.start(project_id=project.pk, task_id=task.pk, actor=vera)
    assert [row.recipient.name for row in messages.send(project_id=project.pk, to="ben", body="hi", actor=ada)] == [
        "ben"
    ]
    everybody = messages.send(project_id=project.pk, to="*", body="hi", actor=ada)
    assert sorted(row.recipient.name for row in everybody) == ["ben", "vera"]
    assert [row.recipient.name for row in messages.send(project_id=project.pk, to="phase:2", body="hi", actor=ada)] == [
        "vera"
    ]
    with refused(ErrorCode.NOT_FOUND, "Agent nobody"):
        messages.send(project_id=project.pk, to="nobody", body="hi", actor=ada)
    with refused(ErrorCode.CONFLICT, "No other agent"):
        messages.send(project_id=project.pk, to="phase:1", body="hi", actor=ada)
    with refused(ErrorCode.INVALID_INPUT):
        messages.send(project_id=project.pk, to="phase:x", body="hi", actor=ada)


def test_acknowledging_is_repeatable_and_only_for_ones_own_inbox(project: Project, ada: Actor, ben: Actor) -> None:
    assert ada.agent_id is not None and ben.agent_id is not None
    (sent,) = messages.send(project_id=project.pk, to="ben", body="hi", actor=ada)
    with refused(ErrorCode.NOT_FOUND, str(sent.pk)):
        messages.acknowledge(agent_id=ada.agent_id, message_ids=[sent.pk])
    assert messages.acknowledge(agent_id=ben.agent_id, message_ids=[sent.pk]) == 1
    assert messages.acknowledge(agent_id=ben.agent_id) == 0
    sent.refresh_from_db()
    assert sent.read_at is not None


def test_a_review_is_not_lost_when_the_agent_has_gone(reviewed: Project, ada: Actor, ben: Actor) -> None:
    task = started(reviewed, ada)
    finish(reviewed, task, ada)
    transitions.review(project_id=reviewed.pk, task_id=task.pk, decision="reject", feedback="More", actor=ben)
    with later(minutes=31):
        taken = claims.claim(project_id=reviewed.pk, phase_number=2, actor=ben)
        assert taken.task is not None
        assert taken.task.pk == task.pk
