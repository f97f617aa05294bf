"""Fixtures of the conformance suites that a tool, prompt or resource of ours can be: they go through our pipeline."""

import json
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from devflow.errors import DevFlowError, ErrorCode, not_found
from devflow.events import LiveEvent, bus
from mcpbridge import tooling
from mcpbridge.subscriptions import TOOLS_CHANGED
from mcpbridge.tooling import Caller, Effect, Intent, PromptArgument, Result, prompt, resource, tool


class Said(Result):
    text: str


def fixture(function: Any) -> Any:
    return tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="gateway", needs_project=False)(function)


@fixture
async def test_simple_text(caller: Caller) -> Said:
    """Answer simple text."""
    return Said(text="This is a simple text response for testing.")


@fixture
async def test_error_handling(caller: Caller) -> Said:
    """Fail."""
    raise DevFlowError(ErrorCode.CONFLICT, "This tool intentionally returns an error for testing")


@fixture
async def test_tool_with_progress(caller: Caller) -> Said:
    """Report progress three times."""
    for step in (0, 50, 100):
        caller.report(step, 100, f"Completed step {step} of 100")
    return Said(text="Progress was reported.")


@fixture
async def test_x_mcp_header(
    caller: Caller, *, region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "none"
) -> Said:
    """Take an argument that is mirrored into the header Mcp-Param-Region."""
    return Said(text=region)


@fixture
async def test_trigger_tool_change(caller: Caller) -> Said:
    """Tell every client that the tools changed."""
    bus.deliver(LiveEvent(TOOLS_CHANGED, project_id=0))
    return Said(text="The tools changed.")


@fixture
async def json_schema_2020_12_tool(caller: Caller, *, name: str = "") -> Said:
    """Publish keywords of JSON Schema 2020-12."""
    return Said(text=name)


tooling.declared[-1] = replace(
    tooling.declared[-1],
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)


@prompt(name="test_simple_prompt", arguments=())
def simple_prompt(caller: Caller) -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@prompt(
    name="test_prompt_with_arguments",
    arguments=(PromptArgument("arg1", "The first."), PromptArgument("arg2", "The second.")),
)
def prompt_with_arguments(caller: Caller, *, arg1: str, arg2: str) -> str:
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@resource(
    name="static",
    uri_template="test://{name}",
    mime_type="text/plain",
    listing=lambda caller: [("static-text", "Static text")],
)
def static(caller: Caller, value: str) -> str:
    """A text that never changes."""
    if value != "static-text":
        raise not_found("Resource", f"test://{value}")
    return "This is the content of the static text resource."


@resource(name="template", uri_template="test://template/{id}/data")
def template(caller: Caller, value: str) -> str:
    """A text about an id."""
    return json.dumps({"id": value, "templateTest": True, "data": f"Data for ID: {value}"})
