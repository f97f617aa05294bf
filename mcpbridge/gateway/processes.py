"""Children that speak MCP on standard input and output: started with nothing of ours, read with bounds, ended whole.

Each child leads a process group of its own and carries a mark in its environment, by which what left the group is
found: at its end by `Child.end`, after a crash of this process by the reaper (`ledger`).
"""

import asyncio
import json
import logging
import os
import re
import signal
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from mcpbridge.gateway import ledger
from mcpbridge.gateway.confining import confined
from mcpbridge.gateway.faults import unavailable
from mcpbridge.gateway.marks import environment_of, kill_marked, new_mark
from mcpbridge.gateway.specs import BackendSpec, struck_out

logger = logging.getLogger(__name__)

MAX_LINE = 4 * 1024 * 1024
MAX_NOISE = 16 * 1024 * 1024
MAX_UNREAD = 16 * 1024 * 1024
CHUNK = 64 * 1024
BURST = 64
"""Messages of one chunk that are taken at once; a flood of more is taken at `STEADY` a second."""
STEADY = 2000
LOOKALIKE = 1024
"""What a line that begins like a message and is none counts as noise: finding that out takes longer."""
NOISE_PAUSE = 3.0
"""For each second spent on lines that are no messages, so that the noise of one backend costs others little."""
KEPT_WORDS = 16 * 1024
SHOWN_WORDS = 1000
LEAVE_SECONDS = 0.2
TERM_SECONDS = 0.8

_LIKE_A_MESSAGE = re.compile(rb"\n[ \t\r\f\v]*(\{[^\n]*)")
_ending: set["asyncio.Task[None]"] = set()


class Child:
    """One running child and what it last wrote to standard error.

    `fault` says why this side ended it, such as a line without end. `secrets` are struck out of its words.
    """

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        process: asyncio.subprocess.Process,
        child_id: str,
        secrets: list[str],
    ) -> None:
        self.process = process
        self.child_id = child_id
        self.secrets = secrets
        self.last_words = b""
        self.fault = ""
        self._is_hurried = False
        self._transport = transport
        self._end: asyncio.Task[None] | None = None
        self._listening = asyncio.create_task(self._listen_to_errors())

    async def _listen_to_errors(self) -> None:
        while self.process.stderr and (chunk := await self.process.stderr.read(CHUNK)):
            self.last_words = (self.last_words + chunk)[-KEPT_WORDS:]
            if len(chunk) == CHUNK:
                await asyncio.sleep(0.01)  # a flood waits in its pipe, not on our processor

    @property
    def trouble(self) -> str:
        """Why it is no use any more, as far as is known: our reason, or its exit code and last words."""
        if self.fault:
            return self.fault
        words = struck_out(self.last_words.decode(errors="replace"), self.secrets).strip()[-SHOWN_WORDS:]
        code = self.process.returncode
        parts = [
            f"It ended with exit code {code}." if code is not None and code >= 0 else "",
            f"It was ended by signal {-code}." if code is not None and code < 0 else "",
            f"It said: {words}" if words else "",
        ]
        return " ".join(part for part in parts if part)

    def hurry(self) -> None:
        """Do not wait for it to leave by itself: it changed nothing, so it has nothing to finish."""
        self._is_hurried = True

    def end(self) -> "asyncio.Task[None]":
        """Close its input, TERM and then KILL its group and whatever carries its mark. May be called again."""
        if self._end is None:
            self._end = asyncio.create_task(self._ended())
            _ending.add(self._end)
            self._end.add_done_callback(_ending.discard)
        return self._end

    async def _ended(self) -> None:
        try:
            if self.process.stdin is not None:
                self.process.stdin.close()
            if not self.fault and not self._is_hurried and await self._is_gone(LEAVE_SECONDS):
                return
            self._signal(signal.SIGTERM)
            await self._is_gone(TERM_SECONDS)
        finally:
            # Also when the loop ends in the middle: this much needs no loop.
            self._signal(signal.SIGKILL)
            try:
                await asyncio.to_thread(kill_marked, lambda mark: mark.child_id == self.child_id)
                await self._is_gone(TERM_SECONDS)
                await asyncio.wait({self._listening}, timeout=0.1)
            finally:
                self._listening.cancel()
                self._transport.close()
                ledger.struck(self.child_id)

    async def _is_gone(self, seconds: float) -> bool:
        pause = 0.002
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.process.returncode is None:
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, 0.05)
        return self.process.returncode is not None

    def _signal(self, sign: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, sign)


async def all_ended(seconds: float = 5.0) -> None:
    """Wait for the children of this loop that are ending now."""
    loop = asyncio.get_running_loop()
    if ending := {task for task in _ending if task.get_loop() is loop}:
        await asyncio.wait(ending, timeout=seconds)


@asynccontextmanager
async def started(spec: BackendSpec, root: str | None, *, kind: str, has_input: bool = True) -> AsyncIterator[Child]:
    """A fresh child, ended on the way out. Raises `unavailable` when it cannot be started."""
    mark = new_mark(uuid.uuid4().hex)
    env = spec.environment() | environment_of(mark)
    command = confined(spec, env.get("PATH", os.defpath))
    loop = asyncio.get_running_loop()
    ledger.expected(mark.child_id)
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=CHUNK, loop=loop),
            *command,
            stdin=asyncio.subprocess.PIPE if has_input else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=root,
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        ledger.struck(mark.child_id)
        raise unavailable(spec.id, f"{spec.command} cannot be started ({exc}).") from exc
    except BaseException:
        ledger.struck(mark.child_id)  # the reaper knows what to do with one that nobody expects
        raise
    child = Child(transport, asyncio.subprocess.Process(transport, protocol, loop), mark.child_id, spec.secrets)
    ledger.entered(mark, child.process.pid, backend=spec.pk, kind=kind)
    is_given_up = False
    try:
        yield child
    except asyncio.CancelledError:
        is_given_up = True
        raise
    finally:
        ending = child.end()
        if not is_given_up:  # else nobody waits for it any more
            await asyncio.shield(ending)


@asynccontextmanager
async def streams(child: Child) -> AsyncIterator[TransportStreams]:
    """The child's MCP messages as the SDK's streams. What is no message is skipped; a line past 4 MiB, 16 MiB of noise
    or an input nobody reads ends it.
    """
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    stdout, stdin = child.process.stdout, child.process.stdin
    if stdout is None or stdin is None:
        raise ValueError("the child was started without pipes")

    async def read_lines() -> None:
        rest, noise = bytearray(b"\n"), 0  # a line is known by the end of the one before it
        async with incoming:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
                while chunk := await stdout.read(CHUNK):
                    rest += chunk
                    if len(rest) > MAX_LINE and (b"\n" not in chunk or rest.find(b"\n", 1) > MAX_LINE):
                        child.fault = f"It wrote a line of more than {MAX_LINE // 2**20} MiB."
                        return
                    if b"\n" not in chunk:
                        continue
                    end, began = rest.rfind(b"\n"), time.perf_counter()
                    messages, others, is_answered = _messages(rest[:end])
                    rest = rest[end:]
                    spent = time.perf_counter() - began
                    noise = others if is_answered else noise + others
                    for message in messages:
                        await incoming.send(message)
                    if noise > MAX_NOISE:
                        child.fault = f"It wrote more than {MAX_NOISE // 2**20} MiB that are no message of MCP."
                        return
                    if len(messages) > BURST:
                        await asyncio.sleep(len(messages) / STEADY)
                    elif others:
                        await asyncio.sleep(spent * NOISE_PAUSE)

    async def write_lines() -> None:
        # It never waits for the child: a request that cannot leave must still be given up in time.
        async with outgoing:
            with suppress(ConnectionError, anyio.ClosedResourceError):
                async for item in outgoing:
                    stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    if stdin.transport.get_write_buffer_size() > MAX_UNREAD:
                        child.fault = f"It left more than {MAX_UNREAD // 2**20} MiB of its input unread."
                        break
        await incoming.aclose()

    async with anyio.create_task_group() as group:
        group.start_soon(read_lines)
        group.start_soon(write_lines)
        try:
            yield read, write
        finally:
            group.cancel_scope.cancel()
            for stream in (incoming, read, write, outgoing):
                stream.close()


def _messages(lines: bytearray) -> tuple[list[SessionMessage], int, bool]:
    """The messages of some lines, how many bytes are none (a line that only looks like one counts for more), and
    whether one answers a request. Stops where nothing but noise could follow."""
    found, others, is_answered = [], len(lines), False
    for match in _LIKE_A_MESSAGE.finditer(lines):
        message = _message(match[1])
        if message is None:
            others += LOOKALIKE
            if others > MAX_NOISE:
                break
            continue
        others -= len(match[0])
        found.append(message)
        is_answered = is_answered or isinstance(message.message, JSONRPCResponse | JSONRPCError)
    return found, others, is_answered


def _message(line: bytes | bytearray) -> SessionMessage | None:
    """The message on a line; None for noise. An answer that is not as MCP has it becomes an error for who asked."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        pass
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(said.get("id"), int) and ("result" in said or "error" in said):
        fault = ErrorData(code=PARSE_ERROR, message="something that is no answer of MCP")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=said["id"], error=fault))
    return None
