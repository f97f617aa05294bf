"""Coherence in words: what each of its signals is, and what the server saw that made it so."""

from collections.abc import Sequence
from dataclasses import dataclass

from devflow.templatetags.look import ago
from workflow.models import OBSERVATIONS
from workflow.selectors.agents import AgentState
from workflow.selectors.coherence import WEIGHTS

LOW, MIDDLING = 0.5, 0.75


@dataclass(frozen=True, slots=True)
class Signal:
    """`value` in 0..1, `weight` its percentage of the score, `means` what it measures, `seen` what was observed."""

    title: str
    value: float
    weight: int
    means: str
    seen: str

    @property
    def hue(self) -> str:
        return "bad" if self.value < LOW else "warn" if self.value < MIDDLING else "good"


TITLES = {
    "liveness": ("Alive", "how recently it called"),
    "progress": ("Progress", "a claim, a status, a note, evidence, a memory or a new task"),
    "non_repetition": ("Variety", f"different calls among the last {OBSERVATIONS}"),
    "success": ("Success", "calls without an error"),
    "scope": ("In scope", "writes on its own task and phase"),
}


def signals(state: AgentState) -> Sequence[Signal]:
    """Every signal of an agent's coherence, the most worrying first; none where there is no score."""
    seen = state.agent.observations
    said = {
        "liveness": f"last call {ago(state.agent.last_seen)}",
        "progress": f"last sign {ago(state.agent.last_progress_at)}",
        "non_repetition": _of(len(seen) - len({row[0] for row in seen}), seen, "repeated another", "no call repeated"),
        "success": _of(len([1 for row in seen if not row[1]]), seen, "failed", "no call failed"),
        "scope": _of(len([1 for row in seen if not row[2]]), seen, "went elsewhere", "nothing elsewhere"),
    }
    found = [
        Signal(TITLES[name][0], value, round(100 * WEIGHTS[name]), TITLES[name][1], said[name])
        for name, value in state.coherence.signals.items()
    ]
    return sorted(found, key=lambda one: one.value)


def _of(number: int, seen: Sequence[object], does: str, none: str) -> str:
    return f"{number} of {len(seen)} calls {does}" if number else none


def worry(state: AgentState) -> str:
    """What pulls an agent's coherence down most, in words; empty where nothing does."""
    found = signals(state)
    return f"{found[0].title.lower()}: {found[0].seen}" if found and found[0].value < MIDDLING else ""
