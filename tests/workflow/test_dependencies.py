import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devflow.actors import Actor
from devflow.errors import DevFlowError, ErrorCode
from workflow.models import Dependency, Event, Project, Status
from workflow.services import dependencies, tasks, transitions
from workflow.services.dependencies import find_path

from .scenes import joined, made, person_named, refused, status_of

pytestmark = pytest.mark.django_db


def finish(project: Project, task_id: int, by: Actor) -> list[str]:
    return transitions.finish(project_id=project.pk, task_id=task_id, actor=by).unblocked_ids


def test_the_last_blocker_to_close_makes_the_task_ready_and_is_told_so(project: Project, ada: Actor) -> None:
    first, second = made(project, ada), made(project, ada)
    child = made(project, ada, blocked_by=[first.pk, second.pk])
    assert finish(project, first.pk, ada) == []
    assert status_of(child) == Status.PENDING
    assert finish(project, second.pk, ada) == [child.public_id]
    assert status_of(child) == Status.READY
    assert Event.objects.filter(kind="task.ready", task=child).count() == 1


def test_failed_and_cancelled_blockers_unblock_nothing(project: Project, ada: Actor) -> None:
    first, second = made(project, ada), made(project, ada)
    child = made(project, ada, blocked_by=[first.pk, second.pk])
    transitions.cancel(project_id=project.pk, task_id=first.pk, actor=ada)
    assert finish(project, second.pk, ada) == []
    assert transitions.blocked_by(child) == [f"{first.public_id} (cancelled)"]


def test_a_task_held_back_is_not_among_the_unblocked(project: Project, ada: Actor) -> None:
    first = made(project, ada)
    child = made(project, ada, blocked_by=[first.pk])
    tasks.hold_back(project_id=project.pk, task_id=child.pk, reason="not yet", actor=ada)
    assert finish(project, first.pk, ada) == []
    assert status_of(child) == Status.PENDING


def test_a_new_dependency_makes_a_ready_task_wait_and_repeating_it_changes_nothing(
    project: Project, ada: Actor
) -> None:
    first, second = made(project, ada), made(project, ada)
    for _ in range(2):
        dependencies.add(project_id=project.pk, task_id=second.pk, blocked_by=[first.pk], actor=ada)
    assert status_of(second) == Status.PENDING
    assert Dependency.objects.count() == 1
    dependencies.remove(project_id=project.pk, task_id=second.pk, blocker_id=first.public_id, actor=ada)
    assert status_of(second) == Status.READY
    with refused(ErrorCode.NOT_FOUND):
        dependencies.remove(project_id=project.pk, task_id=second.pk, blocker_id=first.pk, actor=ada)


def test_a_cycle_is_refused_naming_its_tasks(project: Project, ada: Actor) -> None:
    a, b, c = made(project, ada), made(project, ada), made(project, ada)
    dependencies.add(project_id=project.pk, task_id=a.pk, blocked_by=[b.pk], actor=ada)
    dependencies.add(project_id=project.pk, task_id=b.pk, blocked_by=[c.pk], actor=ada)
    with refused(
        ErrorCode.CONFLICT,
        f"{c.public_id} waits for {a.public_id} waits for {b.public_id} waits for {c.public_id}",
    ):
        dependencies.add(project_id=project.pk, task_id=c.pk, blocked_by=[a.pk], actor=ada)
    with refused(ErrorCode.CONFLICT, f"{a.public_id} waits for {a.public_id}"):
        dependencies.add(project_id=project.pk, task_id=a.pk, blocked_by=[a.pk], actor=ada)
    assert Dependency.objects.count() == 2


def test_another_projects_task_cannot_be_waited_for(project: Project, other: Project, ada: Actor) -> None:
    task, foreign = made(project, ada), made(other, ada)
    with refused(ErrorCode.NOT_FOUND, foreign.public_id):
        dependencies.add(project_id=project.pk, task_id=task.pk, blocked_by=[foreign.pk], actor=ada)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=25))
def test_whatever_is_added_the_graph_stays_without_cycles(
    project: Project, ada: Actor, edges: list[tuple[int, int]]
) -> None:
    nodes = [made(project, ada) for _ in range(8)]
    kept: set[tuple[int, int]] = set()
    for here, there in edges:
        closes = find_path(kept, start=there, goal=here) is not None
        try:
            dependencies.add(project_id=project.pk, task_id=nodes[here].pk, blocked_by=[nodes[there].pk], actor=ada)
            assert not closes
            kept.add((here, there))
        except DevFlowError as exc:
            assert exc.code is ErrorCode.CONFLICT
            assert closes
    stored = set(Dependency.objects.filter(task__in=[node.pk for node in nodes]).values_list("task_id", "blocker_id"))
    assert stored == {(nodes[here].pk, nodes[there].pk) for here, there in kept}


def test_a_phase_opens_when_enough_work_before_it_is_done_and_shuts_when_that_is_undone(
    project: Project, ada: Actor
) -> None:
    from workflow.services import board

    second = project.phases.get(number=2)
    second.entry_phase, second.entry_done_tasks = project.phases.get(number=1), 2
    second.save()
    one, two = made(project, ada, phase=1), made(project, ada, phase=1)
    waiting = made(project, ada, phase=2)
    assert status_of(waiting) == Status.PENDING
    assert finish(project, one.pk, ada) == []
    assert status_of(waiting) == Status.PENDING
    finish(project, two.pk, ada)
    assert status_of(waiting) == Status.READY
    board.undo_last_move(project_id=project.pk, task_id=two.pk, actor=person_named("mia"))
    assert status_of(waiting) == Status.PENDING


def test_a_diamond_of_dependencies_opens_each_task_once(project: Project) -> None:
    ada = joined(project, "ada")
    top = made(project, ada)
    left, right = made(project, ada, blocked_by=[top.pk]), made(project, ada, blocked_by=[top.pk])
    bottom = made(project, ada, blocked_by=[left.pk, right.pk])
    assert finish(project, top.pk, ada) == [left.public_id, right.public_id]
    assert finish(project, left.pk, ada) == []
    assert finish(project, right.pk, ada) == [bottom.public_id]
