"""Background jobs: `@job`, `@periodic` and `@standing` functions in `<app>/jobs.py`, run by huey's threads and, the
standing ones, by a thread each.

By default the threads live inside the server and jobs wait in SQLite; with Redis or PostgreSQL as the queue,
`devflow worker` runs them. A job is JSON: its name and its arguments, signed, so that whoever can write to the
queue cannot make a worker run anything else. A job that was running when its process was killed does not run
again by itself: what must happen is found again by a periodic job, never remembered by the queue alone.
"""

import hashlib
import hmac
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Generic, ParamSpec, cast
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connections, transaction
from django.utils.module_loading import autodiscover_modules
from huey import Huey
from huey.consumer import Consumer
from huey.registry import Message
from huey.serializer import Serializer

from devflow import config
from devflow.config import ConfigError

logger = logging.getLogger(__name__)

P = ParamSpec("P")

# Slots of a periodic job that stay claimed: two schedulers' clocks may differ by this many periods.
_KEPT_SLOTS = 3


@dataclass(frozen=True, slots=True)
class Job(Generic[P]):
    """A function that can run later. Calling it runs it now; `delay` has a worker run it."""

    function: Callable[P, object]
    retries: int = 0
    retry_delay: float = 0
    every_minutes: int | None = None

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__name__}"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> object:
        return self.function(*args, **kwargs)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Enqueue when the current transaction commits (at once outside one). Arguments must be plain JSON values."""
        given = {"args": list(args), "kwargs": dict(kwargs)}
        try:
            is_plain = json.loads(json.dumps(given, allow_nan=False)) == given
        except (TypeError, ValueError):
            is_plain = False
        if not is_plain:
            raise TypeError(f"{self.name}: job arguments must be JSON values (pass ids, not objects).")
        transaction.on_commit(lambda: _enqueue(self.name, args, kwargs), robust=True)


_jobs: dict[str, Job[Any]] = {}


def _register(made: Job[P]) -> Job[P]:
    if made.name in _jobs:
        raise ValueError(f"There are two jobs named {made.name}.")
    _jobs[made.name] = made
    queue.cache_clear()
    return made


def job(*, retries: int = 0, retry_delay: float = 0) -> Callable[[Callable[P, object]], Job[P]]:
    """Make a function a job. A raised exception has it run again up to `retries` times, `retry_delay` seconds apart."""
    return lambda function: _register(Job(function, retries=retries, retry_delay=retry_delay))


def periodic(*, minutes: int = 0, hours: int = 0) -> Callable[[Callable[[], object]], Job[[]]]:
    """Run a function once in every period, by one of the running schedulers; soon after a start if it is due."""
    every = minutes + 60 * hours
    if every < 1:
        raise ValueError("A periodic job needs a period of at least one minute.")
    return lambda function: _register(Job(function, every_minutes=every))


class Standing:
    """Work that waits in a table: `function` takes what is there and returns. Threads of every process that runs
    jobs call it again every few seconds, and at once when it was woken in the same process.

    A process that was killed leaves the work in its table, so nothing has to be remembered here.
    """

    def __init__(self, function: Callable[[], object], every: float, threads: int) -> None:
        self.function = function
        self.every = every
        self._woken = [threading.Event() for _ in range(threads)]
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__name__}"

    def __call__(self) -> object:
        return self.function()

    def wake(self) -> None:
        """Run soon after the current transaction commits (at once, in this thread, under `immediately()`)."""
        transaction.on_commit(self._wake_now, robust=True)

    def _wake_now(self) -> None:
        if queue().immediate:
            self.function()
        else:
            self._wake_all()

    def _wake_all(self) -> None:
        for woken in self._woken:
            woken.set()

    @property
    def is_stopping(self) -> bool:
        """For long runs to look at between two steps."""
        return self._stopped.is_set()

    def start(self) -> None:
        self._stopped.clear()
        self._threads = [
            threading.Thread(target=self._run, args=(woken,), name=self.name, daemon=True) for woken in self._woken
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """Have the threads end; wait at most `seconds` for all of them."""
        self._stopped.set()
        self._wake_all()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if not self._threads:
            self._stopped.clear()  # a later call in this process is not one that has to stop

    def _run(self, woken: threading.Event) -> None:
        while not self._stopped.is_set():
            woken.clear()
            try:
                self.function()
            except Exception:  # the work is still in its table: the next round meets it again
                logger.exception("%s failed and will be tried again", self.name)
            finally:
                connections.close_all()
            woken.wait(self.every)


_standing: list[Standing] = []


def standing(*, seconds: float, threads: int = 1) -> Callable[[Callable[[], object]], Standing]:
    """Have a function called every `seconds`, and whenever its `wake()` was called. It must stop early when
    `is_stopping`."""

    def register(function: Callable[[], object]) -> Standing:
        made = Standing(function, seconds, threads)
        _standing.append(made)
        return made

    return register


def _enqueue(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    huey = queue()
    huey.enqueue(huey.devflow_tasks[name].s(*args, **kwargs))


class SignedJson(Serializer):  # type: ignore[misc]  # huey has no types
    """`<hmac-sha256 hex>:<json>`; refuses what this installation's secret key did not sign."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self._key = hashlib.sha256(b"devflow.jobs" + secret.encode()).digest()

    def _sign(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256").hex().encode()

    def _serialize(self, data: Any) -> bytes:
        if isinstance(data, Message):
            eta = data.eta.isoformat() if data.eta else None
            data = {"message": {**{k: v for k, v in data._asdict().items() if v is not None}, "eta": eta}}
        else:
            data = {"value": data}
        body = json.dumps(data, separators=(",", ":")).encode()
        return self._sign(body) + b":" + body

    def _deserialize(self, data: bytes) -> Any:
        signature, _, body = bytes(data).partition(b":")
        if not hmac.compare_digest(signature, self._sign(body)):
            raise ValueError("a job in the queue was not signed with this server's secret key; it was dropped")
        read = json.loads(body)
        if "message" not in read:
            return read["value"]
        message = read["message"]
        eta = message["eta"]
        return Message(
            **{**message, "args": tuple(message["args"]), "eta": datetime.fromisoformat(eta) if eta else None}
        )


def queue_url() -> str:
    """Where jobs wait: the configured URL, or empty for SQLite in the data directory."""
    conf = config.current()
    return conf.queue_url or conf.redis_url


def _storage(url: str) -> Huey:
    common: dict[str, Any] = {
        "results": False,
        "utc": True,
        "serializer": SignedJson(settings.SECRET_KEY),
    }
    scheme = urlsplit(url).scheme
    if not url:
        from huey import SqliteHuey

        return SqliteHuey("devflow", filename=str(config.home() / "jobs.sqlite3"), timeout=20, cache_mb=1, **common)
    if scheme in ("redis", "rediss", "unix"):
        from huey import RedisHuey

        return RedisHuey("devflow", url=url, **common)
    if scheme in ("postgres", "postgresql"):
        from huey import PostgresHuey

        return PostgresHuey("devflow", dsn=url, table_prefix="devflow_jobs", **common)
    raise ConfigError(f"queue_url: the scheme {scheme!r} is not redis or postgres.")


@lru_cache(maxsize=1)
def queue() -> Huey:
    """The queue of this process, knowing every job registered so far."""
    huey = _storage(queue_url())
    huey.devflow_tasks = {
        made.name: (
            huey.periodic_task(lambda _now, made=made: _is_our_turn(made), name=made.function.__name__)
            if made.every_minutes
            else huey.task(retries=made.retries, retry_delay=made.retry_delay, name=made.function.__name__)
        )(made.function)
        for made in _jobs.values()
    }
    huey.post_execute(name="close connections")(_close_connections)
    # Per worker thread: PostgreSQL's listening connection is the thread's own, and nobody else closes it.
    huey.on_shutdown(name="close storage")(lambda: _close_storage(huey))
    return huey


_closing = threading.Lock()


def _close_storage(huey: Huey) -> None:
    with _closing:  # huey's own close() trips over a second one
        huey.storage.close()


def _close_connections(*_args: object) -> None:
    if not queue().immediate:  # then it ran in its caller's thread, on the caller's connection
        connections.close_all()


def _is_our_turn(made: Job[Any]) -> bool:
    """Claim the current period of a periodic job; False when another scheduler has it or the queue is away.

    Each period is one key in the queue's own store, made by an atomic insert.
    """
    huey = queue()
    slot = math.floor(time.time() / 60 / (made.every_minutes or 1))
    try:
        if not huey.put_if_empty(f"turn:{made.name}:{slot}", slot):
            return False
        kept: list[int] = huey.get(f"turns:{made.name}", peek=True) or []
        huey.put(f"turns:{made.name}", [*kept, slot][-_KEPT_SLOTS:])
        for old in kept[: -_KEPT_SLOTS + 1]:
            huey.delete(f"turn:{made.name}:{old}")
    except Exception as exc:  # any storage's own error: the scheduler's thread must live, and asks again in a minute
        logger.warning("the job queue is away, %s waits: %s", made.name, exc)
        return False
    return True


class _QuietConsumer(Consumer):  # type: ignore[misc]  # huey has no types
    """A consumer that leaves the process's signals alone, so it may start on any thread."""

    def _set_signal_handlers(self) -> None:
        return None


@dataclass
class _Embedded:
    consumer: Consumer | None = field(default=None)


_embedded = _Embedded()


def is_embedded() -> bool:
    """Whether the server itself is to run jobs: by default with one process and jobs waiting in SQLite."""
    conf = config.current()
    return conf.embedded_jobs if conf.embedded_jobs is not None else conf.workers == 1 and not queue_url()


def _consumer(kind: type[Consumer], threads: int) -> Consumer:
    autodiscover_modules("jobs")
    return kind(
        queue(),
        workers=threads,
        max_delay=0.5,  # seconds between looks into an SQLite queue; the others block and wake
        shutdown_timeout=config.current().drain_seconds,
        graceful_signal="TERM",
    )


def start_embedded(threads: int = 2) -> None:
    """Run jobs on threads of this process; a second call does nothing."""
    if _embedded.consumer is None:
        _embedded.consumer = _consumer(_QuietConsumer, threads)
        _embedded.consumer.start()
        for work in _standing:
            work.start()


def stop_embedded() -> None:
    """Let running jobs finish (up to `drain_seconds`) and stop; does nothing when none was started."""
    consumer, _embedded.consumer = _embedded.consumer, None
    if consumer is not None:
        for work in _standing:
            work.stop(config.current().drain_seconds)
        consumer.stop(graceful=True)
        _close_storage(consumer.huey)


def run_worker(threads: int = 4) -> None:
    """Run jobs until SIGTERM or SIGINT; what `devflow worker` does."""
    consumer = _consumer(Consumer, threads)
    for work in _standing:
        work.start()
    try:
        consumer.run()
    finally:
        for work in _standing:
            work.stop(config.current().drain_seconds)


@contextmanager
def immediately() -> Iterator[None]:
    """Run jobs inside `delay` (on commit), in the caller's thread: for tests and one-off commands."""
    autodiscover_modules("jobs")
    huey = cast("Any", queue())
    huey.immediate = True
    try:
        yield
    finally:
        huey.immediate = False
