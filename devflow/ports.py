"""Small typed ports between the rooms: what one room needs of another, bound in `AppConfig.ready()`.

Each port has a null default, so a room works alone (and in its tests) without the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from devflow.actors import Actor

PortT = TypeVar("PortT")


class Port(Generic[PortT]):
    """A slot for one implementation; calling the port gives the bound one, else the default."""

    def __init__(self, default: PortT) -> None:
        self._default = default
        self._bound: PortT | None = None

    def bind(self, implementation: PortT) -> None:
        self._bound = implementation

    def __call__(self) -> PortT:
        return self._default if self._bound is None else self._bound


@dataclass(frozen=True, slots=True)
class ProjectRef:
    """A project as the rooms pass it round: primary key, slug, name."""

    id: int
    slug: str
    name: str


@dataclass(frozen=True, slots=True)
class AgentRef:
    """An agent inside one project. `name` is the id clients use (`agent_id`)."""

    id: int
    name: str
    project_id: int


@dataclass(frozen=True, slots=True)
class KeyScope:
    """Whose key it is and what it may see: the input of every project decision.

    `project_id`: the key is tied to this project. `user_id`: the key's owner, who sees the projects of their
    memberships. Neither: a key made on the server's own command line, which sees all projects.
    """

    key_id: int
    project_id: int | None = None
    user_id: int | None = None


@dataclass(frozen=True, slots=True)
class CallSeen:
    """One call of an agent: when, in which run of it, and what coherence is computed from."""

    at: datetime
    session: str
    tool: str
    arguments_hash: str
    ok: bool
    in_scope: bool


class Directory(Protocol):
    """Projects and agents, as the protocol layer needs them (bound by workflow). All methods block on the database."""

    def project_of(self, scope: KeyScope, *, slug: str | None, agent_name: str) -> ProjectRef:
        """Give the project of a call: the key's own, else `slug`, else the remembered one, else the only visible one.

        Raises `not_found` for a slug the key cannot see, `invalid_input` listing the slugs when it is ambiguous.
        """

    def remember_project(self, scope: KeyScope, *, slug: str, agent_name: str) -> ProjectRef:
        """Store the active project for (key, agent): what `set_project` does."""

    def visible_projects(self, scope: KeyScope) -> Sequence[ProjectRef]: ...

    def role_allows(self, scope: KeyScope, project_id: int, *, write: bool) -> bool:
        """Whether the key's owner may read (or write) in the project; keys without an owner follow their scopes."""

    def may_administer(self, scope: KeyScope, project_id: int) -> bool:
        """Whether the key's owner is an admin of the project; keys without an owner follow their scopes."""

    def contact(self, project_id: int, agent_name: str, *, session: str, client: str, transport: str) -> AgentRef:
        """Register the agent on first contact and return it."""

    def record_calls(self, agent_id: int, calls: Sequence[CallSeen]) -> None:
        """Calls are heartbeats: touch the agent, keep what coherence is computed from, renew its leases."""

    def forget(self) -> None:
        """Drop what this process remembers of projects and agents."""

    def unread(self, agent_id: int) -> int:
        """Number of messages in the agent's inbox that it has not acknowledged."""

    def held_task(self, agent_id: int, *, session: str) -> str:
        """The task this run of the agent holds, such as `task-12`, the latest claim first; empty: none."""


class NullDirectory:
    """No workflow room: one project without a name, agents that are nobody."""

    _project = ProjectRef(id=0, slug="default", name="Default")

    def project_of(self, scope: KeyScope, *, slug: str | None, agent_name: str) -> ProjectRef:
        return self._project

    def remember_project(self, scope: KeyScope, *, slug: str, agent_name: str) -> ProjectRef:
        return self._project

    def visible_projects(self, scope: KeyScope) -> Sequence[ProjectRef]:
        return (self._project,)

    def role_allows(self, scope: KeyScope, project_id: int, *, write: bool) -> bool:
        return True

    def may_administer(self, scope: KeyScope, project_id: int) -> bool:
        return True

    def contact(self, project_id: int, agent_name: str, *, session: str, client: str, transport: str) -> AgentRef:
        return AgentRef(id=0, name=agent_name, project_id=project_id)

    def record_calls(self, agent_id: int, calls: Sequence[CallSeen]) -> None:
        return None

    def forget(self) -> None:
        return None

    def unread(self, agent_id: int) -> int:
        return 0

    def held_task(self, agent_id: int, *, session: str) -> str:
        return ""


class Recall(Protocol):
    """Related memories (bound by memory)."""

    def related(self, project_id: int, text: str, *, limit: int) -> Sequence[dict[str, Any]]:
        """Up to `limit` memories near `text`: dicts with the keys of `query_memories` results."""


class NullRecall:
    def related(self, project_id: int, text: str, *, limit: int) -> Sequence[dict[str, Any]]:
        return ()


@dataclass(frozen=True, slots=True)
class Passage:
    """Lines of a document that may help: where they come from, and the path of the page that shows them."""

    source: str
    title: str
    first: int
    last: int
    opens: str


class Shelf(Protocol):
    """Related passages (bound by knowledge)."""

    def near(self, project_id: int, text: str, *, limit: int) -> Sequence[Passage]:
        """Up to `limit` passages near `text`, best first."""


class NullShelf:
    def near(self, project_id: int, text: str, *, limit: int) -> Sequence[Passage]:
        return ()


class Gates(Protocol):
    """Markers a project asks for before it lets a backend change things (bound by workflow). All methods block."""

    def are_on(self, project_id: int) -> bool: ...

    def take(self, project_id: int, actor: Actor, *, session: str, project_root: str | None) -> None:
        """Take `analysis-done`, of the task this run holds first. Raises `precondition_failed` where there is none."""

    def leave(
        self,
        project_id: int,
        actor: Actor,
        *,
        analysed: bool,
        session: str,
        project_root: str | None,
        reason: str,
    ) -> None:
        """Leave `analysis-done` (`analysed`) or `execution-done`, at the task this run holds or at the project."""


class NullGates:
    def are_on(self, project_id: int) -> bool:
        return False

    def take(self, project_id: int, actor: Actor, *, session: str, project_root: str | None) -> None:
        return None

    def leave(
        self,
        project_id: int,
        actor: Actor,
        *,
        analysed: bool,
        session: str,
        project_root: str | None,
        reason: str,
    ) -> None:
        return None


class Watchers(Protocol):
    """Agents whose work a change of files may touch (bound by workflow)."""

    def files_changed(self, project_id: int, files: Sequence[str], actor: Actor, *, by: str) -> int:
        """Tell agents that hold a task naming one of `files`, but the actor. Returns how many were told. Blocks."""


class NullWatchers:
    def files_changed(self, project_id: int, files: Sequence[str], actor: Actor, *, by: str) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which an agent's calls are of interest; open at an end that is None."""

    agent: str
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class CallMade:
    """One call of a tool as the log keeps it: arguments redacted and shortened, `outcome` ok or the error's code."""

    at: datetime
    agent: str
    tool: str
    outcome: str
    duration_ms: float
    arguments: dict[str, Any]
    error: str


class CallLog(Protocol):
    """The log of tool calls (bound by the protocol layer)."""

    def made(self, project_id: int, spans: Sequence[Span], *, limit: int) -> Sequence[CallMade]:
        """The newest calls of a project within any of `spans`, newest first. One query."""


class NullCallLog:
    def made(self, project_id: int, spans: Sequence[Span], *, limit: int) -> Sequence[CallMade]:
        return ()


@dataclass(frozen=True, slots=True)
class CallTally:
    """Calls that have `name` in common: a day (ISO), a tool, a client, an error code. `p50` and `p95` are seconds."""

    name: str
    calls: int
    failed: int
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class CallFigures:
    """The tool calls of a project, counted four ways: days by date, the others with the most calls first.

    `counted_from`: the first day (ISO) there is a count of, later than asked for where there were too many calls.
    """

    counted_from: str
    total: CallTally
    days: Sequence[CallTally] = ()
    tools: Sequence[CallTally] = ()
    clients: Sequence[CallTally] = ()
    errors: Sequence[CallTally] = ()


class CallCounts(Protocol):
    """The log of calls in figures (bound by the protocol layer)."""

    def figures(self, project_id: int, *, since: datetime) -> CallFigures:
        """Count the calls from `since` (the start of a day, UTC) on. Blocks."""


class NullCallCounts:
    def figures(self, project_id: int, *, since: datetime) -> CallFigures:
        return CallFigures(since.date().isoformat(), CallTally("", 0, 0, 0.0, 0.0))


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What one part says of itself: `up`, `degraded` or `down`, with words for people.

    A part that is not `essential` may be down while the server goes on with less.
    """

    status: str
    detail: str = ""
    essential: bool = True


HealthProbe = Callable[[], HealthReport]


@dataclass
class HealthBoard:
    """Named probes; a room adds its own in `ready()`. Probes block."""

    probes: dict[str, HealthProbe] = field(default_factory=dict)

    def add(self, name: str, probe: HealthProbe) -> None:
        self.probes[name] = probe


Gauges = Callable[[], dict[str, float]]


@dataclass
class GaugeBoard:
    """Numbers shown beside the counts of calls: name (`index_pending_points`) to help text and what reads it.

    A reading maps a kind ("knowledge") to its value. Readings block.
    """

    readings: dict[str, tuple[str, Gauges]] = field(default_factory=dict)

    def add(self, name: str, help_text: str, reading: Gauges) -> None:
        self.readings[name] = (help_text, reading)


directory: Port[Directory] = Port(NullDirectory())
recall: Port[Recall] = Port(NullRecall())
shelf: Port[Shelf] = Port(NullShelf())
call_log: Port[CallLog] = Port(NullCallLog())
call_figures: Port[CallCounts] = Port(NullCallCounts())
gates: Port[Gates] = Port(NullGates())
watchers: Port[Watchers] = Port(NullWatchers())
health = HealthBoard()
gauges = GaugeBoard()
