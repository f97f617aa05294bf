"""The two tools behind `expose=search`: a client that lists only these finds and calls every other one."""

import math
import re
from typing import Annotated, Any

from pydantic import Field

from mcpbridge.registry import CALL_TOOL, SEARCH_TOOLS, registry, spelled
from mcpbridge.tooling import Caller, Effect, Intent, JsonObject, Limit, OptionalText, Result, ShortText, Tool, tool


class FoundTool(Result):
    name: str = Field(description="The name to give to call_tool.")
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema of the arguments.")
    toolset: str
    effect: str


class FoundTools(Result):
    tools: list[FoundTool]
    total: int = Field(description="How many tools match, also beyond the limit.")


class AnyResult(Result):
    """Whatever the called tool answers."""

    model_config = {"extra": "allow"}


def _words(text: str) -> set[str]:
    """Lower-case words, plurals folded."""
    return {word.rstrip("s") for word in re.findall(r"[a-z0-9]+", text.lower())}


def _ranked(query: str, known: list[Tool]) -> list[Tool]:
    """Tools that share a word with the query, best first: rare words weigh more, long texts less."""
    names = {item.name: _words(item.name) for item in known}
    texts = {item.name: _words(item.description) for item in known}
    weights = {
        word: math.log(1 + len(known) / (1 + sum(word in names[item.name] | texts[item.name] for item in known)))
        for word in _words(query)
    }

    def score(item: Tool) -> float:
        in_name, in_text = names[item.name], texts[item.name]
        length = math.sqrt(len(in_text))
        return sum(weight * ((word in in_name) + 3 * (word in in_text) / length) for word, weight in weights.items())

    scored = [(score(item), item) for item in known]
    return [item for points, item in sorted(scored, key=lambda pair: (-pair[0], pair[1].name)) if points > 0]


@tool(
    intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="gateway", name=SEARCH_TOOLS, needs_project=False, hidden=True
)
async def search_tools(
    caller: Caller, *, query: Annotated[OptionalText, Field(max_length=1000)] = "", limit: Limit = 10
) -> FoundTools:
    """Find tools by what they do. Answers their names, descriptions and parameters; run one with call_tool.

    An empty query lists every tool.

    Args:
        query: What you want to do, in a few words, e.g. "claim the next task".
        limit: How many tools to answer at most.
    """
    await registry.refresh()
    known = registry.shown(caller, everything=True)
    matching = _ranked(query, known) if query.strip() else known
    return FoundTools(
        tools=[
            FoundTool(
                name=spelled(item.name, caller.exposed.names),
                description=item.description,
                parameters=dict(item.input_schema),
                toolset=item.toolset,
                effect=item.effect.value,
            )
            for item in matching[:limit]
        ],
        total=len(matching),
    )


@tool(
    intent=Intent.EXECUTE, effect=Effect.READ_ONLY, toolset="gateway", name=CALL_TOOL, needs_project=False, hidden=True
)
async def call_tool(caller: Caller, *, name: ShortText, arguments: JsonObject | None = None) -> AnyResult:
    """Call any tool found with search_tools. The answer is that tool's own answer.

    Args:
        name: The tool's name, from search_tools.
        arguments: Its arguments, as its parameters describe them.
    """
    # The dispatcher unwraps the call before it gets here, so that the inner tool is limited and recorded as itself.
    raise RuntimeError("call_tool reached its own body")
