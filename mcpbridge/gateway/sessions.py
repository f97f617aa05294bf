"""The open sessions of one server process: shared by the calls of one caller, kept ready for isolation `subprocess`.

Pool key: (backend, its configuration, project root, caller, what its client can be asked): state never leaks across
callers.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

import mcp.types as types

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.gateway import ledger, processes
from mcpbridge.gateway.breaker import Breaker
from mcpbridge.gateway.catalog import catalog
from mcpbridge.gateway.conversing import Heard, Session, told
from mcpbridge.gateway.faults import unavailable
from mcpbridge.gateway.specs import BackendSpec

__all__ = ["Breaker", "Heard", "Pool", "Session", "pool"]

IDLE_SECONDS = 600.0
MAX_SESSIONS = 64
MAX_SPARES = 16
LOOK_SECONDS = 15.0

Key = tuple[str, str, str, str, frozenset[str]]


def _nobody(session: Session, message: types.ServerNotification | None = None) -> None:
    return None


def _known_as(spec: BackendSpec) -> str:
    """A backend that no row describes shares nothing with a registered one of the same id."""
    return spec.id if spec.pk is not None else f"{spec.id}/{spec.config_hash}"


class Pool:
    """Sessions by caller, spares by backend and root, and what a backend has of its own: breaker and places. `begun`
    is told of each new session, `heard` what their backends notify."""

    begun: Callable[[Session], None] = staticmethod(_nobody)
    heard: Callable[[Session, types.ServerNotification], None] = staticmethod(_nobody)

    def __init__(self) -> None:
        self._sessions: OrderedDict[Key, Session] = OrderedDict()
        self._spares: list[Session] = []
        self._breakers: dict[str, Breaker] = {}
        self._places: dict[str, asyncio.Semaphore] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def breaker(self, spec: BackendSpec) -> Breaker:
        return self._breakers.setdefault(_known_as(spec), Breaker())

    def breaker_state(self, backend_id: str) -> str:
        """The state of a registered backend's breaker in this process."""
        found = self._breakers.get(backend_id)
        return found.state if found is not None else "closed"

    def place(self, spec: BackendSpec) -> asyncio.Semaphore:
        """One of the places a backend has for calls at work."""
        return self._places.setdefault(f"{_known_as(spec)}/{spec.concurrency}", asyncio.Semaphore(spec.concurrency))

    def session(
        self,
        spec: BackendSpec,
        root: str | None,
        caller: str,
        *,
        features: frozenset[str] = frozenset(),
        heard: Heard | None = None,
    ) -> Session:
        """The caller's open session, or a new one that opens now. Raises `unavailable` where all sessions are at
        work."""
        key: Key = (spec.id, spec.config_hash, root or "", caller, told(spec, features))
        found = self._sessions.get(key)
        if found is not None and not found.is_over:
            self._sessions.move_to_end(key)
            return found
        self._drop(key)
        self._make_room(spec)
        made = self._sessions[key] = Session(
            spec, root, features=features, heard=heard or (lambda message: self.heard(made, message)), after=found
        )
        self.begun(made)
        return made

    async def ready(self, spec: BackendSpec, root: str | None, caller: str, *, features: frozenset[str]) -> Session:
        """The caller's session, open. One that cannot be opened is replaced once. Raises `unavailable`."""
        session = self.session(spec, root, caller, features=features)
        try:
            await session.client()
        except DevFlowError as exc:
            if exc.code is not ErrorCode.UNAVAILABLE:
                raise
            session = self.session(spec, root, caller, features=features)
            await session.client()
        return session

    def opened(
        self, spec: BackendSpec, root: str | None, caller: str, *, features: frozenset[str] = frozenset()
    ) -> Session | None:
        """The caller's session, if there is one."""
        found = self._sessions.get((spec.id, spec.config_hash, root or "", caller, told(spec, features)))
        return None if found is None or found.is_over else found

    def _make_room(self, spec: BackendSpec) -> None:
        if len(self._sessions) < MAX_SESSIONS:
            return
        idle = next((key for key, session in self._sessions.items() if session.at_work == 0), None)
        if idle is None:
            raise unavailable(spec.id, f"all {MAX_SESSIONS} sessions of this server are at work.")
        self._drop(idle)

    def _drop(self, key: Key) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self.discard(session)

    def discard(self, session: Session) -> "asyncio.Task[None]":
        """Close a session; nobody has to wait until its process has ended."""
        session.close_soon()
        task = asyncio.create_task(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    def spare(self, spec: BackendSpec, root: str | None, *, features: frozenset[str] = frozenset()) -> Session | None:
        """A process of this backend that nobody has used, kept ready in this root for such clients. It is the
        caller's now."""
        for session in list(self._spares_of(spec, root, features)):
            self._spares.remove(session)
            if not session.is_over:
                return session
            self.discard(session)
        return None

    def refill(self, spec: BackendSpec, root: str | None, *, features: frozenset[str] = frozenset()) -> None:
        """Have as many spares as the backend asks for; they open beside whatever else goes on."""
        if self._is_outdated(spec):
            return
        for _ in range(spec.warm_spares - len(list(self._spares_of(spec, root, features)))):
            if len(self._spares) >= MAX_SPARES:
                self.discard(self._spares.pop(0))
            self._spares.append(Session(spec, root, kind="spare", features=features))

    def _spares_of(self, spec: BackendSpec, root: str | None, features: frozenset[str]) -> Iterator[Session]:
        wanted = (spec.id, spec.config_hash, root, told(spec, features))
        for session in self._spares:
            if (session.spec.id, session.spec.config_hash, session.root, session.features) == wanted:
                yield session

    def spares(self, backend: str) -> int:
        """How many unused processes of a backend are kept ready."""
        return sum(session.spec.id == backend and not session.is_over for session in self._spares)

    def open_sessions(self, backend: str) -> int:
        return sum(key[0] == backend and not session.is_over for key, session in self._sessions.items())

    def forget(self, backend: str) -> None:
        """Close what is open with a backend, such as after its configuration changed."""
        for key in [key for key in self._sessions if key[0] == backend]:
            self._drop(key)
        for session in [session for session in self._spares if session.spec.id == backend]:
            self._spares.remove(session)
            self.discard(session)

    def forget_caller(self, caller: str) -> None:
        """Close the sessions of one caller."""
        for key in [key for key in self._sessions if key[3] == caller]:
            self._drop(key)

    def tidy(self) -> None:
        """Close what is over, was idle for ten minutes, or belongs to settings that are gone."""
        oldest = time.monotonic() - IDLE_SECONDS

        def is_done_with(session: Session) -> bool:
            is_idle = session.at_work == 0
            return session.is_over or (is_idle and (session.used_at < oldest or self._is_outdated(session.spec)))

        for key, session in list(self._sessions.items()):
            if is_done_with(session):
                self._drop(key)
        for session in [session for session in self._spares if is_done_with(session)]:
            self._spares.remove(session)
            self.discard(session)

    @staticmethod
    def _is_outdated(spec: BackendSpec) -> bool:
        if spec.pk is None:
            return False
        now = catalog.known.backends.get(spec.id)
        return now is None or now.config_hash != spec.config_hash

    async def run(self) -> None:
        """Tidy until cancelled; then close everything."""
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                self.tidy()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close everything, wait until no process is left, and forget how backends did."""
        for key in list(self._sessions):
            self._drop(key)
        for session in self._spares:
            self.discard(session)
        self._spares.clear()
        if self._closing:
            await asyncio.wait(set(self._closing), timeout=5)
        await processes.all_ended()
        await ledger.written()
        self._breakers.clear()
        self._places.clear()


pool = Pool()
