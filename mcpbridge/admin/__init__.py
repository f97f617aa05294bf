"""The protocol in the admin: keys and calls, backends and what stands behind the gateway."""

from mcpbridge.admin import gateway, keys

__all__ = ["gateway", "keys"]
