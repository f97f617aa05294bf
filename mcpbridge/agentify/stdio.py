"""`devflow agentify`: the document's server on standard input and output. Its user administers this machine.

Standard output carries messages only: what anything else prints there goes to standard error.
"""

import asyncio
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from devflow import __version__, config, logs
from mcpbridge import access
from mcpbridge.agentify import protocol
from mcpbridge.agentify.debug import DebugPage
from mcpbridge.agentify.framing import BrokenFramingError, Malformed, Reader, framed
from mcpbridge.agentify.protocol import Options, RpcError, Session
from mcpbridge.audit import recorder
from mcpbridge.gateway import ledger
from mcpbridge.gateway.sessions import pool
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Caller, Scope

logger = logging.getLogger(__name__)

CHUNK = 64 * 1024
MAX_AT_WORK = 60
AGENT = "agentify"
"""What its calls are recorded under, unless DEVFLOW_AGENT_ID says otherwise."""
PARSE_ERROR, CANCELLED = -32700, -32800
WRITE_SECONDS = 5.0
LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
    "silent": logging.CRITICAL + 1,
}

MakeCaller = Callable[[], Caller]


def serve(key: str) -> int:
    """Serve until `exit` or the end of the input, as the user of this machine whose own key is `key`.

    Returns the exit code: 0 after `shutdown`, 1 otherwise, as LSP has it.
    """
    conf = config.current()
    logs.configure(logs.logging_config(conf.log_level, conf.log_format))
    logging.getLogger("mcp.client").setLevel(logging.CRITICAL)  # what breaks there is answered here
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        return asyncio.run(_served(key, output))
    finally:
        recorder.stop()


async def _served(key: str, output: int) -> int:
    identity = await access.identify(key)
    identity = replace(identity, scopes=frozenset(Scope))
    session = os.urandom(8).hex()

    def caller() -> Caller:
        headers = {"x-agent-id": config.current().agent_id or AGENT}
        return access.caller_for(identity, transport="stdio", client="agentify", session=session, headers=headers)

    await run_blocking(ledger.reap)
    sweeping = asyncio.create_task(pool.run())
    server = Server(caller, Writer(output))
    try:
        return await server.run()
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        await ledger.written()


class Writer:
    """Writes messages one after the other on a thread of its own, so that a client that does not read holds up
    nothing but its own answers."""

    def __init__(self, output: int) -> None:
        self._output = output
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="agentify-out", daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        self._waiting.put(data)

    def finish(self) -> None:
        """Give what waits a moment to leave (blocks)."""
        self._waiting.put(None)
        self._thread.join(WRITE_SECONDS)

    def _write(self) -> None:
        with suppress(OSError):
            while (data := self._waiting.get()) is not None:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._output, view) :]


class Server:
    """One client's messages in, answers out."""

    def __init__(self, caller: MakeCaller, writer: Writer) -> None:
        self._caller = caller
        self._writer = writer
        self._reader = Reader()
        self._session = Session(is_of_this_machine=True, heard=self._heard)
        self._debug: DebugPage | None = None
        self._at_work: dict[str | int, asyncio.Task[None]] = {}
        self._was_shut_down = False
        self._is_over = asyncio.Event()

    async def run(self) -> int:
        """Serve until it is over; gives the exit code."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[bytes] = asyncio.Queue(4)
        threading.Thread(target=_read, args=(loop, chunks), name="agentify-in", daemon=True).start()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, self._is_over.set)
        reading = asyncio.create_task(self._take(chunks))
        over = asyncio.create_task(self._is_over.wait())
        try:
            await asyncio.wait((reading, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, over):
                task.cancel()
            await asyncio.gather(reading, over, return_exceptions=True)
            await self._end()
            await asyncio.to_thread(self._writer.finish)
        return 0 if self._was_shut_down else 1

    async def _take(self, chunks: "asyncio.Queue[bytes]") -> None:
        while data := await chunks.get():
            try:
                for message in self._reader.feed(data):
                    await self._handle(message)
                    if self._is_over.is_set():
                        return
            except BrokenFramingError as exc:
                self._answer(None, RpcError(PARSE_ERROR, str(exc)))
                return
        # The input has ended: what is at work may still answer.
        if self._at_work:
            await asyncio.wait(set(self._at_work.values()))

    async def _handle(self, message: Any) -> None:
        if isinstance(message, Malformed):
            return self._answer(None, RpcError(PARSE_ERROR, message.why))
        if not isinstance(message, Mapping) or message.get("jsonrpc") != "2.0":
            return self._answer(None, RpcError(protocol.INVALID_REQUEST, "This is no JSON-RPC 2.0 message."))
        method, identifier, params = message.get("method"), message.get("id"), message.get("params")
        if not isinstance(method, str):
            if "result" in message or "error" in message:
                return None  # an answer to nothing we asked
            return self._answer(None, RpcError(protocol.INVALID_REQUEST, "A request names its method."))
        if "id" not in message:
            return await self._notified(method, params)
        if isinstance(identifier, bool) or not isinstance(identifier, str | int):
            return self._answer(None, RpcError(protocol.INVALID_REQUEST, "An id is a text or a whole number."))
        try:
            if method == protocol.INITIALIZE:
                return self._answer(identifier, await self._initialize(params))
            if method == protocol.SHUTDOWN:
                await self._shut_down()
                return self._answer(identifier, None)
            if method == protocol.EXIT:
                self._answer(identifier, None)
                return self._is_over.set()
            if method == "ping":
                return self._answer(identifier, {})
        except RpcError as exc:
            return self._answer(identifier, exc)
        return self._begin(identifier, method, params)

    async def _notified(self, method: str, params: Any) -> None:
        if method == protocol.SHUTDOWN:
            await self._shut_down()
        elif method == protocol.EXIT:
            self._is_over.set()
        elif method in ("$/cancelRequest", "notifications/cancelled") and isinstance(params, Mapping):
            identifier = params.get("id", params.get("requestId"))
            if isinstance(identifier, str | int) and (task := self._at_work.get(identifier)) is not None:
                task.cancel()

    async def _initialize(self, params: Any) -> dict[str, Any]:
        fallback = os.environ.get("OPENAI_API_KEY", "") if not config.current().llm.base_url else ""
        options = await self._session.initialize(params, self._caller(), fallback_key=fallback)
        await self._apply(options)
        result: dict[str, Any] = {"capabilities": {}, "serverInfo": {"name": "devflow", "version": __version__}}
        asked = params.get("protocolVersion") if isinstance(params, Mapping) else None
        if isinstance(asked, str):  # MCP's handshake rather than LSP's
            result["protocolVersion"] = asked if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        return result

    async def _apply(self, options: Options) -> None:
        if options.logLevel is not None:
            logging.getLogger().setLevel(LEVELS[options.logLevel])
        if options.DEBUG_PORT is not None:
            self._debug = DebugPage(self._session)
            await self._debug.open(options.DEBUG_PORT)

    def _heard(self, outcome: Any) -> None:
        if self._debug is not None:
            self._debug.note(outcome)

    def _begin(self, identifier: str | int, method: str, params: Any) -> None:
        """Start what takes its time; its answer comes when it is there."""
        answers = {protocol.ORCHESTRATE: self._session.orchestrate, protocol.CONFIRM: self._session.confirm}
        if method not in answers:
            return self._answer(identifier, RpcError(protocol.METHOD_NOT_FOUND, f"There is no method {method[:100]}."))
        if identifier in self._at_work:
            return self._answer(
                identifier, RpcError(protocol.INVALID_REQUEST, "A request with this id is still at work.")
            )
        if len(self._at_work) >= MAX_AT_WORK:
            return self._answer(
                identifier,
                RpcError(protocol.MODEL_FAILED, "Too many tasks are at work; wait for one to finish."),
            )
        task = asyncio.create_task(self._work(identifier, answers[method], params))
        self._at_work[identifier] = task
        task.add_done_callback(lambda done: self._ended(identifier, done))
        return None

    def _ended(self, identifier: str | int, task: "asyncio.Task[None]") -> None:
        self._at_work.pop(identifier, None)
        if task.cancelled():
            self._answer(identifier, RpcError(CANCELLED, "The request was cancelled."))

    async def _work(self, identifier: str | int, answer: Callable[[Any, Caller], Any], params: Any) -> None:
        try:
            self._answer(identifier, await answer(params, self._caller()))
        except RpcError as exc:
            self._answer(identifier, exc)
        except Exception:
            logger.exception("a request of agentify failed")
            self._answer(identifier, RpcError(protocol.INTERNAL_ERROR, "Something went wrong on the server."))

    def _answer(self, identifier: str | int | None, result: Any) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": identifier}
        if isinstance(result, RpcError):
            message["error"] = result.as_json()
        else:
            message["result"] = result
        self._writer.send(framed(message, has_headers=bool(self._reader.has_headers)))

    async def _shut_down(self) -> None:
        self._was_shut_down = True
        await self._end()

    async def _end(self) -> None:
        """End what is at work, the session, and every process of this server's backends."""
        tasks = list(self._at_work.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the callbacks that answer them run before anything else is said
        await self._session.close()
        await pool.close()
        if self._debug is not None:
            self._debug.close()
            self._debug = None


def _read(loop: asyncio.AbstractEventLoop, chunks: "asyncio.Queue[bytes]") -> None:
    """Pass standard input on; an empty chunk is its end. On a thread, for not every input can be polled."""
    with suppress(OSError, RuntimeError):
        while True:
            data = os.read(sys.stdin.fileno(), CHUNK)
            asyncio.run_coroutine_threadsafe(chunks.put(data), loop).result()
            if not data:
                return
