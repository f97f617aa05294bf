"""The same change to many tasks: each stands for itself."""

import pytest

from devflow.actors import Actor
from devflow.errors import ErrorCode
from workflow.models import Event, Project, Task
from workflow.services import bulk, claims, tasks

from .scenes import fresh, made, person_named, refused

pytestmark = pytest.mark.django_db


@pytest.fixture
def mia(db: None) -> Actor:
    return person_named("mia")


def apply(project: Project, some: list[Task], by: Actor, **change: object) -> list[tuple[str, bool]]:
    wanted = bulk.Change(**change)  # type: ignore[arg-type]  # what a test gives
    done = bulk.apply(project_id=project.pk, task_ids=[one.pk for one in some], change=wanted, actor=by)
    return [(one.task_id, one.ok) for one in done]


def test_what_is_refused_does_not_stop_the_rest_and_says_why(project: Project, ada: Actor, mia: Actor) -> None:
    first, second = made(project, ada), made(project, ada)
    waiting = made(project, ada, blocked_by=[first.pk])
    wanted = bulk.Change("move", column="in_progress")
    done = bulk.apply(
        project_id=project.pk, task_ids=[first.pk, waiting.pk, 999_999, second.public_id], change=wanted, actor=mia
    )
    assert [one.ok for one in done] == [True, False, False, True]
    assert "cannot become" in done[1].error
    assert "not" in done[2].error.lower()
    assert [fresh(one).status for one in (first, second, waiting)] == ["in_progress", "in_progress", "pending"]


def test_a_column_fills_up_and_refuses_the_rest(project: Project, ada: Actor, mia: Actor) -> None:
    project.column_limits = {"in_progress": 2}
    project.save()
    some = [made(project, ada) for _ in range(3)]
    assert [ok for _, ok in apply(project, some, mia, action="move", column="in_progress")] == [True, True, False]


def test_tags_are_added_and_taken_away_once(project: Project, ada: Actor, mia: Actor) -> None:
    one, two = made(project, ada, tags=["a"]), made(project, ada)
    for _ in range(2):
        assert all(ok for _, ok in apply(project, [one, two], mia, action="tag", tag=" b "))
    assert [fresh(task).tags for task in (one, two)] == [["a", "b"], ["b"]]
    assert Event.objects.filter(kind="task.edited").count() == 2
    apply(project, [one, two], mia, action="untag", tag="b")
    assert [fresh(task).tags for task in (one, two)] == [["a"], []]


def test_tasks_are_reserved_for_an_agent_and_opened_again(project: Project, ada: Actor, ben: Actor, mia: Actor) -> None:
    free, held = made(project, ada), made(project, ada)
    claims.start(project_id=project.pk, task_id=held.pk, actor=ada)
    assert [ok for _, ok in apply(project, [free, held], mia, action="assign", agent="ben")] == [True, False]
    assert fresh(free).reserved_for_id == ben.agent_id
    apply(project, [free], mia, action="assign", agent="")
    assert fresh(free).reserved_for_id is None
    assert [ok for _, ok in apply(project, [free], mia, action="assign", agent="nobody-here")] == [False]


def test_tasks_are_cancelled_and_those_of_another_project_are_not(
    project: Project, other: Project, ada: Actor, mia: Actor
) -> None:
    mine = made(project, ada)
    foreign = tasks.create(project_id=other.pk, phase_number=1, description="x", actor=mia)
    assert [ok for _, ok in apply(project, [mine, foreign], mia, action="cancel")] == [True, False]
    assert (fresh(mine).status, fresh(foreign).status) == ("cancelled", "ready")


def test_a_change_that_says_too_little_is_refused(project: Project) -> None:
    with refused(ErrorCode.INVALID_INPUT, "which column"):
        bulk.Change("move")
    with refused(ErrorCode.INVALID_INPUT, "which tag"):
        bulk.Change("tag", tag=" ")
