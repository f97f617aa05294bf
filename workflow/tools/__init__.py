"""The tools, prompts and resources agents see: each reads the caller, calls a service and shapes the answer."""

from devflow import config
from workflow.tools import agents, board, prompts, resources, tasks

if config.current().taiga.enabled:
    from workflow.tools import taiga  # noqa: F401  # it declares its tools

__all__ = ["agents", "board", "prompts", "resources", "tasks"]
