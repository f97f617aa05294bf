"""A backend whose tools ask its client: with `input_required` on 2026-07-28, with requests of its own before that.

`handshake` as its argument makes it one that knows nothing of 2026-07-28.
"""

import asyncio
import sys
from typing import Any

import mcp.types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel

Context = ServerRequestContext[Any, Any]
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTIONS: dict[str, dict[str, Any]] = {
    "who": {"method": "elicitation/create", "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM}},
    "where": {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Where?", "url": "https://example.org/", "elicitationId": "1"},
    },
    "think": {
        "method": "sampling/createMessage",
        "params": {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Think."}}],
            "maxTokens": 10,
            "includeContext": "allServers",
        },
    },
    "roots": {"method": "roots/list", "params": {}},
    "long": {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Who? " * 60_000, "requestedSchema": FORM},
    },
}
TOOLS = {
    "who": ["who"],
    "where": ["where"],
    "think": ["think"],
    "roots": ["roots"],
    "both": ["who", "think"],
    "slow": ["who"],
    "long": ["long"],
    "again": [],
    "wait": [],
    "many": [],
    "endless": ["who"] * 50,
}


class _Request(types.Request[dict[str, Any], str]):
    pass


class _Answer(RootModel[dict[str, Any]]):
    pass


def text(value: str) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": value}]}


def said(answer: dict[str, Any]) -> str:
    if "content" in answer and "role" in answer:
        return str(answer["content"]["text"])
    return f"{answer['action']} {(answer.get('content') or {}).get('name', '')}".strip()


async def listed(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """`think` only for clients with a model, as some servers do."""
    can = ctx.session.client_capabilities
    names = [name for name in TOOLS if name != "think" or (can is not None and can.sampling is not None)]
    read_only = types.ToolAnnotations(read_only_hint=True)
    return types.ListToolsResult(
        tools=[types.Tool(name=name, input_schema={"type": "object"}, annotations=read_only) for name in names]
    )


async def called(ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    questions = TOOLS[params.name]
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return await asked_by_result(ctx, params, questions)
    answers: list[str] = []
    if params.name == "many":
        answers = await asyncio.gather(*(asked_by_request(ctx, "who") for _ in range(40)))
    for name in questions:
        answers.append(await asked_by_request(ctx, name))
        await ctx.session.report_progress(len(answers), len(questions), answers[-1])
    if params.name in ("slow", "wait"):
        await asyncio.sleep(3.0 if params.name == "slow" else 1.5)
    return text(", ".join(answers))


async def asked_by_request(ctx: Context, name: str) -> str:
    question = QUESTIONS[name]
    request: Any = _Request(method=question["method"], params=question["params"])
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    try:
        return said((await ctx.session.send_request(request, _Answer, metadata=related)).root)
    except MCPError as exc:
        return f"refused: {exc.error.message}"


async def asked_by_result(ctx: Context, params: types.CallToolRequestParams, questions: list[str]) -> dict[str, Any]:
    given = dict(ctx.params or {})
    state = given.get("requestState")
    if params.name in ("wait", "many"):
        return text("nothing asked")
    if params.name == "again":  # only wants to be asked again
        return text("at last") if state == "once" else {"resultType": "input_required", "requestState": "once"}
    if state is None or params.name == "endless":
        asked = dict.fromkeys(questions)
        return {
            "resultType": "input_required",
            "inputRequests": {name: QUESTIONS[name] for name in asked},
            "requestState": "waits",
        }
    if params.name == "slow":
        await asyncio.sleep(3.0)
    return text(", ".join(said(given["inputResponses"][name]) for name in questions))


async def main() -> None:
    server: Server[Any] = Server("asking", on_list_tools=listed)
    server.add_request_handler("tools/call", types.CallToolRequestParams, called)
    async with stdio_server() as (read, write):
        options = server.create_initialization_options()
        if "handshake" in sys.argv:
            await serve_loop(server, read, write, lifespan_state={}, init_options=options)
        else:
            await server.run(read, write, options)


if __name__ == "__main__":
    asyncio.run(main())
