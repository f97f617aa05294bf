import pytest

from devflow.actors import SYSTEM, Actor
from devflow.errors import ErrorCode
from workflow.models import Event, Project, Status, Task
from workflow.services import claims, projects, tasks, transitions

from .scenes import fresh, joined, later, made, refused, status_of

pytestmark = pytest.mark.django_db


def claimed(project: Project, by: Actor, phase: int = 2) -> Task | None:
    return claims.claim(project_id=project.pk, phase_number=phase, actor=by).task


def finish(project: Project, task: Task, by: Actor, **more: object) -> transitions.Moved:
    return transitions.finish(project_id=project.pk, task_id=task.pk, actor=by, **more)  # type: ignore[arg-type]  # passed through


def test_tasks_are_claimed_boosted_first_then_by_priority_place_and_age(project: Project, ada: Actor) -> None:
    low, medium = made(project, ada, priority="low"), made(project, ada)
    high_late, high_first = made(project, ada, priority="high"), made(project, ada, priority="high")
    boosted = made(project, ada, priority="low")
    Task.objects.filter(pk=high_first.pk).update(position=1)
    Task.objects.filter(pk=boosted.pk).update(boosted=True)
    order = []
    for number in range(5):
        task = claimed(project, joined(project, f"a{number}"))
        assert task is not None
        order.append(task.pk)
    assert order == [boosted.pk, high_first.pk, high_late.pk, medium.pk, low.pk]


def test_asking_again_in_the_session_gives_the_same_task_and_another_session_gets_another(
    project: Project, ada: Actor
) -> None:
    made(project, ada), made(project, ada)
    first = claims.claim(project_id=project.pk, phase_number=2, actor=ada)
    again = claims.claim(project_id=project.pk, phase_number=2, actor=ada)
    assert first.task is not None and again.task is not None
    assert (again.task.pk, again.resumed, first.resumed) == (first.task.pk, True, False)
    assert again.task.lease_token == first.task.lease_token
    second = claims.claim(project_id=project.pk, phase_number=2, actor=joined(project, "ada", session="s2"))
    assert second.task is not None
    assert second.task.pk != first.task.pk


def test_nothing_to_claim_says_why(project: Project, ada: Actor, ben: Actor) -> None:
    assert claims.claim(project_id=project.pk, phase_number=2, actor=ada).reason == "none_ready"
    blocker = made(project, ada, phase=1)
    made(project, ada, blocked_by=[blocker.pk])
    assert claims.claim(project_id=project.pk, phase_number=2, actor=ada).reason == "all_blocked"
    made(project, ada), made(project, ada)
    project.phases.filter(number=2).update(wip_limit=1)
    assert claimed(project, ada) is not None
    assert claims.claim(project_id=project.pk, phase_number=2, actor=ben).reason == "wip_full"
    assert claims.claim(project_id=project.pk, phase_number=2, actor=ada).resumed


def test_the_projects_column_limit_holds_over_all_phases(project: Project, ada: Actor, ben: Actor) -> None:
    projects.configure(project_id=project.pk, actor=SYSTEM, column_limits={"in_progress": 1})
    made(project, ada, phase=1), made(project, ada, phase=2)
    assert claimed(project, ada, phase=1) is not None
    assert claims.claim(project_id=project.pk, phase_number=2, actor=ben).reason == "wip_full"


def test_an_unknown_phase_is_not_found(project: Project, ada: Actor) -> None:
    with refused(ErrorCode.NOT_FOUND, "Phase 7"):
        claims.claim(project_id=project.pk, phase_number=7, actor=ada)


def test_a_silent_holder_loses_the_task_and_a_late_write_is_a_conflict_that_changes_nothing(
    project: Project, ada: Actor, ben: Actor
) -> None:
    made(project, ada)
    task = claimed(project, ben)
    assert task is not None
    token = task.lease_token
    with later(minutes=31):
        for proof in ({"lease_token": token}, {}):
            with refused(ErrorCode.CONFLICT, "changed"):
                finish(project, task, ben, **proof)
        assert status_of(task) == Status.IN_PROGRESS
        taken = claimed(project, ada)
        assert taken is not None
        assert (taken.pk, taken.attempts) == (task.pk, 1)
        for proof in ({"lease_token": token}, {}):
            with refused(ErrorCode.CONFLICT):
                finish(project, task, ben, **proof)
        assert finish(project, taken, ada).task.status == Status.DONE
        with refused(ErrorCode.CONFLICT):
            finish(project, task, ben, lease_token=token)
    event = Event.objects.get(kind="task.lease_expired")
    assert (event.actor_kind, event.after["status"], event.after["attempts"]) == ("system", "ready", 1)


def test_one_who_reclaims_what_it_lost_cannot_use_the_old_lease(project: Project, ada: Actor) -> None:
    made(project, ada)
    task = claimed(project, ada)
    assert task is not None
    with later(minutes=31):
        again = claimed(project, ada)
        assert again is not None
        assert again.lease_token != task.lease_token
        with refused(ErrorCode.CONFLICT):
            finish(project, task, ada, lease_token=task.lease_token)
        finish(project, again, ada, lease_token=again.lease_token)
        with refused(ErrorCode.CONFLICT):
            finish(project, task, ada, lease_token=task.lease_token)
        assert finish(project, again, ada, lease_token=again.lease_token).unblocked == ()


def test_after_three_expired_leases_a_task_has_failed(project: Project, ada: Actor) -> None:
    task = made(project, ada)
    for attempt in range(3):
        with later(minutes=31 * attempt):
            assert claimed(project, joined(project, f"a{attempt}")) is not None
    with later(minutes=31 * 3):
        assert claims.claim(project_id=project.pk, phase_number=2, actor=ada).reason == "none_ready"
    assert (status_of(task), fresh(task).attempts) == (Status.FAILED, 3)


def test_the_sweep_tidies_many_expired_leases_in_a_constant_number_of_queries(
    project: Project, ada: Actor, django_assert_max_num_queries: pytest.FixtureRequest
) -> None:
    for number in range(12):
        made(project, ada)
        assert claimed(project, joined(project, f"a{number}")) is not None
    with later(minutes=31), django_assert_max_num_queries(10):  # type: ignore[operator]  # the fixture is a function
        assert claims.sweep_expired_leases() == 12
    with later(minutes=31):
        assert claims.sweep_expired_leases() == 0
    assert set(project.tasks.values_list("status", flat=True)) == {Status.READY}


def test_starting_a_task_claims_exactly_it_and_is_a_no_op_on_ones_own(project: Project, ada: Actor, ben: Actor) -> None:
    made(project, ada)
    wanted = made(project, ada)
    started = claims.start(project_id=project.pk, task_id=wanted.pk, actor=ben).task
    assert started is not None
    assert started.lease_token is not None
    version = fresh(wanted).version
    assert claims.start(project_id=project.pk, task_id=wanted.pk, actor=ben).resumed
    assert fresh(wanted).version == version
    with refused(ErrorCode.CONFLICT, "claimed by ben"):
        claims.start(project_id=project.pk, task_id=wanted.pk, actor=ada)


def test_starting_a_waiting_or_closed_task_is_a_conflict_that_names_the_ways(project: Project, ada: Actor) -> None:
    first = made(project, ada)
    waiting = made(project, ada, blocked_by=[first.pk])
    with refused(ErrorCode.CONFLICT, "is pending", "cancelled"):
        claims.start(project_id=project.pk, task_id=waiting.pk, actor=ada)
    finish(project, first, ada)
    with refused(ErrorCode.CONFLICT, "is done"):
        claims.start(project_id=project.pk, task_id=first.pk, actor=ada)


def test_a_released_task_is_ready_for_others(project: Project, ada: Actor, ben: Actor) -> None:
    made(project, ada)
    task = claimed(project, ben)
    assert task is not None
    with refused(ErrorCode.CONFLICT, "claimed by ben"):
        claims.release(project_id=project.pk, task_id=task.pk, actor=ada)
    claims.release(project_id=project.pk, task_id=task.pk, actor=ben)
    row = fresh(task)
    assert (row.status, row.assigned_agent_id, row.lease_token, row.attempts) == (Status.READY, None, None, 0)
    with refused(ErrorCode.CONFLICT):
        claims.release(project_id=project.pk, task_id=task.pk, actor=ben)


def test_a_held_task_that_gets_blocked_waits_when_it_is_given_back(project: Project, ada: Actor) -> None:
    made(project, ada)
    task = claimed(project, ada)
    assert task is not None
    tasks.hold_back(project_id=project.pk, task_id=task.pk, reason="legal", actor=ada)
    assert status_of(task) == Status.IN_PROGRESS
    with later(minutes=31):
        claims.sweep_expired_leases()
    assert status_of(task) == Status.PENDING
