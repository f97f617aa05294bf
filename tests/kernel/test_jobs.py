import json
from collections.abc import Iterator

import pytest
import time_machine
from django.contrib.auth.models import Group
from django.db import transaction
from pytest_django import DjangoCaptureOnCommitCallbacks

from devflow import jobs
from devflow.config import ConfigError
from tests.kernel import job_examples
from tests.kernel.job_examples import seen, swept

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing seen, nothing waiting, nothing claimed."""
    seen.calls.clear()
    swept.calls.clear()
    jobs.queue().storage.flush_all()
    yield
    jobs.stop_embedded()
    jobs.queue().storage.flush_all()


@pytest.fixture
def consumer() -> Iterator[None]:
    jobs.start_embedded()
    yield
    jobs.stop_embedded()


@pytest.fixture(params=["redis", "postgres"])
def shared_queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The queue in a server other processes share."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "queue_url", lambda: url)
        jobs.queue.cache_clear()
        yield url
        jobs.stop_embedded()
        jobs.queue().storage.close()
    jobs.queue.cache_clear()


def test_a_job_is_a_plain_function_when_called() -> None:
    job_examples.record(1, label="now")
    assert seen.calls == [(1, "now")]


def test_a_delayed_job_runs_on_the_embedded_threads(consumer: None) -> None:
    job_examples.record.delay(7, label="later")
    assert seen.wait_for(1) == [(7, "later")]


def test_a_job_waits_for_the_commit_and_is_dropped_with_a_rollback() -> None:
    with transaction.atomic():
        job_examples.record.delay(1)
        assert jobs.queue().pending_count() == 0
    assert jobs.queue().pending_count() == 1
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        job_examples.record.delay(2)
        raise ZeroDivisionError
    assert jobs.queue().pending_count() == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failing_job_is_retried_as_often_as_it_asked_for(consumer: None) -> None:
    job_examples.fails_twice.delay()
    assert seen.wait_for(3) == ["tried"] * 3


def test_a_job_writes_to_the_database_and_leaves_no_connection_open(consumer: None) -> None:
    for number in range(4):
        job_examples.writes.delay(f"group {number}")
    seen.wait_for(4)
    assert Group.objects.count() == 4
    seen.calls.clear()
    for _ in range(4):
        job_examples.connection_state.delay()
    assert seen.wait_for(4) == ["closed"] * 4


def test_arguments_that_are_not_json_are_refused_where_they_are_given() -> None:
    for given in (object(), {1, 2}, (1, 2), float("nan"), {1: 2}):
        with pytest.raises(TypeError, match="JSON values"):
            job_examples.record.delay(given)  # type: ignore[arg-type]  # the point of the test
    assert jobs.queue().pending_count() == 0


def test_what_waits_in_the_queue_is_signed_json_and_nothing_else_is_read() -> None:
    job_examples.record.delay(1, label="a")
    (stored,) = jobs.queue().storage.enqueued_items()
    signature, _, body = bytes(stored).partition(b":")
    message = json.loads(body)["message"]
    assert (message["args"], message["kwargs"]) == ([1], {"label": "a"})
    serializer = jobs.SignedJson("another secret")
    for forged in (body, b":" + body, signature + b":" + body + b" ", serializer.serialize({"a": 1}), b"\x80\x04N."):
        with pytest.raises(ValueError, match="signed"):
            jobs.queue().serializer.deserialize(forged)


def test_a_forged_job_is_dropped_and_the_next_one_runs(consumer: None) -> None:
    jobs.queue().storage.enqueue(b"cos\nsystem\n(S'true'\ntR.")
    job_examples.record.delay(2)
    assert seen.wait_for(1) == [(2, "")]


def test_two_schedulers_run_a_periodic_job_once_in_its_period() -> None:
    with time_machine.travel("2026-01-01T12:00:30Z", tick=False) as clock:

        def due() -> list[str]:
            return [task.name for task in jobs.queue().read_periodic(None) if task.name == "sweep"]

        assert [due(), due()] == [["sweep"], []]
        clock.shift(60)
        assert due() == []
        clock.shift(240)
        assert [due(), due()] == [["sweep"], []]
        clock.shift(-300)  # another machine's clock, a little behind
        assert due() == []


def test_claims_of_past_periods_do_not_pile_up() -> None:
    with time_machine.travel("2026-01-01T12:00:30Z", tick=False) as clock:
        for _ in range(20):
            jobs.queue().read_periodic(None)
            clock.shift(300)
    assert len([key for key in jobs.queue().all_results() if "turn:" in key and "job_examples" in key]) <= 4


def test_the_embedded_scheduler_runs_what_is_due_at_the_start(consumer: None) -> None:
    assert swept.wait_for(1) == ["swept"]


@pytest.mark.parametrize("wrong", [{}, {"minutes": 0}, {"minutes": -5}])
def test_a_period_is_at_least_a_minute(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least one minute"):
        jobs.periodic(**wrong)


def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two jobs"):
        jobs.job()(job_examples.record.function)


def test_starting_and_stopping_twice_does_nothing() -> None:
    jobs.start_embedded()
    jobs.start_embedded()
    jobs.stop_embedded()
    jobs.stop_embedded()


def test_jobs_can_run_at_once_on_the_callers_connection(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    with jobs.immediately(), transaction.atomic():
        job_examples.writes.delay("here")
        assert not Group.objects.exists()
    assert Group.objects.get().name == "here"


def test_an_unknown_queue_stops_with_the_settings_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "queue_url", lambda: "amqp://h")
    jobs.queue.cache_clear()
    try:
        with pytest.raises(ConfigError, match="queue_url"):
            jobs.queue()
    finally:
        monkeypatch.undo()
        jobs.queue.cache_clear()


def test_jobs_run_from_a_shared_queue_and_periods_are_claimed_there(shared_queue: str) -> None:
    huey = jobs.queue()
    assert [task.name for task in huey.read_periodic(None) if task.name == "sweep"] == ["sweep"]
    assert [task.name for task in huey.read_periodic(None) if task.name == "sweep"] == []
    jobs.start_embedded()
    job_examples.record.delay(3, label=shared_queue)
    job_examples.fails_twice.delay()
    assert (3, shared_queue) in seen.wait_for(3)
