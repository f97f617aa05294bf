"""The tools, prompts and resources agents see: each reads the caller, calls a service and shapes the answer."""

from workflow.tools import agents, board, prompts, resources, tasks

__all__ = ["agents", "board", "prompts", "resources", "tasks"]
