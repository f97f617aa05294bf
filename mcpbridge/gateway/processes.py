"""Children that speak MCP on standard input and output: started with nothing of ours, read with bounds, ended whole.

Each child leads a process group of its own and carries `DEVFLOW_CHILD` in its environment, by which the reaper finds
what left the group.
"""

import asyncio
import logging
import os
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from mcpbridge.gateway.faults import unavailable
from mcpbridge.gateway.specs import BackendSpec

logger = logging.getLogger(__name__)

MAX_LINE = 4 * 1024 * 1024
CHUNK = 64 * 1024
KEPT_WORDS = 4096
END_SECONDS = 1.0
CHILD_VARIABLE = "DEVFLOW_CHILD"


class LineTooLongError(Exception):
    """A child wrote a line that passes the bound."""


class Child:
    """One running child and what it last wrote to standard error."""

    def __init__(self, spec: BackendSpec, process: asyncio.subprocess.Process, child_id: str) -> None:
        self.spec = spec
        self.process = process
        self.child_id = child_id
        self.last_words = b""

    async def listen_to_errors(self) -> None:
        while self.process.stderr and (chunk := await self.process.stderr.read(CHUNK)):
            self.last_words = (self.last_words + chunk)[-KEPT_WORDS:]

    async def end(self) -> None:
        """TERM to the whole group, KILL after a second. May be called again."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, sign)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    while self.process.returncode is None:
                        await asyncio.sleep(0.01)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


@asynccontextmanager
async def started(spec: BackendSpec, root: str | None, *, kind: str) -> AsyncIterator[Child]:
    """A fresh child, ended on the way out. Raises `unavailable` when it cannot be started."""
    child_id = uuid.uuid4().hex
    try:
        process = await asyncio.create_subprocess_exec(
            spec.command,
            *spec.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=spec.environment() | {CHILD_VARIABLE: child_id},
            cwd=root,
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        raise unavailable(spec.id, f"{spec.command} cannot be started ({exc}).") from exc
    child = Child(spec, process, child_id)
    listening = asyncio.create_task(child.listen_to_errors())
    try:
        yield child
    finally:
        await asyncio.shield(child.end())
        listening.cancel()


@asynccontextmanager
async def streams(child: Child) -> AsyncIterator[TransportStreams]:
    """The child's MCP messages as the SDK's streams; noise between them is skipped, a line past 4 MiB ends it."""
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    stdout, stdin = child.process.stdout, child.process.stdin
    if stdout is None or stdin is None:
        raise ValueError("the child was started without pipes")

    async def read_lines() -> None:
        buffer = bytearray()
        async with incoming:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
                while chunk := await stdout.read(CHUNK):
                    buffer += chunk
                    if b"\n" in chunk:
                        *lines, rest = buffer.split(b"\n")
                        buffer = bytearray(rest)
                        for line in lines:
                            if (message := _message(bytes(line))) is not None:
                                await incoming.send(message)
                    if len(buffer) > MAX_LINE:
                        child.last_words = f"It wrote a line of more than {MAX_LINE // 2**20} MiB.".encode()
                        return

    async def write_lines() -> None:
        async with outgoing:
            with suppress(ConnectionError, anyio.ClosedResourceError):
                async for item in outgoing:
                    stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    await stdin.drain()
        await incoming.aclose()

    async with anyio.create_task_group() as group:
        group.start_soon(read_lines)
        group.start_soon(write_lines)
        try:
            yield read, write
        finally:
            group.cancel_scope.cancel()
            stdin.close()
            for stream in (incoming, read, write, outgoing):
                stream.close()


def _message(line: bytes) -> SessionMessage | None:
    """The message on a line; None for noise."""
    line = line.strip()
    if not line.startswith(b"{"):
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None
