"""The log of calls: every call is recorded, writes in their own transaction, reads buffered.

One recorder thread per process writes what is buffered (calls, heartbeats, last use of keys) every
`audit.flush_seconds`, and seals this worker's committed rows into its hash chain:
`seal(n) = sha256(seal(n-1) + canonical JSON of row n)`. Rows are sealed after their commit, because chaining inside
the transactions would make every writer wait for the one before it. On kill -9 at most the buffer is lost: reads of
the last second; no write is, for a write and its row commit together.
"""

import atexit
import hashlib
import json
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    close_old_connections,
    connection,
    transaction,
)
from django.db.models import Max
from django.utils import timezone

from devflow import config, ports
from devflow.errors import DevFlowError
from devflow.logs import redact
from devflow.ports import CallSeen, KeyScope
from mcpbridge.envelopes import Outcome
from mcpbridge.models import ApiKey, AuditCheckpoint, ToolCall
from mcpbridge.tooling import Caller

logger = logging.getLogger(__name__)

MAX_BUFFERED = 50_000
MAX_STORED_TEXT = 2_000
BATCH = 500


def arguments_hash(tool: str, arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{tool}\n{json.dumps(arguments, sort_keys=True)}".encode()).hexdigest()


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_STORED_TEXT:
        return f"{value[:MAX_STORED_TEXT]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return value


Home = tuple[KeyScope, str | None, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One call as the pipeline leaves it; redaction, hashing and the database are the recorder's work."""

    at: datetime
    trace_id: str
    key_id: int
    key_name: str
    agent_name: str
    agent_id: int
    session: str
    project_id: int | None
    transport: str
    client: str
    tool: str
    effect: str
    outcome: str
    duration_ms: float
    error: str
    in_scope: bool
    arguments: Mapping[str, Any]
    backend: str = ""
    spans: tuple[tuple[str, float], ...] = ()
    home: Home | None = None
    """Where to look for the project, of a call of a backend that asked for none."""

    @classmethod
    def of(cls, outcome: Outcome, caller: Caller, arguments: Mapping[str, Any]) -> "Entry":
        project, agent = caller.known_project, caller.known_agent
        project_id: int | None = (project.id or None) if project else None
        home: Home | None = None
        if project is None and caller.facts.get("backend") and caller.scope.key_id:
            project_id = caller.facts.get("project_id")
            home = (caller.scope, caller.project_slug, caller.agent_name) if project_id is None else None
        return cls(
            at=timezone.now(),
            trace_id=outcome.trace_id,
            key_id=caller.scope.key_id,
            key_name=caller.key_name,
            agent_name=caller.agent_name,
            agent_id=agent.id if agent else 0,
            session=caller.session,
            project_id=project_id,
            transport=caller.transport,
            client=caller.client[:120],
            tool=caller.facts.get("action", outcome.name)[:128],
            effect=caller.facts.get("effect", outcome.tool.effect.value if outcome.tool else ""),
            outcome=outcome.code,
            duration_ms=round(outcome.duration_ms, 3),
            error=outcome.error.message if outcome.error else "",
            in_scope=bool(caller.facts.get("in_scope", True)),
            arguments=arguments,
            backend=caller.facts.get("backend", ""),
            spans=tuple(caller.facts.get("spans", ())),
            home=home,
        )

    def placed(self, known: dict[Home, int | None]) -> "Entry":
        """A call of a backend belongs to its caller's project all the same, where there is one (blocks). `known` keeps
        what was found."""
        if self.home is None:
            return self
        if self.home not in known:
            scope, slug, agent_name = self.home
            try:
                known[self.home] = ports.directory().project_of(scope, slug=slug, agent_name=agent_name).id or None
            except DevFlowError:  # none, or several
                known[self.home] = None
        return replace(self, project_id=known[self.home], home=None)

    def row(self, worker: str) -> ToolCall:
        """The unsaved row, arguments redacted and shortened."""
        return ToolCall(
            at=self.at,
            trace_id=self.trace_id,
            worker=worker,
            key_id=self.key_id or None,  # a person in the browser has none
            key_name=self.key_name,
            agent_name=self.agent_name,
            project_id=self.project_id,
            transport=self.transport,
            client=self.client,
            tool=self.tool,
            effect=self.effect,
            backend=self.backend,
            spans=[[name, ms] for name, ms in self.spans],
            outcome=self.outcome,
            duration_ms=self.duration_ms,
            arguments=_shortened(redact(dict(self.arguments))),
            arguments_hash=arguments_hash(self.tool, self.arguments),
            error=redact(self.error)[:MAX_STORED_TEXT],
        )


class Recorder:
    """Buffers and writes in the background. One per process, started by the first record."""

    def __init__(self) -> None:
        self.worker = uuid.uuid4().hex
        self.lost = 0
        self._entries: deque[Entry] = deque()
        self._beats: deque[tuple[Entry, str]] = deque(maxlen=MAX_BUFFERED)
        self._used_keys: dict[int, datetime] = {}
        self._waiting = threading.Event()
        self._stopping = threading.Event()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._position = 0
        self._seal = ""
        self._unsealed = False

    def write_now(self, outcome: Outcome, caller: Caller, arguments: Mapping[str, Any]) -> None:
        """Record a write inside its own transaction (blocks)."""
        entry = Entry.of(outcome, caller, arguments).placed({})
        row = entry.row(self.worker)
        _insert([row])
        self._beats.append((entry, row.arguments_hash))
        self._used_keys[entry.key_id] = entry.at
        self._unsealed = True
        self._announce()

    def seal_soon(self) -> None:
        """Close the chain over rows somebody inserted with this worker's name."""
        self._unsealed = True
        self._announce()

    def buffer(self, outcome: Outcome, caller: Caller, arguments: Mapping[str, Any]) -> None:
        """Record a call soon; costs the caller no database work."""
        if len(self._entries) >= MAX_BUFFERED:
            self._entries.popleft()
            self.lost += 1
        entry = Entry.of(outcome, caller, arguments)
        self._entries.append(entry)
        self._used_keys[entry.key_id] = entry.at
        self._announce()

    def _announce(self) -> None:
        if not self._waiting.is_set():
            self._waiting.set()
        if self._thread is None:
            with self._start_lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
                    self._thread.start()
                    atexit.register(self.stop)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._waiting.wait()
            self._stopping.wait(config.current().audit.flush_seconds)
            self._waiting.clear()
            try:
                self.flush()
            except (DatabaseError, InterfaceError) as exc:
                self._waiting.set()
                logger.warning("the log of calls waits for the database: %s", exc)
            except Exception:  # whatever it is, the next calls must still be recorded
                logger.exception("calls could not be recorded")
            finally:
                close_old_connections()

    def stop(self) -> None:
        """Write what is left and end the thread."""
        thread = self._thread
        self._stopping.set()
        self._waiting.set()
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(timeout=5)
        if self._entries or self._beats or self._used_keys:
            try:
                self.flush()
            except (DatabaseError, InterfaceError) as exc:
                logger.warning("the last reads were not recorded: %s", exc)
        self._thread = None
        self._stopping.clear()
        atexit.unregister(self.stop)

    def flush(self) -> None:
        """Write everything buffered and seal what is committed (blocks). What fails stays buffered."""
        with self._writing:
            while self._entries:
                self._write_batch()
            self._tell_directory()
            used, self._used_keys = self._used_keys, {}
            for key_id, at in used.items():
                ApiKey.objects.filter(pk=key_id).update(last_used_at=at)
            if self._unsealed:
                self._unsealed = False
                try:
                    self._position, self._seal = seal(self.worker, self._position, self._seal)
                except IntegrityError:
                    self._find_end_of_chain()
                    self._unsealed = True
                except (DatabaseError, InterfaceError):
                    self._unsealed = True
                    raise

    def _write_batch(self) -> None:
        entries = [self._entries.popleft() for _ in range(min(BATCH, len(self._entries)))]
        try:
            self._insert_sealed(entries)
        except (OperationalError, InterfaceError):
            self._entries.extendleft(reversed(entries))
            raise
        except DatabaseError:
            self._insert_one_by_one(entries)

    def _find_end_of_chain(self) -> None:
        """`seal_left_behind` took this process for dead and went on with its chain, or a seal half succeeded."""
        self._position, self._seal = _end_of_chain(self.worker)

    def _insert_sealed(self, entries: list[Entry]) -> None:
        homes: dict[Home, int | None] = {}
        entries = [entry.placed(homes) for entry in entries]
        rows = [entry.row(self.worker) for entry in entries]
        try:
            self._insert_at_end(rows)
        except IntegrityError:
            self._find_end_of_chain()
            self._insert_at_end(rows)
        self._beats.extend((entry, row.arguments_hash) for entry, row in zip(entries, rows, strict=True))

    def _insert_at_end(self, rows: list[ToolCall]) -> None:
        position, last = self._position, self._seal
        for row in rows:
            position += 1
            row.seal_position = position
            row.seal = last = next_seal(last, row)
        with transaction.atomic():
            _insert(rows)
        self._position, self._seal = position, last

    def _insert_one_by_one(self, entries: list[Entry]) -> None:
        """One row the database refuses must not hold back the others."""
        for place, entry in enumerate(entries):
            try:
                self._insert_sealed([entry])
            except (OperationalError, InterfaceError):
                self._entries.extendleft(reversed(entries[place:]))
                raise
            except DatabaseError:
                self.lost += 1
                logger.exception("a call of %s could not be recorded", entry.tool)

    def _tell_directory(self) -> None:
        """Calls are heartbeats: one word per agent, however often it called."""
        beats: dict[int, list[tuple[Entry, str]]] = {}
        while self._beats:
            beat = self._beats.popleft()
            if beat[0].agent_id:
                beats.setdefault(beat[0].agent_id, []).append(beat)
        try:
            for agent_id in list(beats):
                seen = [
                    CallSeen(entry.at, entry.session, entry.tool, call_hash, entry.outcome == "ok", entry.in_scope)
                    for entry, call_hash in beats[agent_id]
                ]
                ports.directory().record_calls(agent_id, seen)
                del beats[agent_id]
        finally:
            self._beats.extendleft(beat for left in reversed(beats.values()) for beat in reversed(left))


_FIELDS = [field for field in ToolCall._meta.concrete_fields if not field.primary_key]
_COLUMNS = ", ".join(f'"{field.column}"' for field in _FIELDS)
_PLACES = ", ".join(["%s"] * len(_FIELDS))
_INSERT = f'INSERT INTO "{ToolCall._meta.db_table}" ({_COLUMNS}) VALUES ({_PLACES})'  # noqa: S608  # our own names


def _insert(rows: list[ToolCall]) -> None:
    """Insert rows without the ORM's work per row: the log is written once per call of every kind."""
    values = [[field.get_db_prep_save(getattr(row, field.attname), connection) for field in _FIELDS] for row in rows]
    with connection.cursor() as cursor:
        if len(values) == 1:
            cursor.execute(_INSERT, values[0])
        else:
            cursor.executemany(_INSERT, values)


def next_seal(previous: str, row: ToolCall) -> str:
    return hashlib.sha256(f"{previous}{json.dumps(row.content())}".encode()).hexdigest()


def seal(worker: str, position: int = 0, last: str = "") -> tuple[int, str]:
    """Append a worker's committed, unsealed rows to its chain. Returns where the chain now stands."""
    while True:
        rows = list(ToolCall.objects.filter(worker=worker, seal_position=None).order_by("id")[:BATCH])
        if not rows:
            return position, last
        sealed: list[tuple[int, str, int]] = []
        for row in rows:
            position, last = position + 1, next_seal(last, row)
            sealed.append((position, last, row.pk))
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.executemany("UPDATE mcpbridge_toolcall SET seal_position = %s, seal = %s WHERE id = %s", sealed)


def _end_of_chain(worker: str) -> tuple[int, str]:
    end = ToolCall.objects.filter(worker=worker, seal_position__isnull=False).order_by("-seal_position").first()
    if end is not None and end.seal_position is not None:
        return end.seal_position, end.seal
    checkpoint = AuditCheckpoint.objects.filter(worker=worker).order_by("-position").first()
    return (checkpoint.position, checkpoint.seal) if checkpoint else (0, "")


def seal_left_behind(*, older_than: timedelta = timedelta(minutes=5)) -> int:
    """Close the chains of workers that were killed before they sealed. Returns how many chains were touched."""
    workers = list(
        ToolCall.objects.filter(seal_position=None, at__lt=timezone.now() - older_than)
        .values_list("worker", flat=True)
        .order_by()
        .distinct()
    )
    for worker in workers:
        seal(worker, *_end_of_chain(worker))
    return len(workers)


def verify() -> list[str]:
    """Recompute every chain (blocks, reads the whole log). Returns what is wrong, in words; empty means whole."""
    faults: list[str] = []
    workers = (
        ToolCall.objects.filter(seal_position__isnull=False).values_list("worker", flat=True).order_by().distinct()
    )
    for worker in workers:
        checkpoint = AuditCheckpoint.objects.filter(worker=worker).order_by("-position").first()
        position, last = (checkpoint.position, checkpoint.seal) if checkpoint else (0, "")
        rows: Iterable[ToolCall] = (
            ToolCall.objects.filter(worker=worker, seal_position__gt=position).order_by("seal_position").iterator()
        )
        for row in rows:
            position += 1
            if row.seal_position != position:
                faults.append(f"worker {worker}: call {position} of its chain is missing")
                break
            if next_seal(last, row) != row.seal:
                faults.append(f"worker {worker}: call {row.pk} ({row.tool}) was changed")
                break
            last = row.seal
    return faults


def expire(*, retention: timedelta | None = None) -> int:
    """Delete calls older than the retention setting, leaving a checkpoint per chain. Returns how many went."""
    if retention is None:
        retention = timedelta(days=config.current().audit.retention_days)
    before = timezone.now() - retention
    gone = 0
    old = ToolCall.objects.filter(at__lt=before, seal_position__isnull=False)
    ends = list(old.values("worker").order_by().annotate(position=Max("seal_position")))
    for end in ends:
        with transaction.atomic():
            row = ToolCall.objects.get(worker=end["worker"], seal_position=end["position"])
            AuditCheckpoint.objects.get_or_create(
                worker=row.worker, position=end["position"], defaults={"seal": row.seal}
            )
            gone += ToolCall.objects.filter(worker=row.worker, seal_position__lte=end["position"]).delete()[0]
    return gone


recorder = Recorder()


def note(
    name: str, caller: Caller, *, started: float, arguments: Mapping[str, Any] | None = None, error: DevFlowError | None
) -> None:
    """Record what is no tool call but was asked with a key: a resource, a prompt, a row. `started`: perf_counter()."""
    duration_ms = (time.perf_counter() - started) * 1000
    outcome = Outcome(name=name, trace_id=caller.trace_id, duration_ms=duration_ms, error=error)
    recorder.buffer(outcome, caller, arguments or {})


def note_change(name: str, caller: Caller, arguments: Mapping[str, Any]) -> None:
    """Record, within the transaction that makes it, a change that no tool made (blocks)."""
    outcome = Outcome(name=name, trace_id=caller.trace_id, duration_ms=0.0)
    _insert([Entry.of(outcome, caller, arguments).row(recorder.worker)])
    transaction.on_commit(recorder.seal_soon, robust=True)
