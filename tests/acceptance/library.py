"""The knowledge and the memories of a served DevFlow over HTTP, as a test asks for them, with bounded waits."""

import hashlib
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

from devflow.config import PROJECT_ROOT
from tests.acceptance.agents import RefusedError
from tests.running import RunningServer, environment

T = TypeVar("T")

READING_SECONDS = 60
JSON = {"Content-Type": "application/json"}


def eventually(look: Callable[[], T], what: str, *, seconds: float = READING_SECONDS, pause: float = 0.05) -> T:
    """What `look` gives once that is true; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what} (last seen: {seen!r})"
        time.sleep(pause)
    return seen


@dataclass
class Library:
    """One caller in one project. `call` gives results and raises `RefusedError`; `post` gives the bare response."""

    http: httpx.Client
    project: str = "demo"
    headers: Mapping[str, str] = field(default_factory=dict)

    def reopen(self) -> None:
        """Let go of the connections; those into a killed process are broken."""
        self.http.close()
        self.http = httpx.Client(base_url=self.http.base_url, timeout=self.http.timeout)

    def request(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        headers = {"X-Project": self.project, **self.headers, **(JSON if body is not None else {})}
        # Not httpx's own JSON: it cannot write lone surrogates.
        content = None if body is None else json.dumps(body)
        return self.http.request(method, path, content=content, headers=headers, **options)

    def post(self, tool: str, args: Mapping[str, Any]) -> httpx.Response:
        return self.request("POST", "/mcp/execute", {"tool": tool, "args": dict(args)})

    def call(self, tool: str, **args: Any) -> dict[str, Any]:
        answer = self.post(tool, args).json()
        if answer["error"] is not None:
            raise RefusedError({**answer["detail"], "message": answer["error"]})
        result: dict[str, Any] | None = answer["result"]
        return {"task": None, **answer["detail"]} if result is None else result

    def search(self, query: str, **more: Any) -> dict[str, Any]:
        return self.call("search_knowledge", query=query, **more)

    def contents(self, query: str, **more: Any) -> list[str]:
        return [hit["content"] for hit in self.search(query, **more)["results"]]

    def resource(self, uri: str) -> dict[str, Any]:
        """The JSON-RPC answer to reading a resource."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "library", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri, "_meta": meta}}
        headers = {
            "X-Project": self.project,
            **self.headers,
            **JSON,
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "resources/read",
            "Mcp-Name": uri,
        }
        answer = self.http.post("/mcp", content=json.dumps(message), headers=headers)
        text = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            text = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")][-1]
        said: dict[str, Any] = json.loads(text)
        return said

    def add(self, title: str, **given: Any) -> str:
        """Add a source; gives its id."""
        added = self.call("ingest_source", title=title, **given)
        return str(added["source_id"])

    def note(self, title: str, text: str, **given: Any) -> str:
        return self.add(title, type="manual", content=text, **given)

    def read(self, title: str, *, seconds: float = READING_SECONDS, **given: Any) -> str:
        """Add a source and wait until it is read and has its vectors; gives its id."""
        source = self.add(title, **given)
        self.wait(source, seconds=seconds)
        return source

    def info(self, source: str) -> dict[str, Any]:
        return self.call("get_source_info", source_id=source)

    def is_read(self, source: str) -> dict[str, Any] | None:
        """What is known of a source that was read to its end and has its vectors, else None."""
        info = self.info(source)
        return info if info["status"] in ("active", "error") and not info["pending_chunks"] else None

    def wait(self, source: str, *, seconds: float = READING_SECONDS) -> dict[str, Any]:
        found = eventually(lambda: self.is_read(source), f"{source} is read", seconds=seconds, pause=0.1)
        assert found is not None
        return found

    def wait_for_all(self, *, seconds: float = READING_SECONDS) -> dict[str, Any]:
        """Until every source of the project is read and no vector is missing; gives the list."""

        def listed() -> dict[str, Any] | None:
            found = self.call("list_knowledge_sources")
            is_busy = any(one["status"] in ("pending", "indexing") for one in found["sources"])
            return None if is_busy or found["index_lag"]["pending_chunks"] else found

        found = eventually(listed, "every source is read", seconds=seconds, pause=0.1)
        assert found is not None
        return found

    def upload(self, files: Mapping[str, bytes], **form: Any) -> httpx.Response:
        """POST files to `/api/v1/sources/upload/`."""
        parts = [("files", (name, data)) for name, data in files.items()]
        headers = {"X-Project": self.project, **self.headers}
        return self.http.post(
            "/api/v1/sources/upload/", files=parts, data={"project": self.project, **form}, headers=headers
        )


@contextmanager
def library(
    server: RunningServer, project: str = "demo", *, key: str | None = None, name: str = "reader", timeout: float = 60
) -> Iterator[Library]:
    """A library for one caller, on connections of its own."""
    headers = {"X-API-Key": key or server.key, "X-Agent-Id": name}
    made = Library(httpx.Client(base_url=server.url, timeout=timeout), project, headers)
    try:
        yield made
    finally:
        made.http.close()


def write_notes(folder: Path, count: int, *, paragraphs: int = 6) -> None:
    """Markdown files, each about a subject of its own, that make several chunks each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        parts = [f"# Subject {number}\n"]
        for part in range(paragraphs):
            facts = " ".join(
                f"Fact {fact} of part {part}: engine {number} turns {number * 7 + fact} times for valve {part}."
                for fact in range(8)
            )
            parts.append(f"## Part {part} of subject {number}\n\n{facts}\n")
        (folder / f"subject-{number:03}.md").write_text("\n".join(parts), encoding="utf-8")


def digest(server: RunningServer, *prefixes: str) -> str:
    """A digest of every row of the tables that start with one of `prefixes`, read straight from the database file."""
    found = hashlib.sha256()
    path = server.home / "devflow.sqlite3"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = sorted(name for (name,) in names if name.startswith(prefixes) and "_fts" not in name)
        assert len(tables) >= len(prefixes)
        for table in tables:
            found.update(repr(connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()).encode())
    return found.hexdigest()


@contextmanager
def job_worker(server: RunningServer) -> Iterator["subprocess.Popen[bytes]"]:
    """A `devflow worker` beside a server of several processes, until the block ends."""
    with server.log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "devflow", "worker"],
            cwd=PROJECT_ROOT,
            env=environment(server.home, server.env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
