"""Pages of the REST paths, under the names the settings use."""

from devflow.rest import BoundedLimitOffset, EventCursor

__all__ = ["BoundedLimitOffset", "EventCursor"]
