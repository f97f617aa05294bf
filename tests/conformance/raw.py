"""Fixtures of the conformance suites that no tool of ours can be: images, audio, logs, questions back to the client.

They answer beside our own handlers, on the same server over the same transport.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import mcp.types as types
from django.core import signing
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from mcpbridge import server as product
from mcpbridge.server import Context

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
BINARY = "test://static-binary"

Params = types.CallToolRequestParams
Answer = types.CallToolResult | types.InputRequiredResult
RawTool = Callable[[Context, Params], Awaitable[Answer]]

signer = signing.Signer(salt="conformance")


def text(said: str) -> types.TextContent:
    return types.TextContent(text=said)


def image() -> types.ImageContent:
    return types.ImageContent(data=PNG, mime_type="image/png")


def embedded(uri: str, mime_type: str, content: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(
        resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=content),
    )


def answering(*content: types.ContentBlock) -> RawTool:
    async def answer(ctx: Context, params: Params) -> Answer:
        return types.CallToolResult(content=list(content))

    return answer


def object_of(name: str, kind: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}


def ask(message: str, name: str = "name", kind: str = "string") -> types.ElicitRequest:
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=object_of(name, kind))
    )


def sample(prompt: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=text(prompt))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=100))


def state_of(params: Params) -> str:
    """The state that came back with the answers; one that is not ours is refused."""
    try:
        state: str = signer.unsign(params.request_state or signer.sign(""))
    except signing.BadSignature:
        raise MCPError(types.INVALID_PARAMS, "requestState was changed on its way.") from None
    return state


def needing(requests: dict[str, types.InputRequest], *, state: str = "") -> RawTool:
    """A tool that asks for everything in `requests` and is content once all of it came."""

    async def answer(ctx: Context, params: Params) -> Answer:
        known = state_of(params)
        if requests.keys() <= (params.input_responses or {}).keys() and known == state:
            return types.CallToolResult(content=[text("state-ok: everything was answered")])
        return types.InputRequiredResult(input_requests=requests, request_state=signer.sign(state) if state else None)

    return answer


async def in_two_steps(ctx: Context, params: Params) -> Answer:
    given, state = params.input_responses or {}, state_of(params)
    if state == "1" and "step1" in given:
        return types.InputRequiredResult(
            input_requests={"step2": ask("Step 2: What is your favourite colour?", "color")},
            request_state=signer.sign("2"),
        )
    if state == "2" and "step2" in given:
        return types.CallToolResult(content=[text("Both steps were answered.")])
    return types.InputRequiredResult(
        input_requests={"step1": ask("Step 1: What is your name?")}, request_state=signer.sign("1")
    )


async def as_capable(ctx: Context, params: Params) -> Answer:
    """Ask only for what the client says it can do."""
    can = ctx.session.client_capabilities or types.ClientCapabilities()
    requests: dict[str, types.InputRequest] = {}
    if can.sampling is not None:
        requests["sample"] = sample("Say hello")
    if can.elicitation is not None:
        requests["ask"] = ask("What is your name?")
    return types.InputRequiredResult(input_requests=requests, request_state=signer.sign("capable"))


async def with_sampling_only(ctx: Context, params: Params) -> Answer:
    can = ctx.session.client_capabilities
    if can is None or can.sampling is None:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "This tool needs the client's capability `sampling`.",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return types.CallToolResult(content=[text("The client can sample.")])


async def logging(ctx: Context, params: Params) -> Answer:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)
    return types.CallToolResult(content=[text("Three messages were logged.")])


NAME: dict[str, types.InputRequest] = {"user_name": ask("What is your name?")}
CONFIRM: dict[str, types.InputRequest] = {"confirm": ask("Please confirm", "ok", "boolean")}

TOOLS: dict[str, RawTool] = {
    "test_image_content": answering(image()),
    "test_audio_content": answering(types.AudioContent(data=WAV, mime_type="audio/wav")),
    "test_embedded_resource": answering(embedded("test://embedded-resource", "text/plain", "An embedded resource.")),
    "test_multiple_content_types": answering(
        text("Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource", "application/json", '{"test": "data", "value": 123}'),
    ),
    "test_tool_with_logging": logging,
    "test_logging_tool": logging,
    "test_missing_capability": with_sampling_only,
    "test_streaming_elicitation": needing(NAME),
    "test_input_required_result_elicitation": needing(NAME),
    "test_input_required_result_sampling": needing({"capital_question": sample("What is the capital of France?")}),
    "test_input_required_result_list_roots": needing({"client_roots": types.ListRootsRequest()}),
    "test_input_required_result_request_state": needing(CONFIRM, state="asked"),
    "test_input_required_result_tampered_state": needing(CONFIRM, state="asked"),
    "test_input_required_result_multiple_inputs": needing(
        {**NAME, "greeting": sample("Generate a greeting"), "client_roots": types.ListRootsRequest()}, state="asked"
    ),
    "test_input_required_result_multi_round": in_two_steps,
    "test_input_required_result_capabilities": as_capable,
}


async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    ours = await product.list_tools(ctx, params)
    more = [types.Tool(name=name, description=name, input_schema={"type": "object"}) for name in TOOLS]
    return ours.model_copy(update={"tools": [*ours.tools, *more]})


async def call_tool(ctx: Context, params: Params) -> Any:
    found = TOOLS.get(params.name)
    return await (found or product.call_tool)(ctx, params)


def said_by_user(*content: types.ContentBlock) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=item) for item in content])


PROMPTS = {
    "test_prompt_with_embedded_resource": [types.PromptArgument(name="resourceUri", required=True)],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


async def list_prompts(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    ours = await product.list_prompts(ctx, params)
    more = [types.Prompt(name=name, description=name, arguments=arguments) for name, arguments in PROMPTS.items()]
    return ours.model_copy(update={"prompts": [*ours.prompts, *more]})


async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Any:
    match params.name:
        case "test_prompt_with_embedded_resource":
            uri = (params.arguments or {})["resourceUri"]
            return said_by_user(embedded(uri, "text/plain", "An embedded resource."), text("Please read it."))
        case "test_prompt_with_image":
            return said_by_user(image(), text("Please look at it."))
        case "test_input_required_result_prompt":
            if "user_context" in (params.input_responses or {}):
                return said_by_user(text("The context came."))
            question = ask("What context should the prompt use?", "context")
            return types.InputRequiredResult(input_requests={"user_context": question})
        case _:
            return await product.get_prompt(ctx, params)


async def list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    ours = await product.list_resources(ctx, params)
    return ours.model_copy(update={"resources": [*ours.resources, types.Resource(uri=BINARY, name="Static binary")]})


async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    if str(params.uri) != BINARY:
        return await product.read_resource(ctx, params)
    return types.ReadResourceResult(
        contents=[types.BlobResourceContents(uri=BINARY, mime_type="image/png", blob=PNG)],
    )


def with_fixtures(build: Callable[..., Server[Any]]) -> Callable[..., Server[Any]]:
    """`build`, whose servers offer these fixtures too."""

    def building(*, stateful: bool) -> Server[Any]:
        server = build(stateful=stateful)
        listing = types.PaginatedRequestParams
        server.add_request_handler("tools/list", listing, list_tools)
        server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
        server.add_request_handler("prompts/list", listing, list_prompts)
        server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
        server.add_request_handler("resources/list", listing, list_resources)
        server.add_request_handler("resources/read", types.ReadResourceRequestParams, read_resource)
        return server

    return building
