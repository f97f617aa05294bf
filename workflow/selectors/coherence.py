"""How coherent an agent works, from what the server itself saw of it: 0..1, never invented.

liveness 0.25 (1 at the lease's renewal, 0 at its expiry), progress 0.25 (1 right after a sign of progress, 0 a lease
later), non_repetition 0.20 (distinct tool+arguments among the last 20 calls), success 0.15 (calls without error),
scope 0.15 (writes on its own task or phase). Below 5 observations there is no score.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from devflow import config
from workflow.models import Agent, Task

WEIGHTS: Mapping[str, float] = {
    "liveness": 0.25,
    "progress": 0.25,
    "non_repetition": 0.20,
    "success": 0.15,
    "scope": 0.15,
}
MINIMUM_OBSERVATIONS = 5
METHOD = (
    "Weighted mean of what the server saw: "
    + ", ".join(f"{name} {weight:.2f}" for name, weight in WEIGHTS.items())
    + f"; none below {MINIMUM_OBSERVATIONS} observed calls."
)


@dataclass(frozen=True, slots=True)
class Coherence:
    """`score` in 0..1 or None; `signals` each in 0..1 (empty without a score); how many calls were observed."""

    score: float | None
    signals: Mapping[str, float]
    observations: int


def _left(of: timedelta, passed: timedelta) -> float:
    return min(1.0, max(0.0, 1 - passed / of))


def measure(agent: Agent, *, task: Task | None, at: datetime) -> Coherence:
    """Score `agent`, whose live task is `task`. Without a task, the server's default lease is the yardstick."""
    seen = agent.observations
    if len(seen) < MINIMUM_OBSERVATIONS:
        return Coherence(None, {}, len(seen))
    lease = timedelta(minutes=(task.lease_minutes if task else 0) or config.current().workflow.lease_minutes)
    renewed = task.lease_expires_at - lease if task and task.lease_expires_at else agent.last_seen
    signals = {
        "liveness": _left(lease, at - max(renewed, agent.last_seen)),
        "progress": _left(lease, at - agent.last_progress_at),
        "non_repetition": len({row[0] for row in seen}) / len(seen),
        "success": sum(row[1] for row in seen) / len(seen),
        "scope": sum(row[2] for row in seen) / len(seen),
    }
    score = sum(WEIGHTS[name] * value for name, value in signals.items())
    return Coherence(round(score, 3), {name: round(value, 3) for name, value in signals.items()}, len(seen))
