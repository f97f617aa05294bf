"""A client of `devflow agentify`: a real process, spoken to in either framing, as editors do."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from devflow.config import PROJECT_ROOT
from tests.running import environment

WAIT = 60


class AgentifyClient:
    """Sends requests and finds their answers by id."""

    def __init__(self, process: "subprocess.Popen[bytes]", *, has_headers: bool) -> None:
        self.process = process
        self._has_headers = has_headers
        self._ids = iter(range(1, 10_000))
        self._answers: Queue[Any] = Queue()
        self._early: dict[Any, Any] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        out = self.process.stdout
        assert out is not None
        while True:
            if self._has_headers:
                header = out.readline()
                if not header:
                    break
                name, _, length = header.partition(b":")
                assert name == b"Content-Length", header
                assert out.readline() == b"\r\n"
                body = out.read(int(length))
            else:
                body = out.readline()
                if not body:
                    break
            self._answers.put(json.loads(body))
        self._answers.put(None)

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: Mapping[str, Any]) -> None:
        body = json.dumps(message).encode()
        self.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) if self._has_headers else body + b"\n")

    def begin(self, method: str, params: Any = None) -> int:
        identifier = next(self._ids)
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": identifier, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return identifier

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def answer(self, identifier: int | None) -> dict[str, Any]:
        while identifier not in self._early:
            try:
                message = self._answers.get(timeout=WAIT)
            except Empty:
                raise AssertionError(f"no answer to {identifier} in {WAIT} s") from None
            assert message is not None, "the process ended its output"
            self._early[message["id"]] = message
        found: dict[str, Any] = self._early.pop(identifier)
        return found

    def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        """The whole answer: `result` or `error`."""
        return self.answer(self.begin(method, params))

    def result(self, method: str, params: Any = None) -> Any:
        answer = self.ask(method, params)
        assert "error" not in answer, answer
        return answer["result"]

    def error(self, method: str, params: Any = None) -> dict[str, Any]:
        answer = self.ask(method, params)
        assert "error" in answer, answer
        found: dict[str, Any] = answer["error"]
        return found

    def ended(self) -> int:
        return self.process.wait(WAIT)


@contextmanager
def agentify(
    home: Path, log: Path, *, has_headers: bool = True, env: Mapping[str, str] | None = None
) -> Iterator[AgentifyClient]:
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "devflow", "agentify"],
            cwd=PROJECT_ROOT,
            env=environment(home, env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    with process:
        try:
            yield AgentifyClient(process, has_headers=has_headers)
        finally:
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()
            try:
                process.wait(WAIT)
            except subprocess.TimeoutExpired:
                process.kill()


def children_of(home: Path) -> list[int]:
    """Living processes that were started for backends by whoever works in this data directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                environ = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if any(item.startswith(b"DEVFLOW_CHILD") for item in environ) and str(home).encode() in command:
                found.append(int(entry.name))
    return found
