"""Importing this publishes the protocol's own tools."""

from mcpbridge.tools import gateway, kept, orchestrate, search

__all__ = ["gateway", "kept", "orchestrate", "search"]
