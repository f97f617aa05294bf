"""Importing this publishes the protocol's own tools."""

from mcpbridge.tools import gateway, search

__all__ = ["gateway", "search"]
