"""docs/tools.md, made from the tools: `python -m mcpbridge.reference > docs/tools.md` (or `make docs`)."""

import os
import typing
from collections.abc import Iterator, Mapping
from typing import Any

HEAD = """\
# Tools

Made from the code by `make docs`. An argument without a default is required; unknown arguments are refused. Every
tool is reachable over MCP and over `POST /mcp/execute`. READ_ONLY needs the scope `read`, MUTATING `write`,
EXTERNAL_EXEC `execute`.
"""


def _type(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _type(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(option, root) for option in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}), root)}"
    kind = str(schema.get("type", "anything"))
    return {"string": "text", "integer": "whole number", "null": "nothing"}.get(kind, kind)


def _bounds(schema: Mapping[str, Any]) -> str:
    words = {
        "minimum": "from {}",
        "maximum": "to {}",
        "minLength": "at least {} characters",
        "maxLength": "at most {} characters",
        "maxItems": "at most {}",
    }
    said = [text.format(f"{schema[name]:,}") for name, text in words.items() if name in schema]
    return f" ({', '.join(said)})" if said else ""


def _default(schema: Mapping[str, Any], *, required: bool) -> str:
    if required:
        return ""
    default = schema.get("default")
    return "none" if default is None else f"`{default}`"


def lines() -> Iterator[str]:
    """The page, line by line. Needs Django set up."""
    from mcpbridge.registry import registry
    from mcpbridge.tooling import Toolset, prompts, resources

    yield HEAD
    known = sorted(registry.all(), key=lambda tool: tool.name)
    for toolset in typing.get_args(Toolset):
        yield f"## {toolset}\n"
        for tool in [tool for tool in known if tool.toolset == toolset]:
            yield f"### {tool.name}\n"
            yield f"{tool.intent}, {tool.effect}\n"
            yield f"{tool.description}\n"
            properties = tool.input_schema.get("properties", {})
            if properties:
                yield "| argument | type | default | what |"
                yield "|---|---|---|---|"
            for name, schema in properties.items():
                required = name in tool.input_schema.get("required", ())
                kind = f"{_type(schema, tool.input_schema)}{_bounds(schema)}"
                text = schema.get("description", "").replace("|", "\\|")
                yield f"| `{name}` | {kind} | {_default(schema, required=required)} | {text} |"
            if properties:
                yield ""
    yield "## Prompts\n"
    for _, prompt in sorted(prompts.items()):
        given = ", ".join(f"`{argument.name}`" for argument in prompt.arguments)
        yield f"- **{prompt.name}**({given}): {' '.join(prompt.description.split())}"
    yield "\n## Resources\n"
    for _, resource in sorted(resources.items()):
        yield f"- `{resource.uri_template}`: {' '.join(resource.description.split())}"


def page() -> str:
    return "\n".join(lines()).rstrip() + "\n"


if __name__ == "__main__":
    import sys

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings")
    django.setup()
    sys.stdout.write(page())
