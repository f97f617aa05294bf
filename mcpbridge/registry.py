"""Discovery and lookup of tools: which there are, under which names, and which of them a caller is shown."""

import difflib
import hashlib
from collections.abc import Iterable
from threading import RLock
from typing import Protocol

from django.utils.module_loading import autodiscover_modules

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.tooling import MAX_NAME, Caller, Exposed, Tool, declared

SEARCH_TOOLS = "search_tools"
CALL_TOOL = "call_tool"
INDIRECT = (SEARCH_TOOLS, CALL_TOOL)
GATEWAY_EXECUTE = "gateway_execute"


def spelled(name: str, names: str) -> str:
    """A tool's name as a client is shown it: dots break some clients, and none takes more than 64 characters."""
    shown = name.replace(".", "_") if names == "underscore" else name
    if len(shown) <= MAX_NAME:
        return shown
    return f"{shown[: MAX_NAME - 9]}_{hashlib.sha256(shown.encode()).hexdigest()[:8]}"


class Source(Protocol):
    """Tools that come and go while the server runs: those of backends, and composites."""

    def find(self, name: str) -> Tool | None:
        """What is known of it now; does not block."""

    def all(self) -> Iterable[Tool]: ...

    async def refresh(self) -> None:
        """Look again, unless that was done a moment ago."""


_sources: list[Source] = []


class Registry:
    """Tools by every name they answer to, from the apps' declarations; `sources` add their own.

    The modules that declare them are imported when the registry is first asked: most commands of `devflow` never do.
    """

    def __init__(self, tools: list[Tool]) -> None:
        self._tools = tools
        self.sources = _sources
        self._by_name: dict[str, Tool] = {}
        self._indexed = 0
        self._loading = RLock()
        self._is_loaded = self._is_loading = False

    def load(self) -> None:
        """Import what declares tools, prompts and resources, once (takes a second)."""
        with self._loading:
            if self._is_loaded or self._is_loading:  # what is imported may ask already
                return
            self._is_loading = True
            try:
                autodiscover_modules("tools")
                from mcpbridge.gateway.composed import composed
                from mcpbridge.gateway.federation import federation

                self.sources[:] = [federation, composed]
                self._is_loaded = True
            finally:
                self._is_loading = False

    def _index(self) -> dict[str, Tool]:
        if not self._is_loaded:
            self.load()
        if self._indexed != len(self._tools):
            for tool in self._tools[self._indexed :]:
                for name in {tool.name, spelled(tool.name, "dotted"), spelled(tool.name, "underscore")}:
                    if name in self._by_name:
                        raise TypeError(f"two tools answer to the name {name}")
                    self._by_name[name] = tool
            self._indexed = len(self._tools)
        return self._by_name

    def all(self) -> list[Tool]:
        self._index()
        return [*self._tools, *(tool for source in self.sources for tool in source.all())]

    def find(self, name: str) -> Tool | None:
        """What answers to this name."""
        if (tool := self._index().get(name)) is not None:
            return tool
        return next((tool for source in self.sources if (tool := source.find(name)) is not None), None)

    async def refresh(self) -> None:
        """Let the sources look for tools that came or went."""
        for source in self.sources:
            await source.refresh()

    def resolve(self, name: str, caller: Caller) -> Tool:
        """The tool behind a name, if the caller's key may know of it. Raises `not_found` with near misses."""
        tool = self.find(name)
        if tool is not None and self._may_know(tool, caller):
            return tool
        near: list[str] = []
        if len(name) <= 2 * MAX_NAME:  # comparing megabytes would hold up the loop
            near = difflib.get_close_matches(name, [t.name for t in self.shown(caller, everything=True)], n=3)
        hint = f"Did you mean {', '.join(near)}?" if near else "List the tools and use one of their names."
        raise DevFlowError(ErrorCode.NOT_FOUND, f"Unknown tool: {name[:MAX_NAME]}", suggestion=hint)

    @staticmethod
    def _may_know(tool: Tool, caller: Caller) -> bool:
        return caller.may_use(tool.toolset) or tool.name in INDIRECT

    def shown(self, caller: Caller, *, everything: bool = False) -> list[Tool]:
        """The tools listed to a caller, by name; `everything` looks behind `expose=search`."""
        exposed: Exposed = caller.exposed
        if exposed.expose == "search" and not everything:
            return [tool for tool in self.all() if tool.name in INDIRECT]
        if exposed.expose == "intent" and not everything:
            return [tool for tool in self.all() if tool.name == GATEWAY_EXECUTE and self._may_know(tool, caller)]
        return sorted(self._visible(exposed, caller), key=lambda tool: tool.name)

    def _visible(self, exposed: Exposed, caller: Caller) -> Iterable[Tool]:
        for tool in self.all():
            if tool.hidden or not self._may_know(tool, caller):
                continue
            if exposed.toolsets and tool.toolset not in exposed.toolsets:
                continue
            if caller.allows(tool.needs):
                yield tool


registry = Registry(declared)
