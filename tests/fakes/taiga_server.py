"""A Taiga on loopback: it keeps state, answers in the shapes of the recorded answers, keeps Taiga's rules, and breaks
on demand.

    with TaigaServer() as taiga:
        taiga.script(status(429, {"Retry-After": "7"}), hang())     # the next two requests
        taiga.writes                                                 # every change it made: [("POST", "/epics"), ...]
"""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.fakes import taiga_shapes as shapes
from tests.fakes.taiga_rules import HISTORIES, KINDS, VALUES, Answer, Json, World

API = "/api/v1"
BY = 30


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request. `is_done`: after the request was carried out."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    hangs: bool = False
    cut_after: int | None = None
    ignores_paging: bool = False
    is_done: bool = False


def status(
    code: int, headers: Mapping[str, str] | None = None, body: bytes = b'{"_error_message": "scripted"}'
) -> Fault:
    return Fault(code, headers or {}, body)


def html(code: int = 502) -> Fault:
    page = b"<html><head><title>502 Bad Gateway</title></head><body><center>nginx</center></body></html>"
    return Fault(code, {"Content-Type": "text/html"}, page)


def raw(body: bytes) -> Fault:
    return Fault(body=body)


def hang(*, is_done: bool = False) -> Fault:
    return Fault(hangs=True, is_done=is_done)


def reset(after: int = 0, *, is_done: bool = False) -> Fault:
    """Cut the connection: before the answer, or in the middle of its body."""
    return Fault(cut_after=after, is_done=is_done)


def too_long() -> Fault:
    """All there is, whatever page was asked for."""
    return Fault(ignores_paging=True)


class TaigaServer:
    """Listens from `__enter__` to `__exit__`."""

    def __init__(self) -> None:
        self.world = World()
        self.requests: list[tuple[str, str]] = []
        self.writes: list[tuple[str, str]] = []
        self.most_per_page: int | None = None
        self._tokens: dict[str, int] = {}
        self._refreshes: dict[str, int] = {}
        self._script: list[Fault] = []
        self._mood: Fault | None = None
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._port = 0
        self._made = 0
        self._open: set[socket.socket] = set()

    # For tests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{API}"

    def script(self, *faults: Fault) -> None:
        """The next requests, one each."""
        with self._lock:
            self._script += faults

    @contextmanager
    def always(self, fault: Fault) -> Iterator[None]:
        self._mood = fault
        try:
            yield
        finally:
            self._mood = None

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Nobody listens."""
        self._stop()
        try:
            yield
        finally:
            self._closing.clear()
            self._start()

    def forget_tokens(self, *, refreshes: bool = False) -> None:
        """Every token handed out has run out; with `refreshes` those that renew them too."""
        with self._lock:
            self._tokens.clear()
            if refreshes:
                self._refreshes.clear()

    def count(self, method: str, path: str = "") -> int:
        """How many changes of this kind were made."""
        return sum(made == method and path in where for made, where in self.writes)

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        outer = self

        class Handler(_Handler):
            fake = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def _stop(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # Requests

    def next_fault(self) -> Fault | None:
        with self._lock:
            return self._script.pop(0) if self._script else self._mood

    def answer(self, method: str, target: str, headers: Any, body: Any, *, is_paged: bool = True) -> Answer:
        parts = urlsplit(target)
        path, query = parts.path.removeprefix(API), dict(parse_qsl(parts.query, keep_blank_values=True))
        with self._lock:
            self.requests.append((method, target.removeprefix(API)))
            try:
                if path == "/auth":
                    return self._log_in(body)
                if path == "/auth/refresh":
                    return self._refresh(body)
                author = self._author(headers.get("Authorization", ""))
                made = self._route(method, path, query, body if isinstance(body, dict) else {}, author)
            except Answer as refused:
                return refused
            if method != "GET":
                self.writes.append((method, path))
            if isinstance(made.body, _Listed):
                return self._page(made.body.rows, path, query, is_paged=is_paged)
            return made

    def _log_in(self, body: Json) -> Answer:
        for user in self.world.users.values():
            if (user["username"], user["password"]) == (body.get("username"), body.get("password")):
                return Answer(200, shapes.user(user) | self._tokens_for(user["id"]))
        said = {"detail": "No active account found with the given credentials", "code": "invalid_credentials"}
        return Answer(401, said, {"www-authenticate": 'Bearer realm="api"'})

    def _refresh(self, body: Json) -> Answer:
        user = self._refreshes.pop(body.get("refresh", ""), None)
        if user is None:
            said = {"detail": "Token is invalid or expired", "code": "token_not_valid"}
            return Answer(401, said, {"www-authenticate": 'Bearer realm="api"'})
        return Answer(200, self._tokens_for(user))

    def _tokens_for(self, user: int) -> Json:
        self._made += 1
        token, refresh = f"token-{self._made}", f"refresh-{self._made}"
        self._tokens[token] = self._refreshes[refresh] = user
        return {"refresh": refresh, "auth_token": token}

    def token_for(self, user: int = 5) -> str:
        with self._lock:
            return str(self._tokens_for(user)["auth_token"])

    def _author(self, given: str) -> Json:
        user = self._tokens.get(given.removeprefix("Bearer "))
        if user is None:
            said = {
                "_error_message": "Authentication credentials were not provided.",
                "_error_type": "taiga.base.exceptions.NotAuthenticated",
            }
            raise Answer(401, said, {"www-authenticate": 'Bearer realm="api"'})
        return self.world.users[user]

    def _page(self, rows: list[Json], path: str, query: dict[str, str], *, is_paged: bool) -> Answer:
        size = int(query.get("page_size", BY))
        size = min(size, self.most_per_page or size)
        number = int(query.get("page", 1))
        last = max(1, -(-len(rows) // size))
        if number > last or number < 1:
            return Answer(404, {"_error_message": "Page is not 'last', nor can it be converted to an int."})
        headers = {"x-pagination-count": str(len(rows)), "x-paginated": "true", "x-paginated-by": str(size)}
        headers["x-pagination-current"] = str(number)
        for name, there, to in (("next", number < last, number + 1), ("prev", number > 1, number - 1)):
            if there:
                headers[f"x-pagination-{name}"] = f"{self.url}{path}?{urlencode({**query, 'page': to})}"
        return Answer(200, rows[(number - 1) * size : number * size] if is_paged else rows, headers)

    def _route(self, method: str, path: str, query: dict[str, str], body: Json, author: Json) -> Answer:
        for verb, pattern, act in _ROUTES:
            found = re.fullmatch(pattern, path)
            if verb == method and found:
                return act(self.world, query, body, author, *found.groups())
        raise Answer(404, {"_error_message": "Endpoint not found"})


@dataclass
class _Listed:
    rows: list[Json]


def _all(rows: list[Json]) -> Answer:
    return Answer(200, _Listed(rows))


def _me(world: World, query: Any, body: Any, author: Json) -> Answer:
    return Answer(200, shapes.user(author))


def _projects(world: World, query: Any, body: Any, author: Json) -> Answer:
    rows = sorted(world.projects.values(), key=lambda row: (row["name"], row["id"]))
    if "member" in query:
        rows = [row for row in rows if int(query["member"]) in [one["user"]["id"] for one in row["people"]]]
    return _all([shapes.project_line(row) for row in rows])


def _whole_project(world: World, row: Json | None) -> Json:
    if row is None:
        raise Answer(404, {"_error_message": ""})
    return shapes.project(row, {name: world.own(name, row["id"]) for name in VALUES})


def _project(world: World, query: Any, body: Any, author: Json, id: str) -> Answer:
    return Answer(200, _whole_project(world, world.projects.get(int(id))))


def _project_by_slug(world: World, query: Any, body: Any, author: Json) -> Answer:
    found = [row for row in world.projects.values() if row["slug"] == query.get("slug")]
    return Answer(200, _whole_project(world, found[0] if found else None))


def _make_project(world: World, query: Any, body: Json, author: Json) -> Answer:
    return Answer(201, _whole_project(world, world.project(body)))


def _values(world: World, query: Any, body: Any, author: Json, table: str) -> Answer:
    return _all(world.own(table, int(query["project"])))


def _memberships(world: World, query: Any, body: Any, author: Json) -> Answer:
    project = world.projects[int(query["project"])]
    return _all([shapes.membership(one, project) for one in world.memberships if one["project"] == project["id"]])


def _invite(world: World, query: Any, body: Json, author: Json) -> Answer:
    return Answer(201, shapes.membership(world.invite(body), world.projects[body["project"]]))


def _milestones(world: World, query: Any, body: Any, author: Json) -> Answer:
    project = world.projects[int(query["project"])]
    rows = [one for one in world.milestones if one["project"] == project["id"]]
    return _all([shapes.milestone(one, project) for one in rows])


def _make_milestone(world: World, query: Any, body: Json, author: Json) -> Answer:
    return Answer(201, shapes.milestone(world.milestone(body), world.projects[body["project"]]))


def _narrowed(world: World, kind: str, query: dict[str, str]) -> list[Json]:
    rows = [row for row in world.items[kind].values() if row["project"] == int(query.get("project", 0))]
    for name in ("status", "assigned_to", "milestone", "user_story", "severity", "priority", "type"):
        if name in query:
            wanted = [None if value == "null" else int(value) for value in query[name].split(",")]
            rows = [row for row in rows if row[name] in wanted]
    if "epic" in query:
        own = [one["user_story"] for one in world.related if one["epic"] == int(query["epic"])]
        rows = [row for row in rows if row["id"] in own]
    if "tags" in query:
        rows = [row for row in rows if set(query["tags"].split(",")) & set(row["tags"])]
    if "modified_date__gte" in query:
        rows = [row for row in rows if row["modified_date"] >= query["modified_date__gte"]]
    for word in query.get("q", "").lower().split():
        rows = [
            row
            for row in rows
            if word in re.findall(r"\w+", f"{row['subject']} {row['description']} {row['ref']}".lower())
        ]
    return sorted(rows, key=lambda row: -row["id"]) if kind == "issues" else rows


def _items(world: World, query: Any, body: Any, author: Json, kind: str) -> Answer:
    rows = [world.shown(kind, row) for row in _narrowed(world, kind, query)]
    if "epic" in query:
        orders = {one["user_story"]: one["order"] for one in world.related if one["epic"] == int(query["epic"])}
        rows = [{**row, "epic_order": orders[row["id"]]} for row in rows]
    return _all(rows)


def _one(world: World, kind: str, row: Json) -> Json:
    rows = _narrowed(world, kind, {"project": str(row["project"])})
    at = rows.index(row)

    def beside(place: int) -> Json | None:
        there = 0 <= place < len(rows)
        return {name: rows[place][name] for name in ("id", "ref", "subject")} if there else None

    made = world.shown(kind, row, whole=True)
    more = {"generated_user_stories": None} if kind in ("tasks", "issues") else {}
    return made | more | {"neighbors": {"previous": beside(at - 1), "next": beside(at + 1)}}


def _item(world: World, query: Any, body: Any, author: Json, kind: str, id: str) -> Answer:
    return Answer(200, _one(world, kind, world.find(kind, int(id))))


def _by_ref(world: World, query: Any, body: Any, author: Json, kind: str) -> Answer:
    asked = (int(query["project"]), int(query["ref"]))
    found = [row for row in world.items[kind].values() if (row["project"], row["ref"]) == asked]
    return Answer(200, _one(world, kind, world.find(kind, found[0]["id"] if found else 0)))


def _written(world: World, kind: str, row: Json) -> Json:
    more = {"generated_user_stories": None} if kind in ("tasks", "issues") else {}
    return world.shown(kind, row, whole=True) | more


def _create(world: World, query: Any, body: Json, author: Json, kind: str) -> Answer:
    return Answer(201, _written(world, kind, world.create(kind, body, author)))


def _patch(world: World, query: Any, body: Json, author: Json, kind: str, id: str) -> Answer:
    return Answer(200, _written(world, kind, world.patch(kind, int(id), body, author)))


def _delete(world: World, query: Any, body: Any, author: Json, kind: str, id: str) -> Answer:
    world.delete(kind, int(id))
    return Answer(204)


def _related(world: World, query: Any, body: Any, author: Json, epic: str) -> Answer:
    return _all([one for one in world.related if one["epic"] == int(epic)])


def _relate(world: World, query: Any, body: Json, author: Json, epic: str) -> Answer:
    return Answer(201, world.relate(int(epic), body))


def _part(world: World, query: Any, body: Any, author: Json, epic: str, story: str) -> Answer:
    world.part(int(epic), int(story))
    return Answer(204)


def _history(world: World, query: Any, body: Any, author: Json, word: str, id: str) -> Answer:
    kind = HISTORIES[word]
    row = world.find(kind, int(id))
    key = f"{kind}.{word}"
    log = world.logs[kind, row["id"]]
    return _all([shapes.history(entry, row, world.users[entry["author"]], key) for entry in reversed(log)])


def _kanban(world: World, query: Any, body: Json, author: Json) -> Answer:
    return Answer(200, world.kanban(body))


def _filters(world: World, query: Any, body: Any, author: Json) -> Answer:
    project = int(query["project"])
    stories = _narrowed(world, "userstories", {"project": query["project"]})

    def count(name: str, value: Any) -> int:
        return sum(row[name] == value for row in stories)

    statuses = world.own("userstory-statuses", project)
    people: list[Json] = [{"id": None, "full_name": ""}]
    people += [{"id": one["user"]["id"], "full_name": one["user"]["full_name"]} for one in _people(world, project)]
    assigned = [one | {"count": count("assigned_to", one["id"])} for one in people]
    faces = {"photo": None, "big_photo": None}
    tags = sorted({tag for kind in KINDS for row in world.items[kind].values() for tag in row["tags"]})
    epics = [row for row in world.items["epics"].values() if row["project"] == project]
    linked = [one["epic"] for one in world.related]
    nothing = {"id": None, "ref": None, "subject": None, "order": 0, "count": len(stories) - len(linked)}
    return Answer(
        200,
        {
            "statuses": [
                {name: one[name] for name in ("id", "name", "color", "order")} | {"count": count("status", one["id"])}
                for one in statuses
            ],
            "assigned_to": assigned,
            "assigned_users": [
                one | faces | {"gravatar_id": shapes.GRAVATAR if one["id"] else None} for one in assigned
            ],
            "owners": [
                one | faces | {"gravatar_id": shapes.GRAVATAR, "count": count("owner", one["id"])} for one in people[1:]
            ],
            "tags": [{"name": tag, "color": None, "count": sum(tag in row["tags"] for row in stories)} for tag in tags],
            "epics": [
                nothing,
                *(
                    {"id": row["id"], "ref": row["ref"], "subject": row["subject"], "order": row["order"]}
                    | {"count": linked.count(row["id"])}
                    for row in epics
                ),
            ],
            "roles": [
                {"id": one["id"], "name": one["name"], "color": None, "order": one["order"], "count": 0}
                for one in world.own("roles", project)
            ],
        },
    )


def _people(world: World, project: int) -> list[Json]:
    people: list[Json] = world.projects[project]["people"]
    return people


def _search(world: World, query: Any, body: Any, author: Json) -> Answer:
    made: Json = {}
    for kind in ("epics", "issues", "tasks", "userstories"):
        text = query["text"].lower()
        rows = [row for row in world.items[kind].values() if row["project"] == int(query["project"])]
        found = [row for row in rows if text in f"{row['subject']} {row['description']}".lower()]
        made[kind] = [{name: row[name] for name in ("id", "ref", "subject", "status", "assigned_to")} for row in found]
    count = sum(len(rows) for rows in made.values())
    return Answer(200, {**made, "wikipages": [], "count": count})


def _resolver(world: World, query: Any, body: Any, author: Json) -> Answer:
    project = next(row for row in world.projects.values() if row["slug"] == query["project"])
    stories = world.items["userstories"].values()
    found = next(row for row in stories if (row["project"], row["ref"]) == (project["id"], int(query["us"])))
    return Answer(200, {"project": project["id"], "us": found["id"]})


_KIND = f"({'|'.join(KINDS)})"
_ROUTES: list[tuple[str, str, Callable[..., Answer]]] = [
    ("GET", "/users/me", _me),
    ("GET", "/projects", _projects),
    ("POST", "/projects", _make_project),
    ("GET", "/projects/by_slug", _project_by_slug),
    ("GET", "/projects/([0-9]+)", _project),
    ("GET", f"/({'|'.join(VALUES)})", _values),
    ("GET", "/memberships", _memberships),
    ("POST", "/memberships", _invite),
    ("GET", "/milestones", _milestones),
    ("POST", "/milestones", _make_milestone),
    ("GET", "/userstories/filters_data", _filters),
    ("POST", "/userstories/bulk_update_kanban_order", _kanban),
    ("GET", f"/{_KIND}", _items),
    ("POST", f"/{_KIND}", _create),
    ("GET", f"/{_KIND}/by_ref", _by_ref),
    ("GET", f"/{_KIND}/([0-9]+)", _item),
    ("PATCH", f"/{_KIND}/([0-9]+)", _patch),
    ("DELETE", f"/{_KIND}/([0-9]+)", _delete),
    ("GET", "/epics/([0-9]+)/related_userstories", _related),
    ("POST", "/epics/([0-9]+)/related_userstories", _relate),
    ("DELETE", "/epics/([0-9]+)/related_userstories/([0-9]+)", _part),
    ("GET", f"/history/({'|'.join(HISTORIES)})/([0-9]+)", _history),
    ("GET", "/search", _search),
    ("GET", "/resolver", _resolver),
]


class _Handler(BaseHTTPRequestHandler):
    fake: TaigaServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        self.fake._open.add(self.connection)

    def finish(self) -> None:
        self.fake._open.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(content) if content else None
        except ValueError:
            body = {}  # as the recorded answer shows
        fault = self.fake.next_fault()
        if fault is None:
            return self._send(self.fake.answer(method, self.path, self.headers, body))
        if fault.ignores_paging:
            return self._send(self.fake.answer(method, self.path, self.headers, body, is_paged=False))
        if fault.hangs:
            if fault.is_done:
                self.fake.answer(method, self.path, self.headers, body)
            self.fake._closing.wait(60)
            self.close_connection = True
            return None
        if fault.cut_after is not None:
            made = self.fake.answer(method, self.path, self.headers, body) if fault.is_done else Answer(200, ["x" * 99])
            return self._send(made, cut_after=fault.cut_after)
        return self._send(Answer(fault.status, fault.body, dict(fault.headers)))

    def _send(self, answer: Answer, cut_after: int | None = None) -> None:
        self.close_connection = self.close_connection or cut_after is not None
        if cut_after == 0 or (cut_after is not None and answer.status == 204):
            return
        body = answer.body
        content = body if isinstance(body, bytes) else b"" if answer.status == 204 else json.dumps(body).encode()
        self.send_response(answer.status)
        usual = {} if answer.status == 204 else {"content-type": "application/json"}
        for name, value in {**usual, **{name.lower(): value for name, value in answer.headers.items()}}.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content if cut_after is None else content[:cut_after])

    def log_message(self, format: str, *args: object) -> None:
        pass
