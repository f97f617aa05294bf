import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, OperationalError, connection, connections, transaction

from devflow.sqlite.base import DatabaseWrapper, FairLock, lock_for


@pytest.fixture(autouse=True)
def only_sqlite() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("another database keeps its own queue")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def closing(function: object) -> object:
    try:
        return function()  # type: ignore[operator]  # any callable
    finally:
        connections.close_all()


def is_free() -> bool:
    lock = lock_for(str(connection.settings_dict["NAME"]))
    if not lock.acquire(0):
        return False
    lock.release()
    return True


def test_waiters_are_served_in_the_order_they_came() -> None:
    lock, order, waiting = FairLock(), list[int](), threading.Semaphore(0)
    assert lock.acquire(0)

    def wait(number: int) -> None:
        waiting.release()
        assert lock.acquire(10)
        order.append(number)
        lock.release()

    started = []
    for number in range(8):
        started.append(threading.Thread(target=wait, args=(number,)))
        started[-1].start()
        assert waiting.acquire(timeout=10)
        while len(lock._waiters) <= number:
            assert started[-1].is_alive()
    lock.release()
    for thread in started:
        thread.join(10)
    assert order == list(range(8))


def test_who_waited_too_long_leaves_the_queue() -> None:
    lock = FairLock()
    assert lock.acquire(0)
    assert not lock.acquire(0.01)
    lock.release()
    assert lock.acquire(0)


@pytest.mark.django_db(transaction=True)
def test_many_threads_write_without_one_locked_error(threads: ThreadPoolExecutor) -> None:
    def write(number: int) -> None:
        with transaction.atomic():
            count = Group.objects.count()
            Group.objects.create(name=f"{number}-{count}")

    list(threads.map(lambda number: closing(lambda: write(number)), range(200)))
    assert Group.objects.count() == 200
    # IMMEDIATE transactions see each other's rows: every count was read exactly once.
    assert sorted(int(name.split("-")[1]) for name in Group.objects.values_list("name", flat=True)) == list(range(200))
    assert is_free()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("failure", [ValueError, IntegrityError])
def test_a_failed_transaction_gives_the_lock_back(failure: type[Exception]) -> None:
    Group.objects.create(name="one")

    def fail() -> None:
        with transaction.atomic():
            Group.objects.create(name="two")
            if failure is IntegrityError:
                Group.objects.create(name="one")
            raise failure

    with pytest.raises(failure):
        fail()
    assert is_free()
    assert list(Group.objects.values_list("name", flat=True)) == ["one"]


@pytest.mark.django_db(transaction=True)
def test_a_connection_closed_inside_its_transaction_gives_the_lock_back(threads: ThreadPoolExecutor) -> None:
    def close_within() -> None:
        connection.set_autocommit(False)
        Group.objects.create(name="lost")
        connection.close()

    threads.submit(lambda: closing(close_within)).result(10)
    assert is_free()
    assert not Group.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_writer_waits_no_longer_than_the_timeout(threads: ThreadPoolExecutor) -> None:
    def impatient() -> str:
        assert isinstance(connection, DatabaseWrapper) or connection.vendor == "sqlite"
        connection.ensure_connection()
        options = connection.settings_dict["OPTIONS"]
        connection.settings_dict["OPTIONS"] = {**options, "timeout": 0.05}
        try:
            with transaction.atomic():
                Group.objects.create(name="late")
        except OperationalError as exc:
            return str(exc)
        finally:
            connection.settings_dict["OPTIONS"] = options
        return "written"

    with transaction.atomic():
        Group.objects.create(name="first")
        assert "locked" in str(threads.submit(lambda: closing(impatient)).result(10))
    assert list(Group.objects.values_list("name", flat=True)) == ["first"]
