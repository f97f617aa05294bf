"""Talking to a real Taiga: one pool of connections for each address, a time in all for each call, and its answers as
JSON or as a `DevFlowError`. What the JSON means is `mapping`'s business.

Only reads are repeated. A write whose answer is lost may have happened: the error says so.
"""

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import httpcore
import httpx
from django.utils import timezone

from devflow import network, outside, sealing
from devflow.digits import whole
from devflow.errors import DevFlowError, ErrorCode
from workflow.models import RemoteProject
from workflow.taiga import mapping, transport

PURPOSE = "taiga"
CALL_SECONDS = 10.0
"""What one call of a tool may wait for Taiga in all."""
READ_SECONDS = 4.5
"""What one try of a read may take, so that there is time for another."""
TRIES = 3
MOST_BYTES = 32 * 1024 * 1024
PAGE_SIZE = 100
AT_ONCE = 4
WAIT_MS = 5_000
"""What a caller is told to wait where Taiga refuses for its rate and does not say how long."""
NOTED_EVERY = 60
"""Seconds between two notes that nothing has changed."""

Json = dict[str, Any]
Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Login:
    """How DevFlow is known to a Taiga: a name and a password, or a token; and the tokens in use now.

    `is_trusted`: whoever runs this server connected it, so that it may be at an address that is not public.
    """

    username: str = ""
    password: str = ""
    token: str = ""
    refresh: str = ""
    is_trusted: bool = False

    def sealed(self) -> str:
        return sealing.seal(json.dumps(asdict(self)), purpose=PURPOSE)

    @classmethod
    def of(cls, remote: RemoteProject) -> "Login":
        """Raises `unauthenticated` where nothing is stored, or with another secret key."""
        try:
            return cls(**json.loads(sealing.unseal(remote.sealed_login, purpose=PURPOSE)))
        except (sealing.SealError, ValueError, TypeError):
            raise refused("The login stored for Taiga cannot be read any more.") from None


@dataclass(frozen=True, slots=True)
class Rows:
    """One page of a list, how many rows there are in all, and how many to a page Taiga gave."""

    rows: list[Json]
    total: int
    size: int


def refused(message: str) -> DevFlowError:
    return DevFlowError(
        ErrorCode.UNAUTHENTICATED,
        message,
        suggestion="Have an admin of the project connect it to Taiga anew: `devflow taiga connect`.",
    )


def unreachable(why: str, *, is_sent: bool) -> DevFlowError:
    details = {"reason": why}
    if is_sent:
        details["written"] = "unknown: read it again before you repeat the change"
    return DevFlowError(ErrorCode.UNAVAILABLE, "Network unreachable", details=details)


def odd(why: str) -> DevFlowError:
    return DevFlowError(ErrorCode.BACKEND_ERROR, f"Taiga answered oddly: {why}")


class TaigaClient:
    """Asks one Taiga on behalf of one connected project. Not for use by several threads at once.

    `seconds`: for everything asked of it in all; with `each` for every request anew, for long work. A `remote` that is
    not saved keeps its tokens and its state in memory only.
    """

    def __init__(self, remote: RemoteProject, *, seconds: float = CALL_SECONDS, each: bool = False) -> None:
        self._remote = remote
        self._login = Login.of(remote)
        self._seconds = seconds
        self._each = each
        self._until: float | None = None
        self._http = transport.pooled(remote.url, self._login.is_trusted)

    @property
    def sealed_login(self) -> str:
        """The login with the tokens in use now, as the row keeps it."""
        return self._login.sealed()

    def begin(self) -> None:
        """Another piece of work begins: it has all the time again."""
        self._until = None

    # What is asked

    def get(self, path: str, **params: Any) -> Any:
        return self._read(path, params)[0]

    def page(self, path: str, params: Params, *, number: int, size: int) -> Rows:
        """Page `number` (from 1) of `size` rows. Past the last page: no rows, and a total of 0, which is not known."""
        try:
            found, headers = self._read(path, {**params, "page": number, "page_size": size})
        except DevFlowError as exc:
            if exc.code is ErrorCode.NOT_FOUND and number > 1:
                return Rows([], 0, size)
            raise
        return _rows(found, headers, size)

    def every(self, path: str, params: Params, *, most: int) -> list[Json]:
        """All rows of a list. Raises `too_large` for more than `most`."""
        first = self.page(path, params, number=1, size=PAGE_SIZE)
        if first.total > most:
            raise DevFlowError(
                ErrorCode.TOO_LARGE,
                f"Taiga would have to be asked for {first.total:,} rows; {most:,} is the most.",
                suggestion="Narrow the list: one status, tag or person at a time.",
            )
        last = -(-first.total // first.size)
        asked = [(path, {**params, "page": number, "page_size": first.size}) for number in range(2, last + 1)]
        found = list(first.rows)
        for body, headers in self.together(asked):
            found += _rows(body, headers, first.size).rows
        return found

    def together(self, asked: Sequence[tuple[str, Params]]) -> list[tuple[Any, Mapping[str, str]]]:
        """Several reads at a time; a page that is not there is empty."""
        if not asked:
            return []
        if not self._login.token:
            self._renew("")
        until, token = self._deadline(), self._login.token

        def one(request: tuple[str, Params]) -> tuple[Any, Mapping[str, str]] | None:
            answer = self._tried("GET", request[0], request[1], None, until, token)
            if answer.status_code == 401:
                return None
            return ([], {}) if answer.status_code == 404 else (_parsed(answer), answer.headers)

        with ThreadPoolExecutor(min(AT_ONCE, len(asked))) as pool:
            found = list(pool.map(one, asked))
        return [self._read(*asked[at]) if got is None else got for at, got in enumerate(found)]

    def post(self, path: str, body: Json) -> Any:
        return self._write("POST", path, body)

    def patch(self, path: str, body: Json) -> Any:
        return self._write("PATCH", path, body)

    def delete(self, path: str) -> None:
        self._write("DELETE", path, None)

    # How

    def _read(self, path: str, params: Params) -> tuple[Any, Mapping[str, str]]:
        answer = self._asked("GET", path, params, None)
        return _parsed(answer), answer.headers

    def _write(self, method: str, path: str, body: Json | None) -> Any:
        return _parsed(self._asked(method, path, {}, body))

    def _asked(self, method: str, path: str, params: Params, body: Json | None) -> httpx.Response:
        """The answer, after one more try with a fresh token where Taiga knows the old one no more."""
        until = self._deadline()
        try:
            if not self._login.token:
                self._renew("")
            answer = self._tried(method, path, params, body, until, self._login.token)
            if answer.status_code == 401:
                self._renew(self._login.token)
                answer = self._tried(method, path, params, body, until, self._login.token)
            if answer.status_code == 401:
                raise refused("Taiga refuses the login stored for this project.")
            if answer.status_code >= 500:
                raise odd(f"HTTP {answer.status_code}")
        except DevFlowError as exc:
            self._note_failure(exc)
            raise
        self._note(RemoteProject.State.UP, "")
        return answer

    def _deadline(self) -> float:
        if self._until is None or self._each:
            self._until = time.monotonic() + self._seconds
        return self._until

    def _tried(
        self, method: str, path: str, params: Params, body: Json | None, until: float, token: str
    ) -> httpx.Response:
        """One answer, whatever its status; reads are tried again while there is time. Raises `unavailable`."""
        is_read = method == "GET"
        for pause in _pauses(TRIES if is_read else 1):
            last = time.monotonic() + pause >= until or not pause
            try:
                answer = self._exchange(method, path, params, body, until, token, is_read=is_read)
            except DevFlowError:
                if last or time.monotonic() + pause >= until:
                    raise
            else:
                if answer.status_code < 500 or last or time.monotonic() + pause >= until:
                    return answer
            time.sleep(pause)
        raise AssertionError("the last pause is 0")

    def _exchange(
        self, method: str, path: str, params: Params, body: Json | None, until: float, token: str, *, is_read: bool
    ) -> httpx.Response:
        left = until - time.monotonic()
        if left <= 0:
            raise unreachable("it took too long to answer", is_sent=False)
        seconds = min(left, READ_SECONDS) if is_read else left
        headers = {"Accept-Encoding": "identity", "User-Agent": outside.USER_AGENT, "Accept-Language": "en"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        is_sent = False
        try:
            with self._http.stream(
                method,
                f"{self._remote.url}{path}",
                params={name: value for name, value in params.items() if value is not None},
                json=body,
                headers=headers,
                timeout=seconds,
                extensions={"until": time.monotonic() + seconds},
            ) as answer:
                is_sent = True
                read = bytearray()
                for piece in answer.iter_raw():
                    read += piece
                    if len(read) > MOST_BYTES:
                        raise odd(f"more than {MOST_BYTES // 1024**2} MiB at once")
                return httpx.Response(answer.status_code, headers=dict(answer.headers), content=bytes(read))
        except network.RefusedAddressError as exc:
            raise DevFlowError(
                ErrorCode.FORBIDDEN,
                str(exc),
                suggestion="Have whoever runs this server connect it: `devflow taiga connect`.",
            ) from None
        except network.UnknownHostError as exc:
            raise unreachable(str(exc), is_sent=False) from None
        except (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout):
            raise unreachable("it refuses connections", is_sent=False) from None
        except (httpcore.TimeoutException, httpx.TimeoutException):
            raise unreachable("it did not answer in time", is_sent=not is_read) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpx.HTTPError, httpx.InvalidURL):
            why = "it closed the connection in the middle" if is_sent else "it closed the connection"
            raise unreachable(why, is_sent=not is_read) from None

    # Tokens and state

    def _renew(self, stale: str) -> None:
        """Have a token that is not `stale`: another process's, by the refresh token, or by logging in again."""
        with _renewing:
            kept = self._stored()
            if kept is not None and kept.token not in ("", stale):
                self._login = kept
                return
            login = self._login
            made = self._tokens("/auth/refresh", {"refresh": login.refresh}) if login.refresh else None
            if made is None and login.password:
                made = self._tokens("/auth", {"type": "normal", "username": login.username, "password": login.password})
            if made is None:
                raise refused("Taiga refuses the login stored for this project.")
            self._login = replace(login, token=made["token"], refresh=made["refresh"])
            if self._remote.pk:
                sealed = self._login.sealed()
                RemoteProject.objects.filter(pk=self._remote.pk, sealed_login=self._remote.sealed_login).update(
                    sealed_login=sealed
                )
                self._remote.sealed_login = sealed

    def _stored(self) -> Login | None:
        if not self._remote.pk:
            return None
        self._remote.refresh_from_db(fields=["sealed_login"])
        return Login.of(self._remote)

    def _tokens(self, path: str, body: Json) -> dict[str, str] | None:
        """Fresh tokens; None where Taiga does not take what it is given."""
        answer = self._tried("POST", path, {}, body, self._deadline(), "")
        if answer.status_code in (400, 401, 403):
            return None
        found = _parsed(answer)
        if not isinstance(found, dict) or not isinstance(found.get("auth_token"), str):
            raise odd("no token")
        return {"token": found["auth_token"], "refresh": str(found.get("refresh") or "")}

    def _note_failure(self, exc: DevFlowError) -> None:
        if exc.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN):
            self._note(RemoteProject.State.REFUSED, exc.message)
        elif exc.code in (ErrorCode.UNAVAILABLE, ErrorCode.BACKEND_ERROR):
            self._note(RemoteProject.State.AWAY, str(exc.details.get("reason") or exc.message))

    def _note(self, state: str, detail: str) -> None:
        """Keep how Taiga is: at once when that changes, otherwise once a minute."""
        remote, now = self._remote, timezone.now()
        is_new = (remote.state, remote.detail) != (state, detail)
        if not is_new and remote.checked_at and (now - remote.checked_at).total_seconds() < NOTED_EVERY:
            return
        remote.state, remote.detail, remote.checked_at = state, detail, now
        if remote.pk:
            RemoteProject.objects.filter(pk=remote.pk).update(state=state, detail=detail, checked_at=now)


_renewing = threading.Lock()


def _pauses(tries: int) -> Iterator[float]:
    """Seconds to wait after each try, jittered; 0 after the last."""
    yield from (random.uniform(0.5, 1.0) * 0.2 * 2**number for number in range(tries - 1))  # noqa: S311  # no secret
    yield 0


def _parsed(answer: httpx.Response) -> Any:
    """The JSON of an answer. Raises what its status means."""
    status = answer.status_code
    if status == 429:
        asked = outside.retry_after(answer.headers.get("Retry-After", ""))
        wait = WAIT_MS if asked is None else min(int(asked * 1000), 3_600_000)
        raise DevFlowError(ErrorCode.RATE_LIMITED, "Rate limited", retry_after_ms=wait)
    if status >= 500:
        raise odd(f"HTTP {status}")
    if status == 403:
        raise DevFlowError(
            ErrorCode.FORBIDDEN, "Taiga does not let this login do that.", suggestion="Ask an admin of it there."
        )
    if status == 404:
        raise DevFlowError(ErrorCode.NOT_FOUND, "Taiga has no such thing.")
    if 300 <= status < 400:
        raise odd("it sends us elsewhere; connect the project to its final address")
    if status == 204 or (not answer.content and status < 300):
        return None
    try:
        found = mapping.cleaned(answer.content)
    except (ValueError, RecursionError):
        raise odd("not in JSON" if status < 400 else f"HTTP {status}") from None
    if status >= 400:
        raise mapping.refusal(status, found)
    return found


def _rows(found: Any, headers: Mapping[str, str], size: int) -> Rows:
    """A list as Taiga gave it, cut to what was asked for."""
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise odd("no list")
    counted = whole(headers.get("x-pagination-count", ""))
    size = min(size, whole(headers.get("x-paginated-by", "")) or size)
    return Rows(found[:size], len(found) if counted is None else counted, size)
