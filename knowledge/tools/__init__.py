"""The knowledge room's tools and resources; importing this package declares them."""

from knowledge.tools import resources, search, sources

__all__ = ["resources", "search", "sources"]
