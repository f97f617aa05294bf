"""Rows of the protocol: keys, the log of calls, what the gateway keeps."""

from mcpbridge.models.access import KEY_PREFIX, ApiKey, key_checksum, key_digest, well_formed
from mcpbridge.models.calls import AuditCheckpoint, StoredAnswer, ToolCall
from mcpbridge.models.gateway import (
    Action,
    Backend,
    ChildProcess,
    CompositeTool,
    EffectChoice,
    IntentChoice,
    Isolation,
    KeptAnswer,
    Plan,
    Transport,
)

__all__ = [
    "KEY_PREFIX",
    "Action",
    "ApiKey",
    "AuditCheckpoint",
    "Backend",
    "ChildProcess",
    "CompositeTool",
    "EffectChoice",
    "IntentChoice",
    "Isolation",
    "KeptAnswer",
    "Plan",
    "StoredAnswer",
    "ToolCall",
    "Transport",
    "key_checksum",
    "key_digest",
    "well_formed",
]
