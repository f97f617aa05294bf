"""What one session's backend asks, for the calls at work in it.

Until 2026-07-28 a question is a request of the backend, which names no call: the youngest call that is not being asked
already answers, and the deadlines of all rest meanwhile. Since then it is the result of the call, which is sent again
with the answers.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import mcp.types as types
from mcp.shared.exceptions import MCPError

from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode, invalid
from mcpbridge.asking import fitting
from mcpbridge.gateway.deadlines import Deadline
from mcpbridge.tooling import Asker, Question

PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
MAX_QUESTIONS = 16
"""At once, and of one call in all."""


@dataclass(eq=False)
class Asking:
    """The client of one call, and the deadline of that."""

    asker: Asker
    deadline: Deadline
    open: set["asyncio.Task[dict[str, dict[str, Any]]]"] = field(default_factory=set)
    asked: int = 0

    async def ask(self, questions: Mapping[str, Question], by: str) -> dict[str, dict[str, Any]]:
        """Raises `MCPError` for the client's own error, `DevFlowError` where it cannot be asked."""
        self.asked += len(questions)
        if self.asked > MAX_QUESTIONS:
            raise invalid(f"{by} asks more than {MAX_QUESTIONS} questions in one call.")
        with self.deadline.resting():
            return await self.asker.ask(questions, by=by)


class Questions:
    """Who may be asked in one session."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._at_work: list[Asking] = []

    @contextmanager
    def answered_by(self, asking: Asking) -> Iterator[None]:
        """While a call is at work, its client answers; what it is still asked afterwards is let go."""
        self._at_work.append(asking)
        try:
            yield
        finally:
            self._at_work.remove(asking)
            for question in asking.open:
                question.cancel()

    async def asked(self, method: str, params: dict[str, Any]) -> Any:
        """The answer to a request of the backend, or `ErrorData`."""
        question = {"method": method, "params": params}
        while self._at_work:
            idle = (one for one in reversed(self._at_work) if not one.open)
            asking = next(idle, self._at_work[-1])
            if (answer := await self._answer(asking, question)) is not None:
                return answer
        return types.ErrorData(code=types.INVALID_REQUEST, message="No call is at work whose client could be asked.")

    async def _answer(self, asking: Asking, question: Question) -> Any:
        """None where that call ended first: another may be the one that asks."""
        task = asyncio.create_task(asking.ask({"question": question}, self._backend))
        asking.open.add(task)
        try:
            with ExitStack() as stack:
                for other in self._at_work:
                    if other is not asking:
                        with suppress(DevFlowError):  # one that is just over
                            stack.enter_context(other.deadline.resting())
                await asyncio.wait({task})
            if task.cancelled():
                return None
            return fitting(question, task.result()["question"])
        except MCPError as exc:
            return exc.error
        except DevFlowError as exc:
            return types.ErrorData(code=ERROR_TABLE[exc.code].jsonrpc, message=exc.message)
        finally:
            task.cancel()
            asking.open.discard(task)

    async def answers_to(self, result: Mapping[str, Any], asking: Asking, round_: int) -> dict[str, Any]:
        """What is sent with the repeated call. Raises `backend_error` for what is no question, `invalid_input` where
        the client did not answer."""
        state = {} if result.get("requestState") is None else {"requestState": result["requestState"]}
        questions = result.get("inputRequests")
        if not questions:  # it only wants to be asked again
            await asyncio.sleep(min(PAUSE_SECONDS * 2**round_, LONGEST_PAUSE_SECONDS))
            return state
        if not isinstance(questions, dict) or not all(
            isinstance(one, dict) and "method" in one for one in questions.values()
        ):
            raise DevFlowError(ErrorCode.BACKEND_ERROR, f"{self._backend} asked something MCP does not allow.")
        try:
            return {"inputResponses": await asking.ask(questions, self._backend), **state}
        except MCPError as exc:
            raise DevFlowError(
                ErrorCode.INVALID_INPUT,
                f"The client did not answer what {self._backend} asked: {exc.error.message[:500]}",
            ) from None

    def none_in(self, method: str, result: dict[str, Any]) -> dict[str, Any]:
        """A result, unless it is a question that nobody answers. Raises `backend_error`."""
        if result.get("resultType", "complete") == "complete":
            return result
        raise DevFlowError(
            ErrorCode.BACKEND_ERROR,
            f"{self._backend} answered {method} with a question that nobody here can answer.",
            suggestion="Give the call all it needs at once, or call over MCP from a client that can be asked.",
        )
