"""A Taiga that fails in every way: the failure table's errors, an answer in time, and nothing written twice."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from devflow.errors import ErrorCode
from mcpbridge import access, dispatcher
from mcpbridge.audit import recorder
from mcpbridge.envelopes import as_taiga
from tests.fakes import taiga_server as fake
from tests.fakes.taiga_server import Fault, TaigaServer
from tests.taiga.conftest import callers
from workflow.models import Event, Project, RemoteProject
from workflow.taiga import client
from workflow.taiga.provider import Filters, Which
from workflow.taiga.remote import RemoteProvider

from .scenes import refused

NOTHING = Filters()
AWAY: dict[str, tuple[Fault, ErrorCode]] = {
    "reset before the answer": (fake.reset(), ErrorCode.UNAVAILABLE),
    "reset in the middle": (fake.reset(20), ErrorCode.UNAVAILABLE),
    "hang": (fake.hang(), ErrorCode.UNAVAILABLE),
    "502 as HTML": (fake.html(), ErrorCode.BACKEND_ERROR),
    "500": (fake.status(500), ErrorCode.BACKEND_ERROR),
    "bad JSON": (fake.raw(b'{"id": 1,'), ErrorCode.BACKEND_ERROR),
    "HTML that says all is well": (fake.raw(b"<html>Welcome</html>"), ErrorCode.BACKEND_ERROR),
    "another shape": (fake.raw(b'{"a": "list was asked for"}'), ErrorCode.BACKEND_ERROR),
    "not a number": (fake.raw(b"[NaN]"), ErrorCode.BACKEND_ERROR),
    "too deep": (fake.raw(b"[" * 100_000), ErrorCode.BACKEND_ERROR),
    "elsewhere": (fake.status(301, {"Location": "http://169.254.169.254/"}), ErrorCode.BACKEND_ERROR),
    "429": (fake.status(429), ErrorCode.RATE_LIMITED),
    "403": (fake.status(403), ErrorCode.FORBIDDEN),
}
WRITES: dict[str, Callable[[RemoteProvider, int], Any]] = {
    "create": lambda far, story: far.create("user_story", {"subject": "New"}),
    "update": lambda far, story: far.update("user_story", Which(id=story), {"subject": "Changed"}),
    "delete": lambda far, story: far.delete("user_story", story),
}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "READ_SECONDS", 0.2)
    monkeypatch.setattr(client, "CALL_SECONDS", 0.6)


@pytest.fixture
def story(far: RemoteProvider, taiga: TaigaServer) -> int:
    made: int = far.create("user_story", {"subject": "One"})["id"]
    taiga.writes.clear()
    return made


def quick(project: Project) -> RemoteProvider:
    from devflow.actors import SYSTEM

    return RemoteProvider(project, SYSTEM, client=lambda remote: client.TaigaClient(remote, seconds=0.6))


@pytest.mark.parametrize("name", AWAY)
def test_a_read_from_a_taiga_that_fails_is_one_of_the_tables_errors(
    project: Project, taiga: TaigaServer, story: int, name: str
) -> None:
    fault, code = AWAY[name]
    far = quick(project)
    start = time.monotonic()
    with taiga.always(fault), refused(code) as caught:
        far.find("user_story", NOTHING, offset=0, limit=50)
    assert time.monotonic() - start < 3
    if code is ErrorCode.UNAVAILABLE:
        assert caught.value.message == "Network unreachable"
    assert taiga.writes == []
    assert quick(project).find("user_story", NOTHING, offset=0, limit=50).total == 1


def test_a_taiga_that_refuses_connections_is_unreachable_for_reads_and_writes(
    project: Project, taiga: TaigaServer, story: int
) -> None:
    with taiga.refusing():
        for act in (
            lambda: quick(project).find("epic", NOTHING, offset=0, limit=5),
            lambda: quick(project).delete("epic", 1),
        ):
            with refused(ErrorCode.UNAVAILABLE, "Network unreachable"):
                act()
        remote = RemoteProject.objects.get(project=project)
        assert (remote.state, remote.detail) == ("away", "it refuses connections")
    assert quick(project).find("user_story", NOTHING, offset=0, limit=5).total == 1
    assert RemoteProject.objects.get(project=project).state == "up"


@pytest.mark.parametrize(
    "fault", [fake.reset(), fake.reset(15), fake.html(), fake.hang()], ids=["reset", "middle", "502", "hang"]
)
def test_a_read_is_tried_again(project: Project, taiga: TaigaServer, story: int, fault: Fault) -> None:
    taiga.script(fault)
    assert quick(project).find("issue", NOTHING, offset=0, limit=5).total == 0


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after it was done"])
@pytest.mark.parametrize("kind", ["reset", "middle", "hang"])
@pytest.mark.parametrize("act", WRITES)
def test_a_write_is_sent_once_whatever_becomes_of_its_answer(
    project: Project, taiga: TaigaServer, story: int, act: str, kind: str, is_done: bool
) -> None:
    fault = {
        "reset": fake.reset(is_done=is_done),
        "middle": fake.reset(10, is_done=is_done),
        "hang": fake.hang(is_done=is_done),
    }[kind]
    far = quick(project)
    far.attributes()
    asked: list[str] = []
    send = far.client._exchange

    def only_writes(method: str, *args: Any, **kwargs: Any) -> Any:
        if method != "GET":
            asked.append(method)
            taiga.script(fault)
        return send(method, *args, **kwargs)

    far.client._exchange = only_writes  # type: ignore[method-assign]  # the fault is for the write, not for the read before it
    with refused(ErrorCode.UNAVAILABLE, "Network unreachable") as caught:
        WRITES[act](far, story)
    assert "unknown" in caught.value.details["written"]
    assert len(asked) == 1
    assert len(taiga.writes) == int(is_done)


@pytest.mark.parametrize("act", WRITES)
def test_a_write_that_is_answered_with_502_is_not_repeated(
    project: Project, taiga: TaigaServer, story: int, act: str
) -> None:
    far = quick(project)
    far.attributes()
    if act != "create":
        far.get("user_story", Which(id=story))
    before = len(taiga.requests)
    taiga.script(*([fake.html()] if act == "create" else []))
    if act == "create":
        with refused(ErrorCode.BACKEND_ERROR):
            WRITES[act](far, story)
        assert len(taiga.requests) == before
    assert taiga.writes == []


@pytest.mark.parametrize(
    ("given", "wait"),
    [
        ({}, client.WAIT_MS),
        ({"Retry-After": "7"}, 7000),
        ({"Retry-After": "soon"}, client.WAIT_MS),
        ({"Retry-After": "99999999"}, 3_600_000),
    ],
    ids=["without", "seconds", "nonsense", "for ever"],
)
def test_too_many_requests_are_rate_limited_and_not_repeated(
    project: Project, taiga: TaigaServer, given: dict[str, str], wait: int
) -> None:
    far = quick(project)
    far.attributes()
    taiga.script(fake.status(429, given))
    with refused(ErrorCode.RATE_LIMITED, "Rate limited") as caught:
        far.find("epic", NOTHING, offset=0, limit=5)
    assert caught.value.retry_after_ms == wait
    assert taiga._script == []


def test_a_page_longer_than_asked_for_is_cut(far: RemoteProvider, taiga: TaigaServer) -> None:
    for number in range(5):
        far.create("issue", {"subject": f"Issue {number}"})
    far.attributes()
    taiga.script(fake.too_long())
    page = far.find("issue", NOTHING, offset=0, limit=2)
    assert (len(page.items), page.total) == (2, 5)


def test_an_answer_that_drips_or_never_ends_is_given_up(
    project: Project, taiga: TaigaServer, story: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 500)
    with taiga.always(fake.raw(b" " * 2000)), refused(ErrorCode.BACKEND_ERROR):
        quick(project).find("epic", NOTHING, offset=0, limit=5)


def test_texts_that_cannot_be_kept_are_cleaned(far: RemoteProvider, taiga: TaigaServer) -> None:
    taiga.world.create("issues", {"project": 2, "subject": "a\0b \ud83d half"}, taiga.world.users[5])
    (item,) = far.find("issue", NOTHING, offset=0, limit=5).items
    assert item["subject"] == "ab ? half"
    item["subject"].encode()


# --- the login -------------------------------------------------------------------------------------------------------


def test_a_token_that_has_run_out_is_renewed_once_and_kept(project: Project, taiga: TaigaServer, story: int) -> None:
    taiga.forget_tokens()
    quick(project).update("user_story", Which(id=story), {"subject": "Renewed"})
    assert taiga.count("PATCH") == 1
    logins = [path for _, path in taiga.requests if path.startswith("/auth")]
    assert logins == ["/auth", "/auth/refresh"]
    quick(project).get("user_story", Which(id=story))
    assert [path for _, path in taiga.requests if path.startswith("/auth")] == logins


def test_where_the_refresh_token_has_run_out_too_the_login_is_repeated(
    project: Project, taiga: TaigaServer, story: int
) -> None:
    taiga.forget_tokens(refreshes=True)
    assert quick(project).get("user_story", Which(id=story))["subject"] == "One"


def test_a_login_that_is_refused_says_so_and_is_noted(project: Project, taiga: TaigaServer, story: int) -> None:
    taiga.forget_tokens(refreshes=True)
    taiga.world.users[5]["password"] = "another"
    with refused(ErrorCode.UNAUTHENTICATED, "refuses the login", "devflow taiga connect") as caught:
        quick(project).get("user_story", Which(id=story))
    assert "123123" not in f"{caught.value} {caught.value.details}"
    remote = RemoteProject.objects.get(project=project)
    assert remote.state == "refused"
    assert taiga.writes == []


def test_a_login_sealed_with_another_secret_key_is_refused(project: Project) -> None:
    RemoteProject.objects.update(sealed_login="nonsense")
    with refused(ErrorCode.UNAUTHENTICATED, "cannot be read"):
        quick(project)


# --- through the tools -----------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (fake.reset(), {"category": "network", "message": "Network unreachable", "httpStatus": 503}),
        (fake.html(), {"category": "server", "message": "Taiga answered oddly: HTTP 502", "httpStatus": 502}),
        (
            fake.status(429, {"Retry-After": "2"}),
            {"category": "rate_limit", "message": "Rate limited", "httpStatus": 429, "retryAfterMs": 2000},
        ),
        (fake.status(403), {"category": "auth", "httpStatus": 403}),
        (fake.raw(b"<html>"), {"category": "server", "httpStatus": 502}),
    ],
    ids=["network", "server", "rate_limit", "auth", "html"],
)
def test_an_agent_is_given_the_documents_envelope(
    taiga: TaigaServer, project: Project, fault: Fault, expected: dict[str, Any]
) -> None:
    access.keyring.forget()
    recorder.__init__()  # type: ignore[misc]  # a new process would have a chain of its own too
    caller = callers(slug=project.slug)
    try:
        with taiga.always(fault):
            answer = as_taiga(asyncio.run(dispatcher.call("taiga.list_epics", {}, caller)))
    finally:
        recorder.stop()
    assert answer["ok"] is False
    assert answer["error"].items() >= expected.items()
    assert Event.objects.filter(kind__startswith="epic.").count() == 0


def test_what_a_tool_asked_for_is_never_more_than_its_limit(far: RemoteProvider, taiga: TaigaServer) -> None:
    for number in range(7):
        far.create("epic", {"subject": f"Epic {number}"})
    for offset in range(9):
        page = far.find("epic", NOTHING, offset=offset, limit=3)
        assert [item["subject"] for item in page.items] == [f"Epic {at}" for at in range(7)][offset : offset + 3]
        assert page.total == 7
