"""Answers that were too large to give at once, as resources of the key that got them."""

from mcpbridge.gateway import large
from mcpbridge.tooling import Caller, resource


@resource(name="answer", uri_template=large.PREFIX + "{id}", mime_type="text/plain", toolset="gateway")
def answer(caller: Caller, value: str) -> str:
    """The whole of an answer past 1 MiB, kept for a day for the key that got it."""
    return large.kept(caller, value).text
