"""What a backend asks the client while a call runs (MCP's elicitation and sampling), brought there and back.

On the handshake revisions it is a request of ours: on the connection, where that stays open (SSE, stdio), and in the
stream the call's request is answered with on Streamable HTTP, where the client's answer comes as a POST of its own,
which may reach another process. On 2026-07-28 the call is answered with `input_required` and waits here, in this
process; the client's repeat, with its answers and the state it was given, goes on with it.
"""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mcp.types as types
from django.core import signing
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, TypeAdapter, ValidationError

from devflow.errors import DevFlowError, ErrorCode, invalid
from mcpbridge import ratelimit
from mcpbridge.doors import Door, Way, door_of
from mcpbridge.tooling import Caller, Question

ELICITATION = "elicitation/create"
SAMPLING = "sampling/createMessage"

EVERYTHING = frozenset({"elicitation", "elicitation.url", "sampling", "sampling.tools", "sampling.context"})
"""All that a client may be able to answer."""

ANSWER_SECONDS = 300.0
KEPT_SECONDS = 60.0
END_SECONDS = 5.0
MAX_QUESTION = 256 * 1024
MAX_IDENTIFIER = 1024
MOST_WAITING = 32
MOST_OF_ONE_KEY = 8
"""Questions that wait at once, in one process. Each holds a place and a session of its backend."""

OF_A_REPEAT = ("_meta", "inputResponses", "requestState")
"""What belongs to the connection with the client, not to its request."""

_ELICITED: TypeAdapter[Any] = TypeAdapter(types.ElicitResult)
_SAMPLED: TypeAdapter[Any] = TypeAdapter(types.CreateMessageResult)
_SAMPLED_WITH_TOOLS: TypeAdapter[Any] = TypeAdapter(types.CreateMessageResultWithTools)

Context = ServerRequestContext[Any, Any]
Run = Callable[[Caller], Awaitable[dict[str, Any]]]


Answer = types.JSONRPCResponse | types.JSONRPCError


class AnyRequest(types.Request[dict[str, Any], str]):
    """Any request, its parameters passed on as they are."""


class _Answer(RootModel[dict[str, Any]]):
    """Any result, as it came."""


def features_of(ctx: Context, door: Door) -> frozenset[str]:
    """What the client says it can answer, of `EVERYTHING`; nothing where there is no way back to it."""
    is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    if is_modern or ctx.session.can_send_request:
        return features_in(ctx.session.client_capabilities)
    return door.features


def features_in(can: types.ClientCapabilities | None) -> frozenset[str]:
    """What a client declares, of `EVERYTHING`."""
    if can is None:
        return frozenset()
    found = set()
    if (elicitation := can.elicitation) is not None:
        if elicitation.form is not None or elicitation.url is None:  # `{}` is what was said before there were urls
            found.add("elicitation")
        if elicitation.url is not None:
            found.add("elicitation.url")
    if (sampling := can.sampling) is not None:
        found.add("sampling")
        found.update(f"sampling.{name}" for name in ("tools", "context") if getattr(sampling, name) is not None)
    return frozenset(found)


def needed_for(question: Question) -> str:
    """The feature a client needs to answer. Raises `invalid_input` for what no client is asked through us."""
    method, params = question["method"], question.get("params") or {}
    if method == ELICITATION:
        return "elicitation.url" if params.get("mode") == "url" else "elicitation"
    if method == SAMPLING:
        return "sampling.tools" if params.get("tools") else "sampling"
    raise invalid(f"A client is not asked for {str(method)[:100]} through DevFlow.")


def declared(features: frozenset[str]) -> frozenset[str]:
    """What a backend is told: the SDK's client declares both ways of elicitation or none. A way its client lacks is
    refused when it is asked for."""
    ways = {"elicitation", "elicitation.url"}
    return features - ways | {"elicitation"} if features & ways else features


def fitting(question: Question, answer: object) -> Any:
    """The answer as the SDK's model. Raises `invalid_input` where it is not of the shape MCP asks for."""
    if question["method"] == ELICITATION:
        shape = _ELICITED
    else:
        shape = _SAMPLED_WITH_TOOLS if (question.get("params") or {}).get("tools") else _SAMPLED
    try:
        return shape.validate_python(answer)
    except ValidationError:
        raise invalid("The client's answer is not of the shape MCP asks for.") from None


@dataclass(frozen=True)
class _Client:
    """What is known of who is asked. `is_passed` where it talks to the backend itself, through us."""

    features: frozenset[str]
    is_passed: bool

    def asked(self, questions: Mapping[str, Question], by: str) -> dict[str, Question]:
        """The questions as they go out. Raises `invalid_input` for one the client did not say it can answer, and for
        more than it could read."""
        if len(json.dumps(dict(questions))) > MAX_QUESTION:
            raise invalid(f"{by} asks more than {MAX_QUESTION // 1024} KiB at once.")
        for question in questions.values():
            if (needed := needed_for(question)) not in self.features:
                raise invalid(f"The client did not declare the capability `{needed}`.")
        if self.is_passed:
            return dict(questions)
        return {key: _introduced(question, by) for key, question in questions.items()}


def _introduced(question: Question, by: str) -> Question:
    """For a client that knows DevFlow only: it is told which backend asks, which is shown nothing of the others."""
    params = dict(question.get("params") or {})
    if question["method"] == ELICITATION:
        params["message"] = f"{by}: {params.get('message', '')}"
    else:
        params.pop("includeContext", None)
    return {**question, "params": params}


async def answered(ctx: Context, caller: Caller, run: Run, *, is_passed: bool = False) -> dict[str, Any]:
    """The result of `run(caller)`, or the question it asks first; a client that answers one goes on with its call.

    `is_passed`: the client speaks with the backend itself, and its questions go out as they came. `run` is given the
    caller with a way to ask its client. Raises `invalid_input` for a state that names no call which waits for this
    client, and what `run` raises.
    """
    given = ctx.params or {}
    if given.get("requestState") is not None:
        await ratelimit.spend(caller)
        waiting = _waiting.find(caller, ctx.method, given)
        return await waiting.leg(caller, given.get("inputResponses") or {})
    if not caller.features:
        return await run(caller)
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        door = door_of(ctx)
        if door.way is None and not ctx.session.can_send_request:
            return await run(caller)
        asker = _Connection(ctx, caller, is_passed=is_passed)
        if door.way is not None:
            asker = _Posted(ctx, caller, door.way, is_passed=is_passed)
        return await run(caller.with_changes(asker=asker))
    return await _Parked(caller, run, ctx.method, given, is_passed=is_passed).leg(caller, {})


class _Connection:
    """A client on a connection that stays open."""

    def __init__(self, ctx: Context, caller: Caller, *, is_passed: bool) -> None:
        self._ctx = ctx
        self._caller = caller
        self._client = _Client(caller.features, is_passed)

    async def ask(self, questions: Mapping[str, Question], *, by: str) -> dict[str, dict[str, Any]]:
        asked = self._client.asked(questions, by)
        with _waiting.counted(self._caller):
            try:
                async with asyncio.TaskGroup() as group:  # a refusal takes the other questions back
                    tasks = [group.create_task(self._one(question)) for question in asked.values()]
            except BaseExceptionGroup as exc:
                raise exc.exceptions[0] from None
        return {key: task.result() for key, task in zip(questions, tasks, strict=True)}

    async def _one(self, question: Question) -> dict[str, Any]:
        params = dict(question.get("params") or {})
        if params.get("mode") == "url":
            params.setdefault("elicitationId", secrets.token_hex(8))  # required here, gone since 2026-07-28
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._sent(question["method"], params)
        except TimeoutError:
            raise _unanswered() from None

    async def _sent(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        request: Any = AnyRequest(method=method, params=params)
        metadata = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        try:
            return (await self._ctx.session.send_request(request, _Answer, metadata=metadata)).root
        except ValidationError:
            raise invalid("The client's answer is not of the shape MCP asks for.") from None


class _Posted(_Connection):
    """A client of stateless Streamable HTTP: asked in the stream of its request, it answers with a POST."""

    def __init__(self, ctx: Context, caller: Caller, way: Way, *, is_passed: bool) -> None:
        super().__init__(ctx, caller, is_passed=is_passed)
        self._way = way

    async def _sent(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        with _waiting.posted(self._way.channel, self._caller.session) as (identifier, answered):
            await self._way.send({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})
            try:
                answer = await answered
            except asyncio.CancelledError:
                gone = {"requestId": identifier, "reason": "Nobody waits for the answer any more."}
                with suppress(DevFlowError):
                    await self._way.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone})
                raise
        if isinstance(answer, types.JSONRPCError):
            raise MCPError.from_error_data(answer.error)
        return dict(answer.result)


class _Parked:
    """A call of 2026-07-28 that may ask: it runs beside the requests of its client, which come and go."""

    def __init__(self, caller: Caller, run: Run, method: str, given: Mapping[str, Any], *, is_passed: bool) -> None:
        self.state = secrets.token_urlsafe(24)
        self.owner = _owner(caller)
        self._caller = caller
        self._client = _Client(caller.features, is_passed)
        self._original = _original(method, given)
        self._report = caller.report
        self._open: dict[str, tuple[Question, asyncio.Future[dict[str, Any]]]] = {}
        self._moved = asyncio.Event()
        self._is_heard = False
        self._task = asyncio.ensure_future(run(caller.with_changes(asker=self, report=self._tell)))
        self._task.add_done_callback(self._ended)

    def _tell(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._report(progress, total, message)

    def _ended(self, task: "asyncio.Future[dict[str, Any]]") -> None:
        self._moved.set()
        if not task.cancelled():
            task.exception()  # seen here too: its client may never come back for it
        if not self._is_heard:
            asyncio.get_running_loop().call_later(KEPT_SECONDS, _waiting.forget, self)

    def is_of(self, caller: Caller, method: str, given: Mapping[str, Any]) -> bool:
        return self.owner == _owner(caller) and self._original == _original(method, given)

    async def leg(self, caller: Caller, answers: Mapping[str, Any]) -> dict[str, Any]:
        """From one request of the client to its answer: the call's result, or what it asks."""
        if self._is_heard:
            raise invalid("This call goes on already: it was given these answers a moment ago.")
        self._is_heard, self._report = True, caller.report
        try:
            for key, answer in answers.items():
                question, waiting = self._open.get(key, (None, None))
                if question is not None and waiting is not None and not waiting.done():
                    fitting(question, answer)
                    del self._open[key]
                    waiting.set_result(answer)
            while not self._task.done() and not self._open:
                self._moved.clear()
                await self._moved.wait()
        except asyncio.CancelledError:
            self._task.cancel()
            _waiting.forget(self)
            raise
        finally:
            self._is_heard = False
        if self._task.done():
            _waiting.forget(self)
            return self._task.result()
        return {
            "resultType": "input_required",
            "inputRequests": {key: dict(question) for key, (question, _) in self._open.items()},
            "requestState": self.state,
        }

    async def ask(self, questions: Mapping[str, Question], *, by: str) -> dict[str, dict[str, Any]]:
        asked = self._client.asked(questions, by)
        with _waiting.counted(self._caller):
            _waiting.keep(self)
            return await self._answers(asked)

    async def _answers(self, questions: Mapping[str, Question]) -> dict[str, dict[str, Any]]:
        keys = [key if key not in self._open else f"{key}-{secrets.token_hex(4)}" for key in questions]
        waiting = [asyncio.get_running_loop().create_future() for _ in keys]
        for key, question, answer in zip(keys, questions.values(), waiting, strict=True):
            self._open[key] = (question, answer)
        self._moved.set()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return dict(zip(questions, await asyncio.gather(*waiting), strict=True))
        except TimeoutError:
            raise _unanswered() from None
        finally:
            for key in keys:
                self._open.pop(key, None)

    async def end(self) -> None:
        """Give the call up."""
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=END_SECONDS)


def _unanswered() -> DevFlowError:
    """Neither a timeout nor unavailable: the backend is not to blame, and what it did is not tried again."""
    return DevFlowError(
        ErrorCode.PRECONDITION_FAILED,
        f"The client did not answer within {ANSWER_SECONDS:g} s.",
        suggestion="Call again when somebody is there to answer.",
    )


def _owner(caller: Caller) -> tuple[int | None, str]:
    return caller.scope.key_id, caller.agent_name


def _original(method: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The request that is repeated, without what differs then."""
    return method, {name: value for name, value in given.items() if name not in OF_A_REPEAT}


class _Waiting:
    """The calls of this process that asked their client something."""

    def __init__(self) -> None:
        self._by_state: dict[str, _Parked] = {}
        self._of_key: Counter[int] = Counter()
        self._posted: dict[str, tuple[str, asyncio.Future[Answer]]] = {}

    @contextmanager
    def counted(self, caller: Caller) -> Iterator[None]:
        """Round a question. Raises `rate_limited` where too many wait."""
        key = caller.scope.key_id
        if self._of_key.total() >= MOST_WAITING or self._of_key[key] >= MOST_OF_ONE_KEY:
            raise DevFlowError(
                ErrorCode.RATE_LIMITED,
                "Too many calls wait for an answer of their client.",
                suggestion="Answer the questions that are open, then call again.",
            )
        self._of_key[key] += 1
        try:
            yield
        finally:
            self._of_key[key] -= 1
            self._of_key += Counter()  # forgets who has none

    def keep(self, parked: _Parked) -> None:
        self._by_state[parked.state] = parked

    def find(self, caller: Caller, method: str, given: Mapping[str, Any]) -> _Parked:
        found = self._by_state.get(str(given["requestState"]))
        if found is None or not found.is_of(caller, method, given):
            raise DevFlowError(
                ErrorCode.INVALID_INPUT,
                "No call waits for this answer.",
                details={"requestState": "the state of a call that waits"},
                suggestion=f"Call again from the start. An answer is awaited for {ANSWER_SECONDS:g} s, by the server "
                "process that asked: where there are several, connect over SSE.",
            )
        return found

    def forget(self, parked: _Parked) -> None:
        self._by_state.pop(parked.state, None)

    @contextmanager
    def posted(self, channel: str, session: str) -> Iterator[tuple[str, "asyncio.Future[Answer]"]]:
        """The id of a question whose answer is posted to any process, and what holds that answer once it is here."""
        token, answered = secrets.token_urlsafe(16), asyncio.get_running_loop().create_future()
        self._posted[token] = session, answered
        try:
            yield _signer().sign_object([channel, token]), answered
        finally:
            del self._posted[token]

    def take(self, session: str, answer: Answer) -> bool:
        identifier = _behind(answer.id)
        owner, waiting = self._posted.get(identifier[1] if identifier else "", ("", None))
        if waiting is None or waiting.done() or owner != session:
            return False
        waiting.set_result(answer)
        return True

    async def close(self) -> None:
        parked = list(self._by_state.values())
        self._by_state.clear()
        await asyncio.gather(*(one.end() for one in parked))


_waiting = _Waiting()


@lru_cache(maxsize=1)
def _signer() -> signing.Signer:
    return signing.Signer(salt="devflow.mcp.question")


def _behind(identifier: object) -> tuple[str, str] | None:
    if not isinstance(identifier, str) or len(identifier) > MAX_IDENTIFIER:
        return None
    try:
        channel, token = _signer().unsign_object(identifier)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return str(channel), str(token)


def channel_of(answer: Answer) -> str | None:
    """Where the process is that asked what is answered here; None where no question of ours is."""
    found = _behind(answer.id)
    return found[0] if found else None


def take(session: str, answer: Answer) -> bool:
    """Hand an answer that was posted to the call that waits for it. False where none does, in this process."""
    return _waiting.take(session, answer)


async def close() -> None:
    """Give up the calls that wait for an answer: the server stops."""
    await _waiting.close()
