"""Many at once, on the real database with real threads: what one winner per task means."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devflow.actors import SYSTEM, Actor
from workflow.models import Dependency, Event, Project, Status, Task
from workflow.services import claims, dependencies, projects, tasks, transitions

from .scenes import joined, made

pytestmark = pytest.mark.django_db(transaction=True)

CLAIMERS = 16
TASKS = 200


def together(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run every work on a thread of its own, all starting at the same moment; their results."""
    barrier = threading.Barrier(len(works))

    def one(work: Callable[[], Any]) -> Any:
        barrier.wait(timeout=30)
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(timeout=120) for future in [pool.submit(one, work) for work in works]]


def bulk(project: Project, number: int) -> None:
    phase = project.phases.get(number=2)
    Task.objects.bulk_create(
        Task(
            project=project, phase=phase, ref=ref, subject=f"t{ref}", description="x", status=Status.READY,
            position=ref, created_by="test",
        )
        for ref in range(1, number + 1)
    )  # fmt: skip


def each_once(history: Sequence[Sequence[int]], number: int) -> str:
    """The checker of a recorded history of claims: what is wrong with it, or nothing."""
    counts = Counter(pk for claimed in history for pk in claimed)
    twice = sum(1 for count in counts.values() if count > 1)
    return f"{twice} claimed twice, {number - len(counts)} lost" if twice or len(counts) != number else ""


def claim_all(project: Project, actor: Actor) -> list[int]:
    claimed = []
    while (task := claims.claim(project_id=project.pk, phase_number=2, actor=actor).task) is not None:
        claimed.append(task.pk)
        transitions.finish(project_id=project.pk, task_id=task.pk, actor=actor)
    return claimed


def test_sixteen_claimers_claim_two_hundred_tasks_each_exactly_once(project: Project) -> None:
    bulk(project, TASKS)
    actors = [joined(project, f"a{number}") for number in range(CLAIMERS)]
    history = together([lambda actor=actor: claim_all(project, actor) for actor in actors])  # type: ignore[misc]  # bound default
    assert each_once(history, TASKS) == ""
    logged = Event.objects.filter(kind="task.claimed").values_list("task_id", flat=True)
    assert sorted(logged) == sorted(pk for claimed in history for pk in claimed)
    assert set(Task.objects.values_list("status", flat=True)) == {Status.DONE}


def test_a_claim_that_reads_and_then_saves_fails_the_same_checker(project: Project) -> None:
    bulk(project, CLAIMERS)
    reading = threading.Barrier(CLAIMERS)

    def naive() -> list[int]:
        task = Task.objects.filter(status=Status.READY).order_by("position").first()
        reading.wait(timeout=30)
        assert task is not None
        task.status = Status.IN_PROGRESS
        task.save(update_fields=["status"])
        return [task.pk]

    assert "claimed twice" in each_once(together([naive] * CLAIMERS), CLAIMERS)


def test_one_agent_asking_many_times_at_once_holds_one_task(project: Project) -> None:
    bulk(project, CLAIMERS)
    ada = joined(project, "ada")
    won = together([lambda: claims.claim(project_id=project.pk, phase_number=2, actor=ada)] * 8)
    assert len({claim.task.pk for claim in won}) == 1
    assert [claim.resumed for claim in won].count(False) == 1


@pytest.mark.parametrize("where", ["phase", "project"])
def test_a_limit_holds_against_claims_at_the_same_moment(project: Project, where: str) -> None:
    bulk(project, CLAIMERS)
    if where == "phase":
        project.phases.filter(number=2).update(wip_limit=3)
    else:
        projects.configure(project_id=project.pk, actor=SYSTEM, column_limits={"in_progress": 3})
    actors = [joined(project, f"a{number}") for number in range(CLAIMERS)]
    won = together(
        [lambda a=a: claims.claim(project_id=project.pk, phase_number=2, actor=a).reason for a in actors]  # type: ignore[misc]  # bound default
    )
    assert Counter(won) == {None: 3, "wip_full": CLAIMERS - 3}


def test_refs_and_creations_at_the_same_moment_do_not_meet(project: Project) -> None:
    actors = [joined(project, f"a{number}") for number in range(8)]
    together([lambda a=a: [made(project, a) for _ in range(5)] for a in actors])  # type: ignore[misc]  # bound default
    assert sorted(project.tasks.values_list("ref", flat=True)) == list(range(1, 41))


def test_blockers_that_close_at_the_same_moment_make_the_child_ready_exactly_once(project: Project) -> None:
    actors = [joined(project, f"a{number}") for number in range(8)]
    blockers = [made(project, actor) for actor in actors]
    child = made(project, actors[0], blocked_by=[task.pk for task in blockers])
    told = together(
        [
            lambda a=a, t=t: transitions.finish(project_id=project.pk, task_id=t.pk, actor=a).unblocked  # type: ignore[misc]  # bound default
            for a, t in zip(actors, blockers, strict=True)
        ]
    )
    assert sorted(told) == [()] * 7 + [(child.pk,)]
    assert Event.objects.filter(kind="task.ready", task=child).count() == 1


def test_a_task_created_while_its_blocker_closes_is_ready_in_the_end(project: Project) -> None:
    ada, ben = joined(project, "ada"), joined(project, "ben")
    for _ in range(10):
        blocker = made(project, ada)
        made_one, _ = together(
            [
                lambda b=blocker: made(project, ben, blocked_by=[b.pk]),  # type: ignore[misc]  # bound default
                lambda b=blocker: transitions.finish(project_id=project.pk, task_id=b.pk, actor=ada),  # type: ignore[misc]  # bound default
            ]
        )
        assert Task.objects.get(pk=made_one.pk).status == Status.READY


def test_two_halves_of_a_cycle_at_the_same_moment_leave_one_of_them_out(project: Project) -> None:
    from devflow.errors import DevFlowError

    ada = joined(project, "ada")

    def adds(here: Task, there: Task) -> bool:
        try:
            dependencies.add(project_id=project.pk, task_id=here.pk, blocked_by=[there.pk], actor=ada)
        except DevFlowError:
            return False
        return True

    for _ in range(5):
        a, b = made(project, ada), made(project, ada)
        assert sorted(together([lambda a=a, b=b: adds(a, b), lambda a=a, b=b: adds(b, a)])) == [False, True]  # type: ignore[misc]  # bound default


def test_two_openings_of_a_phase_at_the_same_moment_miss_nothing(project: Project) -> None:
    second = project.phases.get(number=2)
    second.entry_phase, second.entry_done_tasks = project.phases.get(number=1), 4
    second.save()
    actors = [joined(project, f"a{number}") for number in range(4)]
    before = [made(project, actor, phase=1) for actor in actors]
    waiting = made(project, actors[0], phase=2)
    together(
        [
            lambda a=a, t=t: transitions.finish(project_id=project.pk, task_id=t.pk, actor=a)  # type: ignore[misc]  # bound default
            for a, t in zip(actors, before, strict=True)
        ]
    )
    assert Task.objects.get(pk=waiting.pk).status == Status.READY


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_random_graph_worked_by_four_finishes_with_every_task_ready_exactly_once(
    project: Project, data: st.DataObject
) -> None:
    size = data.draw(st.integers(2, 12))
    edges = {
        (child, data.draw(st.integers(0, child - 1)))
        for child in range(1, size)
        for _ in range(data.draw(st.integers(0, 3)))
    }
    project.tasks.all().delete()
    Event.objects.all().delete()
    actors = [joined(project, f"a{number}") for number in range(4)]
    nodes: list[Task] = []
    for number in range(size):
        nodes.append(made(project, actors[0], blocked_by=[nodes[there].pk for here, there in edges if here == number]))

    def work(actor: Actor) -> list[int]:
        done: list[int] = []
        while Task.objects.filter(project=project).exclude(status=Status.DONE).exists():
            done += claim_all(project, actor)
        return done

    history = together([lambda a=a: work(a) for a in actors])  # type: ignore[misc]  # bound default
    assert each_once(history, size) == ""
    readied = Counter(Event.objects.filter(kind="task.ready").values_list("task_id", flat=True))
    waiting = {nodes[here].pk for here, _ in edges}
    assert readied == dict.fromkeys(waiting, 1)
    created = Event.objects.filter(kind="task.created")
    assert {event.task_id for event in created if event.after["status"] == Status.PENDING} == waiting


def test_a_rolled_back_claim_leaves_the_task_ready(project: Project) -> None:
    bulk(project, 1)
    ada = joined(project, "ada")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        claims.claim(project_id=project.pk, phase_number=2, actor=ada)
        raise ZeroDivisionError
    assert claims.claim(project_id=project.pk, phase_number=2, actor=ada).resumed is False


def test_the_feed_keeps_back_what_an_open_transaction_could_still_precede(project: Project) -> None:
    from workflow.selectors import activity

    ada = joined(project, "ada")
    start = activity.newest(project_id=project.pk)
    if connection.vendor != "postgresql":
        made(project, ada)
        assert [event.kind for event in activity.since(project_id=project.pk, sequence=start)] == [
            "task.created",
        ]
        return
    written, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        try:
            with transaction.atomic():
                made(project, ada, "slow")
                written.set()
                assert go_on.wait(timeout=30)
        finally:
            connections.close_all()

    thread = threading.Thread(target=slow)
    thread.start()
    assert written.wait(timeout=30)
    # another event, of a later id, commits first
    tasks.add_note(
        project_id=project.pk, task_id=Task.objects.create(
            project=project, phase=project.phases.get(number=1), ref=random.randint(1000, 9999), subject="x",
            description="x", created_by="test",
        ).pk, body="quick", actor=ada,
    )  # fmt: skip
    assert activity.since(project_id=project.pk, sequence=start) == []
    go_on.set()
    thread.join(timeout=30)
    caught_up = activity.since(project_id=project.pk, sequence=start)
    assert [event.kind for event in caught_up] == ["task.created", "task.noted"]
    assert Dependency.objects.count() == 0


def test_ids_that_cross_their_transactions_lose_no_event(project: Project) -> None:
    """A transaction that began earlier may log a higher id: reading on from it still finds the lower one."""
    from workflow.selectors import activity

    ada = joined(project, "ada")
    start = activity.newest(project_id=project.pk)
    task = made(project, ada)
    tasks.add_note(project_id=project.pk, task_id=task.pk, body="second", actor=ada)
    lower, higher = Event.objects.filter(project=project, pk__gt=start).order_by("pk")
    if connection.vendor == "postgresql":
        Event.objects.filter(pk=higher.pk).update(transaction=lower.transaction - 1)
    order = [lower.pk, higher.pk] if connection.vendor != "postgresql" else [higher.pk, lower.pk]
    read = []
    sequence = start
    while found := activity.since(project_id=project.pk, sequence=sequence, limit=1):
        read.append(sequence := found[0].pk)
    assert read == order
    assert activity.newest(project_id=project.pk) == order[-1]
