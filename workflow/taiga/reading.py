"""A remote project on the board: Taiga's cards read through, and a move written back.

Nothing is copied: what is shown is what Taiga says now. Where it is away, the state says so and there are no cards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from django.utils import timezone

from devflow.actors import Actor
from devflow.errors import DevFlowError, ErrorCode
from workflow.models import Project, RemoteProject

BoardKind = Literal["user_story", "task"]
MOST_CARDS = 500
"""Cards a board shows; `RemoteBoard.is_cut` says that there are more."""
SECONDS = 5.0
"""What a page waits for Taiga."""
REST = timedelta(seconds=15)
"""How long a Taiga that was found away is not asked again for a page."""


@dataclass(frozen=True, slots=True)
class RemoteCard:
    """One story or task. `url` is its page in Taiga; `story` the ref of a task's story."""

    kind: BoardKind
    id: int
    ref: int
    subject: str
    status_id: int
    version: int
    is_closed: bool
    is_blocked: bool
    blocked_reason: str
    assigned_to: str
    tags: Sequence[str]
    story: int | None
    due_date: str | None
    url: str


@dataclass(frozen=True, slots=True)
class RemoteColumn:
    """A status as the agile tools show it ({id, name, slug, order, isClosed, category, color}), and its cards."""

    status: dict[str, Any]
    cards: list[RemoteCard]


@dataclass(frozen=True, slots=True)
class RemoteBoard:
    """`state`: up, away or refused (the login is no longer taken); `detail` says why in words, `checked_at` since when.

    Not up: `columns` are those last known, without cards.
    """

    kind: BoardKind
    state: str
    detail: str
    checked_at: datetime | None
    url: str
    columns: list[RemoteColumn] = field(default_factory=list)
    total: int = 0
    is_cut: bool = False


def remote_of(project: Project) -> RemoteProject | None:
    """The Taiga a project is worked on in, or None: one query, for the marker."""
    return RemoteProject.objects.filter(project=project).first()


def cards(project: Project, *, kind: BoardKind = "user_story", again: bool = False) -> RemoteBoard:
    """The board of a remote project. Blocks for `SECONDS` at most, and never raises for a Taiga that is away.

    One found away less than `REST` ago is not asked, unless `again`. Raises `not_found` for a project that is not
    remote.
    """
    from workflow.taiga.client import TaigaClient
    from workflow.taiga.remote import RemoteProvider

    provider = RemoteProvider(project, _READER, client=lambda remote: TaigaClient(remote, seconds=SECONDS))
    remote = provider.remote
    if _rests(remote) and not again:
        return _board(provider, kind)
    try:
        rows, total = provider.board_rows(kind, most=MOST_CARDS)
    except DevFlowError as exc:
        if exc.code in _AWAY:
            return _board(provider, kind, detail=_said(exc))
        raise
    return _board(provider, kind, rows=rows, total=total)


def move(
    project: Project,
    *,
    kind: BoardKind,
    id: int,
    status_id: int,
    actor: Actor,
    version: int | None = None,
    order: Sequence[int] = (),
) -> dict[str, Any]:
    """Write a move back to Taiga and return the whole object as `taiga.get_*` shows it.

    `version`: what the page showed; a card that changed meanwhile in the same way is a `conflict` with
    `details.current`. `order`: the ids of the column's stories from the top as they are to be, the moved one among them
    (ignored for tasks). Raises `invalid_input` (`Invalid statusId`), `not_found`, and what a Taiga that is away raises.
    """
    from workflow.taiga.provider import Which
    from workflow.taiga.remote import RemoteProvider

    provider = RemoteProvider(project, actor)
    made = provider.update(kind, Which(id=id), {"statusId": status_id}, version=version)
    if kind == "user_story" and order and id in order:
        provider.place(status_id, list(order)[:MOST_CARDS])
    return made


_READER = Actor(kind="system", name="board")
_AWAY = (
    ErrorCode.UNAVAILABLE,
    ErrorCode.BACKEND_ERROR,
    ErrorCode.UNAUTHENTICATED,
    ErrorCode.FORBIDDEN,
    ErrorCode.RATE_LIMITED,
)


def _said(exc: DevFlowError) -> str:
    return str(exc.details.get("reason") or exc.message)


def _rests(remote: RemoteProject) -> bool:
    is_away = remote.state in (RemoteProject.State.AWAY, RemoteProject.State.REFUSED)
    return is_away and remote.checked_at is not None and timezone.now() - remote.checked_at < REST


def _board(
    provider: Any, kind: BoardKind, *, rows: Sequence[dict[str, Any]] | None = None, total: int = 0, detail: str = ""
) -> RemoteBoard:
    remote: RemoteProject = provider.remote
    is_up = rows is not None
    by_status: dict[int, list[RemoteCard]] = {}
    for row in rows or ():
        by_status.setdefault(row["statusId"], []).append(_card(remote, kind, row))
    state = remote.state if not is_up and remote.state in ("away", "refused") else "up" if is_up else "away"
    return RemoteBoard(
        kind=kind,
        state=state,
        detail="" if is_up else detail or remote.detail,
        checked_at=remote.checked_at,
        url=_page(remote),
        columns=[RemoteColumn(status, by_status.get(status["id"], [])) for status in provider.known_statuses(kind)],
        total=total,
        is_cut=total > len(rows or ()),
    )


def _page(remote: RemoteProject) -> str:
    """The project's page: a Taiga's own address is that of its API without /api/v1."""
    return f"{remote.url.removesuffix('/api/v1')}/project/{remote.remote_slug}"


def _card(remote: RemoteProject, kind: BoardKind, row: dict[str, Any]) -> RemoteCard:
    return RemoteCard(
        kind=kind,
        id=row["id"],
        ref=row["ref"],
        subject=row["subject"],
        status_id=row["statusId"],
        version=row["version"],
        is_closed=row["status"]["isClosed"],
        is_blocked=row["isBlocked"],
        blocked_reason=row["blockedReason"],
        assigned_to=row["assignedTo"]["fullName"] if row["assignedTo"] else "",
        tags=row["tags"],
        story=row.get("storyRef"),
        due_date=row.get("dueDate"),
        url=f"{_page(remote)}/{'us' if kind == 'user_story' else 'task'}/{row['ref']}",
    )
