"""What an action may do, and what follows from that: intents, effects, time and retries. No rows, no protocol.

`gateway-protocol-schema`: the intent drives the policy; the catalog's effect drives what is allowed.
"""

from collections.abc import Mapping
from typing import Any

from mcpbridge.tooling import STRENGTH, Effect, Intent

DEFAULT_EFFECT: Mapping[Intent, Effect] = {
    Intent.QUERY: Effect.READ_ONLY,
    Intent.ANALYZE: Effect.READ_ONLY,
    Intent.GENERATE: Effect.READ_ONLY,
    Intent.MODIFY: Effect.MUTATING,
    Intent.EXECUTE: Effect.EXTERNAL_EXEC,
}

TIMEOUT_MS: Mapping[Intent, int] = {
    Intent.QUERY: 30_000,
    Intent.ANALYZE: 60_000,
    Intent.GENERATE: 120_000,
    Intent.MODIFY: 120_000,
    Intent.EXECUTE: 300_000,
}
"""Under isolation `agent`; a fresh process has `SUBPROCESS_TIMEOUT_MS` whatever the intent."""

SUBPROCESS_TIMEOUT_MS = 300_000
MAX_TIMEOUT_MS = 600_000
MAX_RETRIES = 5


def classify(annotations: Mapping[str, Any]) -> tuple[Intent, Effect]:
    """The intent and effect that a tool's annotations give it; what says nothing of itself may change things.

    A tool that contradicts itself (readOnlyHint beside destructiveHint) is believed in the worse.
    """
    is_destructive = annotations.get("destructiveHint") is True
    if annotations.get("readOnlyHint") is True and not is_destructive:
        return Intent.QUERY, Effect.READ_ONLY
    if annotations.get("openWorldHint") is True:
        return Intent.EXECUTE, Effect.EXTERNAL_EXEC
    return Intent.MODIFY, Effect.MUTATING


def is_weaker(effect: Effect, than: Effect) -> bool:
    return STRENGTH[effect] < STRENGTH[than]


def intent_is_weaker(intent: Intent, than: Intent) -> bool:
    """Whether an intent claims less than an action does: the intents that read are one strength."""
    return is_weaker(DEFAULT_EFFECT[intent], DEFAULT_EFFECT[than])


def intent_for(effect: Effect) -> Intent:
    """The intent to name for an action of this effect, where nothing else is known."""
    return {
        Effect.READ_ONLY: Intent.QUERY,
        Effect.MUTATING: Intent.MODIFY,
        Effect.EXTERNAL_EXEC: Intent.EXECUTE,
    }[effect]


def timeout_ms(intent: Intent, isolation: str, *, wished: int | None, of_backend: Mapping[str, Any]) -> int:
    """Milliseconds a call may take: what the request asks for, else the backend's for the intent, else the default."""
    if wished is not None:
        return wished
    own = of_backend.get(intent.value)
    if isinstance(own, int) and 1 <= own <= MAX_TIMEOUT_MS:
        return own
    return SUBPROCESS_TIMEOUT_MS if isolation == "subprocess" else TIMEOUT_MS[intent]
