"""What a tool publishes is what it does: its input schema refuses what it refuses, and nothing else."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devflow.errors import DevFlowError
from mcpbridge.payload import bounded
from mcpbridge.registry import registry
from mcpbridge.tooling import Tool
from tests.contract.generate import JSON_VALUES, from_schema

TOOLS = [tool for tool in registry.all() if not tool.name.startswith("test_")]
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)


def accepts(tool: Tool, arguments: dict[str, Any]) -> bool:
    try:
        tool.validate(bounded(arguments))
    except DevFlowError:
        return False
    return True


@each_tool
def test_the_published_schemas_are_valid_and_closed(tool: Tool) -> None:
    for schema in (tool.input_schema, tool.output_schema):
        jsonschema_rs.meta.validate(dict(schema))
        assert schema["type"] == "object"
    assert tool.input_schema["additionalProperties"] is False


@each_tool
def test_every_argument_is_described(tool: Tool) -> None:
    for name, schema in tool.input_schema.get("properties", {}).items():
        assert schema.get("description"), f"{tool.name}.{name} has no description for the agent that must fill it in"


@each_tool
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_the_input_schema_allows_the_tool_accepts(tool: Tool, data: st.DataObject) -> None:
    arguments = data.draw(from_schema(dict(tool.input_schema)))
    try:
        clean = bounded(arguments)
    except DevFlowError:
        return  # beyond the bounds of every call, which are documented beside the schemas
    tool.validate(clean)


@each_tool
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_input_schema_refuses_exactly_what_the_tool_refuses(tool: Tool, data: st.DataObject) -> None:
    schema = dict(tool.input_schema)
    names = [*schema.get("properties", {}), "unknown"]
    arguments = data.draw(from_schema(schema))
    for name in data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True)):
        if data.draw(st.booleans()):
            arguments[name] = data.draw(JSON_VALUES)
        else:
            arguments.pop(name, None)
    try:
        clean = bounded(arguments)
    except DevFlowError:
        return
    assert accepts(tool, arguments) == jsonschema_rs.is_valid(schema, clean)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"phase_id": "1", "description": "x"}, "phase_id"),
        ({"phase_id": True, "description": "x"}, "phase_id"),
        ({"phase_id": 1.5, "description": "x"}, "phase_id"),
        ({"phase_id": 1, "description": ""}, "description"),
        ({"phase_id": 1, "description": "x", "priority": "urgent"}, "priority"),
        ({"phase_id": 1, "description": "x", "blocked_by": "task-1"}, "blocked_by"),
        ({"phase_id": 1, "description": "x", "colour": "red"}, "colour"),
        ({"description": "x"}, "phase_id"),
    ],
)
def test_a_refusal_names_the_field(wrong: dict[str, Any], field: str) -> None:
    tool = registry.find("create_task")
    assert tool is not None
    with pytest.raises(DevFlowError) as caught:
        tool.validate(bounded(wrong))
    assert field in caught.value.details


def test_text_of_100000_characters_is_accepted_and_one_more_refused() -> None:
    tool = registry.find("create_task")
    assert tool is not None
    assert accepts(tool, {"phase_id": 1, "description": "x" * 100_000})
    assert not accepts(tool, {"phase_id": 1, "description": "x" * 100_001})
