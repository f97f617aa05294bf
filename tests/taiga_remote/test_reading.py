"""A remote project on the board: cards read through, moves written back, and a clear state when Taiga is away."""

import pytest

from devflow.actors import SYSTEM
from devflow.errors import ErrorCode
from tests.fakes import taiga_server as fake
from tests.fakes.taiga_server import TaigaServer
from workflow.models import Project
from workflow.taiga import reading
from workflow.taiga.remote import RemoteProvider

from .scenes import refused


def shown(board: reading.RemoteBoard) -> dict[str, list[str]]:
    return {column.status["slug"]: [card.subject for card in column.cards] for column in board.columns if column.cards}


def test_cards_stand_under_their_status(project: Project, far: RemoteProvider) -> None:
    story = far.create("user_story", {"subject": "One", "tags": ["red"]})
    far.create("task", {"subject": "T", "userStoryId": story["id"]})
    board = reading.cards(project)
    assert shown(board) == {"new": ["One"]}
    assert (board.state, board.total, board.is_cut) == ("up", 1, False)
    assert board.columns[0].cards[0].url.endswith("/project/admin-far-away/us/1")
    tasks = reading.cards(project, kind="task")
    assert shown(tasks) == {"new": ["T"]}
    assert tasks.columns[0].cards[0].story == story["ref"]


def test_a_board_is_read_in_few_requests_and_bounded(
    project: Project, taiga: TaigaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(7):
        taiga.world.create("userstories", {"project": 2, "subject": str(at)}, taiga.world.users[5])
    reading.cards(project)
    before = len(taiga.requests)
    monkeypatch.setattr(reading, "MOST_CARDS", 5)
    board = reading.cards(project)
    assert (board.total, board.is_cut, len(taiga.requests) - before) == (7, True, 1)


def test_a_taiga_that_is_away_is_said_to_be_and_not_asked_again_at_once(
    project: Project, far: RemoteProvider, taiga: TaigaServer
) -> None:
    far.create("user_story", {"subject": "One"})
    with taiga.refusing():
        board = reading.cards(project)
    assert (board.state, board.detail) == ("away", "it refuses connections")
    assert [column.status["slug"] for column in board.columns][:2] == ["new", "ready"]
    assert shown(board) == {}
    before = len(taiga.requests)
    assert reading.cards(project).state == "away"
    assert len(taiga.requests) == before
    assert shown(reading.cards(project, again=True)) == {"new": ["One"]}


def test_a_refused_login_is_said(project: Project, far: RemoteProvider, taiga: TaigaServer) -> None:
    far.statuses(None)
    taiga.forget_tokens(refreshes=True)
    taiga.world.users[5]["password"] = "another"
    assert reading.cards(project).state == "refused"


def test_a_move_is_written_back_with_its_place(project: Project, far: RemoteProvider, taiga: TaigaServer) -> None:
    ids = [far.create("user_story", {"subject": name})["id"] for name in "abc"]
    ready = next(row["id"] for row in far.statuses("user_story") if row["slug"] == "ready")
    moved = reading.move(project, kind="user_story", id=ids[2], status_id=ready, actor=SYSTEM, version=1)
    assert moved["statusId"] == ready
    reading.move(project, kind="user_story", id=ids[0], status_id=ready, actor=SYSTEM, order=[ids[0], ids[2], ids[1]])
    orders = {id: taiga.world.items["userstories"][id] for id in ids}
    assert [orders[id]["kanban_order"] for id in (ids[0], ids[2])] == [1, 2]
    assert orders[ids[1]]["status"] != ready, "what is elsewhere stays there"
    task = far.create("task", {"subject": "T", "userStoryId": ids[0]})
    closed = next(row["id"] for row in far.statuses("task") if row["slug"] == "closed")
    assert reading.move(project, kind="task", id=task["id"], status_id=closed, actor=SYSTEM)["status"]["isClosed"]


def test_a_move_that_somebody_else_made_meanwhile_is_a_conflict(project: Project, far: RemoteProvider) -> None:
    story = far.create("user_story", {"subject": "One"})
    ready, doing = (row["id"] for row in far.statuses("user_story") if row["slug"] in ("ready", "in-progress"))
    reading.move(project, kind="user_story", id=story["id"], status_id=ready, actor=SYSTEM, version=1)
    with refused(ErrorCode.CONFLICT) as caught:
        reading.move(project, kind="user_story", id=story["id"], status_id=doing, actor=SYSTEM, version=1)
    assert caught.value.details["current"]["statusId"] == ready
    with refused(ErrorCode.INVALID_INPUT, "Invalid statusId"):
        reading.move(project, kind="user_story", id=story["id"], status_id=99, actor=SYSTEM)


def test_a_move_while_taiga_is_away_changes_nothing(project: Project, far: RemoteProvider, taiga: TaigaServer) -> None:
    story = far.create("user_story", {"subject": "One"})
    ready = far.statuses("user_story")[1]["id"]
    with taiga.always(fake.html()), refused(ErrorCode.BACKEND_ERROR):
        reading.move(project, kind="user_story", id=story["id"], status_id=ready, actor=SYSTEM)
    assert taiga.count("PATCH") == 0
