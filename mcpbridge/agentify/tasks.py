"""A task, the action it turns out to mean, and the failure to tell."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.agentify.extraction import Surroundings
from mcpbridge.gateway.protocol import GatewayRequest
from mcpbridge.gateway.specs import ActionSpec
from mcpbridge.tooling import Effect, Intent


class NoActionError(DevFlowError):
    """No action could be determined; `data` has the candidates, and what is missing."""

    def __init__(self, message: str, *, candidates: Sequence[str], missing: Sequence[str] = (), **more: Any) -> None:
        self.data = {"candidates": list(candidates), "missing": list(missing), **more}
        super().__init__(
            ErrorCode.INVALID_INPUT,
            message,
            details=self.data,
            suggestion="Name the action and its parameters (list_gateway_actions shows them), such as: "
            'backend.action {"name": "value"}.',
        )


@dataclass(frozen=True)
class Task:
    """What somebody wants. `allow_effects`: effects that run at once; None: what changes things is planned first."""

    query: str
    around: Surroundings = field(default_factory=Surroundings)
    allow_effects: frozenset[Effect] | None = None

    def admits(self, action: ActionSpec) -> bool:
        return self.allow_effects is None or action.effect is Effect.READ_ONLY or action.effect in self.allow_effects


@dataclass(frozen=True)
class Choice:
    """The action a task means. `request`: where the task was a whole gateway request itself."""

    action: ActionSpec
    params: dict[str, Any]
    mode: str
    candidates: list[str] = field(default_factory=list)
    model: str = ""
    attempts: int = 0
    intent: Intent | None = None
    request: GatewayRequest | None = None

    def as_meta(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "candidates": self.candidates,
            "model": self.model or None,
            "attempts": self.attempts,
        }
