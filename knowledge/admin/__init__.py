"""The knowledge room in the admin: sources are made and steered through services, what was read is looked at."""

from knowledge.admin import documents, passages, sources

__all__ = ["documents", "passages", "sources"]
