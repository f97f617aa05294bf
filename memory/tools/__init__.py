"""The memory room's tools and resource; importing this package declares them."""

from memory.tools import memories, resources

__all__ = ["memories", "resources"]
