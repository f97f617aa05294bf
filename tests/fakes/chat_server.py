"""A model that calls functions, behind Chat Completions on loopback, with every fault on demand.

    with ChatServer() as server:
        server.plays(calls("small__echo", text="hi"))   # what it answers to the next question, one each
        server.plays(refuses(), status(429), hang())

`server.requests` is everything it was asked. A question that nothing was scripted for is answered with `no_tool`.
"""

import json
from typing import Any

from tests.fakes.openai_server import Json, OpenAiServer, Reply, hang, raw, refuses, status

__all__ = ["ChatServer", "calls", "hang", "raw", "refuses", "says", "status", "two_calls", "writes"]


def _message(*functions: tuple[str, str], content: str | None = None) -> Reply:
    def change(answer: Json) -> None:
        answer["choices"][0]["finish_reason"] = "tool_calls" if functions else "stop"
        message: Json = {"role": "assistant", "content": content}
        if functions:
            message["tool_calls"] = [
                {"id": f"call-{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for number, (name, arguments) in enumerate(functions)
            ]
        answer["choices"][0]["message"] = message

    return Reply(change=change)


def calls(function: str, /, **arguments: Any) -> Reply:
    """One call of a function."""
    return _message((function, json.dumps(arguments)))


def writes(function: str, arguments: str) -> Reply:
    """One call whose arguments are written exactly so, JSON or not."""
    return _message((function, arguments))


def two_calls(function: str, /, **arguments: Any) -> Reply:
    """The same call twice in one answer."""
    return _message((function, json.dumps(arguments)), (function, json.dumps(arguments)))


def says(content: str) -> Reply:
    """Words, and no call."""
    return _message(content=content)


class ChatServer(OpenAiServer):
    """Listens from `__enter__` to `__exit__`."""

    def plays(self, *replies: Reply) -> None:
        """What it answers next, in this order."""
        self.script(*replies)

    def _good(self, request: Any) -> Json:
        answer = super()._good(request)
        if request.path.endswith("/chat/completions"):
            reply = calls("no_tool", reason="Nothing was scripted.")
            if reply.change is not None:
                reply.change(answer)
        return answer
