from typing import Any

import pytest

from devflow.actors import SYSTEM, Actor
from devflow.errors import ErrorCode
from workflow.models import Event, Message, Project, Status, Task
from workflow.selectors import board as board_selectors
from workflow.selectors import tasks as task_selectors
from workflow.services import board, claims, projects, tasks, transitions

from .scenes import fresh, joined, later, made, person_named, refused, status_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def mia(db: None) -> Actor:
    return person_named("mia")


def moved(project: Project, task: Task, column: Any, by: Actor, **more: Any) -> Status:
    board.move(project_id=project.pk, task_id=task.pk, column=column, actor=by, **more)
    return status_of(task)


def placed(project: Project) -> list[int]:
    return list(project.tasks.order_by("position").values_list("pk", flat=True))


def test_every_status_stands_in_its_column_and_counts_are_exact(project: Project, ada: Actor) -> None:
    done, failed, running, ready = (made(project, ada) for _ in range(4))
    gone = made(project, ada)
    waiting = made(project, ada, blocked_by=[ready.pk])
    for task in (failed, running):
        claims.start(project_id=project.pk, task_id=task.pk, actor=ada)
    transitions.fail(project_id=project.pk, task_id=failed.pk, actor=ada)
    transitions.finish(project_id=project.pk, task_id=done.pk, actor=ada)
    transitions.cancel(project_id=project.pk, task_id=gone.pk, actor=ada)
    seen = board_selectors.board(project=project)
    assert {name: [card.pk for card in cards] for name, cards in seen.columns.items()} == {
        "backlog": [waiting.pk],
        "ready": [ready.pk],
        "in_progress": [running.pk],
        "review": [failed.pk],
        "done": [done.pk],
    }
    assert (seen.total, seen.blocked, seen.failed) == (5, 1, 1)
    (card,) = seen.columns["backlog"]
    assert [(blocker.public_id, blocker.status) for blocker in card.blockers] == [(ready.public_id, "ready")]


def test_an_expired_lease_shows_as_ready_before_any_sweep(project: Project, ada: Actor) -> None:
    task = made(project, ada)
    claims.start(project_id=project.pk, task_id=task.pk, actor=ada)
    with later(minutes=31):
        seen = board_selectors.board(project=project)
        (card,) = seen.columns["ready"]
        assert (card.pk, card.status, seen.counts["in_progress"]) == (task.pk, "ready", 0)
        assert [c.pk for c in task_selectors.cards(task_selectors.find(project_id=project.pk, status="ready"))] == [
            task.pk
        ]
    Task.objects.filter(pk=task.pk).update(attempts=2)
    with later(minutes=31):
        assert [card.status for card in board_selectors.board(project=project).columns["review"]] == ["failed"]
    assert status_of(task) == Status.IN_PROGRESS


def test_a_long_column_is_cut_and_says_so(project: Project, ada: Actor) -> None:
    for _ in range(5):
        made(project, ada)
    seen = board_selectors.board(project=project, max_cards=3)
    assert (len(seen.columns["ready"]), seen.counts["ready"], seen.truncated["ready"]) == (3, 5, True)
    assert not seen.truncated["done"]


def test_the_board_takes_the_same_queries_for_few_and_many_tasks(
    project: Project, ada: Actor, django_assert_max_num_queries: Any
) -> None:
    previous = made(project, ada)
    for number in range(40):
        task = made(project, ada, blocked_by=[previous.pk] if number % 2 else [])
        if number % 10 == 0:
            transitions.finish(project_id=project.pk, task_id=task.pk, actor=ada)
        previous = task if number % 10 else previous
    with django_assert_max_num_queries(7):
        assert board_selectors.board(project=project).total == 41
    with django_assert_max_num_queries(2):
        task_selectors.cards(task_selectors.find(project_id=project.pk)[:200])


def test_people_start_finish_and_take_back_by_dragging(project: Project, ada: Actor, mia: Actor) -> None:
    task = made(project, ada)
    assert moved(project, task, "in_progress", mia) == Status.IN_PROGRESS
    assert fresh(task).lease_token is None
    assert moved(project, task, "ready", mia) == Status.READY
    claims.start(project_id=project.pk, task_id=task.pk, actor=ada)
    assert moved(project, task, "ready", mia) == Status.READY
    assert "taken back" in Message.objects.get(recipient_id=ada.agent_id).body
    moved(project, task, "in_progress", mia)
    assert moved(project, task, "done", mia) == Status.DONE


def test_an_agent_can_take_up_what_a_person_dragged_to_in_progress(
    project: Project, ada: Actor, ben: Actor, mia: Actor
) -> None:
    task = made(project, ada)
    moved(project, task, "in_progress", mia)
    assert claims.start(project_id=project.pk, task_id=task.pk, actor=ben).task is not None
    assert fresh(task).assigned_agent_id == ben.agent_id


@pytest.mark.parametrize("column", ["done", "review", "backlog"])
def test_an_illegal_drop_is_a_conflict_that_names_the_legal_ones(
    project: Project, ada: Actor, mia: Actor, column: str
) -> None:
    task = made(project, ada)
    with refused(ErrorCode.CONFLICT, "is ready", "in_progress (claim it)"):
        moved(project, task, column, mia)


def test_a_full_column_refuses_a_drop(project: Project, ada: Actor, mia: Actor) -> None:
    projects.configure(project_id=project.pk, actor=SYSTEM, column_limits={"in_progress": 1})
    first, second = made(project, ada), made(project, ada)
    moved(project, first, "in_progress", mia)
    with refused(ErrorCode.CONFLICT, "full"):
        moved(project, second, "in_progress", mia)


def test_a_drop_on_an_older_version_is_a_conflict(project: Project, ada: Actor, mia: Actor) -> None:
    task = made(project, ada)
    tasks.edit(project_id=project.pk, task_id=task.pk, actor=mia, subject="Other")
    with refused(ErrorCode.CONFLICT, "changed meanwhile"):
        moved(project, task, "in_progress", mia, version=task.version)


def test_cards_keep_the_place_they_were_dropped_at(project: Project, ada: Actor, mia: Actor) -> None:
    a, b, c = made(project, ada), made(project, ada), made(project, ada)
    moved(project, c, "ready", mia, after_id=a.pk)
    assert placed(project) == [a.pk, c.pk, b.pk]
    moved(project, b, "ready", mia, before_id=a.pk)
    assert placed(project) == [b.pk, a.pk, c.pk]
    for _ in range(15):  # gaps run out and are spread again
        moved(project, c, "ready", mia, after_id=b.pk)
        moved(project, a, "ready", mia, after_id=b.pk)
    assert placed(project) == [b.pk, a.pk, c.pk]
    with refused(ErrorCode.NOT_FOUND):
        moved(project, a, "ready", mia, after_id=99999)


def test_undo_puts_the_task_back_and_its_dependents_wait_again(project: Project, ada: Actor) -> None:
    task = made(project, ada)
    child = made(project, ada, blocked_by=[task.pk])
    claims.start(project_id=project.pk, task_id=task.pk, actor=ada)
    transitions.finish(project_id=project.pk, task_id=task.pk, actor=ada, result="oops")
    assert status_of(child) == Status.READY
    back = board.undo_last_move(project_id=project.pk, task_id=task.pk, actor=ada).task
    row = fresh(task)
    assert (row.status, row.completed_at, row.result) == (Status.IN_PROGRESS, None, "")
    assert row.lease_token is not None
    assert status_of(child) == Status.PENDING
    assert claims.current(agent_id=ada.agent_id or 0, session="s1") == back
    assert Event.objects.filter(kind="task.undone").count() == 1
    with refused(ErrorCode.CONFLICT, "no move"):
        board.undo_last_move(project_id=project.pk, task_id=task.pk, actor=ada)


def test_undo_of_a_claim_makes_the_task_ready_and_tells_the_agent(project: Project, ada: Actor, mia: Actor) -> None:
    task = made(project, ada)
    claims.claim(project_id=project.pk, phase_number=2, actor=ada)
    board.undo_last_move(project_id=project.pk, task_id=task.pk, actor=mia)
    row = fresh(task)
    assert (row.status, row.lease_token, row.assigned_agent_id) == (Status.READY, None, None)
    assert "taken back" in Message.objects.get().body


def test_undo_is_a_conflict_once_the_task_changed_and_agents_undo_only_their_own(
    project: Project, ada: Actor, ben: Actor
) -> None:
    task = made(project, ada)
    transitions.finish(project_id=project.pk, task_id=task.pk, actor=ada)
    with refused(ErrorCode.FORBIDDEN, "its own"):
        board.undo_last_move(project_id=project.pk, task_id=task.pk, actor=ben)
    tasks.edit(project_id=project.pk, task_id=task.pk, actor=ada, subject="New")
    with refused(ErrorCode.CONFLICT, "changed since"):
        board.undo_last_move(project_id=project.pk, task_id=task.pk, actor=ada)


def test_what_follows_a_move_by_itself_is_taken_back_with_it(project: Project, ada: Actor, mia: Actor) -> None:
    task = made(project, ada)
    claims.start(project_id=project.pk, task_id=task.pk, actor=ada)
    assert moved(project, task, "ready", mia) == "ready"  # released, and made ready by that
    board.undo_last_move(project_id=project.pk, task_id=task.pk, actor=mia, version=fresh(task).version)
    assert status_of(task) == "in_progress"
    transitions.fail(project_id=project.pk, task_id=task.pk, actor=mia)
    transitions.retry(project_id=project.pk, task_id=task.pk, actor=mia)
    assert status_of(task) == "ready"
    board.undo_last_move(project_id=project.pk, task_id=task.pk, actor=mia)
    assert status_of(task) == "failed"


def test_an_undo_takes_back_the_move_it_was_meant_for_and_no_other(project: Project, ada: Actor, mia: Actor) -> None:
    task = made(project, ada)
    claims.start(project_id=project.pk, task_id=task.pk, actor=ada)
    board.move(project_id=project.pk, task_id=task.pk, column="ready", actor=mia)
    version = fresh(task).version
    claims.start(project_id=project.pk, task_id=task.pk, actor=ada)
    with refused(ErrorCode.CONFLICT, "changed meanwhile"):
        board.undo_last_move(project_id=project.pk, task_id=task.pk, actor=mia, version=version)
    assert status_of(task) == "in_progress"


def test_undo_refuses_another_projects_event(project: Project, other: Project, ada: Actor) -> None:
    task = made(project, ada)
    transitions.finish(project_id=project.pk, task_id=task.pk, actor=ada)
    event = Event.objects.get(kind="task.done")
    with refused(ErrorCode.NOT_FOUND):
        board.undo(project_id=other.pk, event_id=event.pk, actor=ada)


def test_undo_of_every_kind_of_drop(project: Project, ada: Actor, mia: Actor) -> None:
    task = made(project, ada)
    for column, before in (("in_progress", Status.READY), ("done", Status.IN_PROGRESS)):
        moved(project, task, column, mia)
        board.undo_last_move(project_id=project.pk, task_id=task.pk, actor=mia)
        assert status_of(task) == before
        moved(project, task, column, mia)
    other_task = made(project, ada)
    transitions.cancel(project_id=project.pk, task_id=other_task.pk, actor=mia)
    board.undo_last_move(project_id=project.pk, task_id=other_task.pk, actor=mia)
    assert status_of(other_task) == Status.READY
    joined(project, "zoe")
