"""DevFlow's whole application plus the yardstick's trivial tool, behind key, limit, audit and metrics."""

import devflow.asgi
from mcpbridge.tooling import Caller, Effect, Intent, Result, tool


class Sum(Result):
    sum: int


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="gateway", needs_project=False)
async def add(caller: Caller, *, a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(sum=a + b)


application = devflow.asgi.application
