"""Fuse the legs of a search by score: min-max inside each leg, then a weighted mean.

Ranks alone (RRF) throw away how much better a hit is: measured worse than dense alone on natural questions.
"""

import uuid
from collections.abc import Container, Mapping
from dataclasses import dataclass

from devflow.vectors.base import Hits

LEAST_SPAN = 0.2
"""Of the best score: among a few hits that are nearly alike, the last is not worthless."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One leg's part in a hit: its own score, and that score between 0 (last candidate) and 1 (best)."""

    score: float
    share: float


@dataclass(frozen=True, slots=True)
class Fused:
    point: uuid.UUID
    score: float
    legs: Mapping[str, Leg]


def fuse(hits: Hits, weights: Mapping[str, float], *, unindexed: Container[uuid.UUID] = ()) -> list[Fused]:
    """Merge legs, best first; scores lie in 0..1. A leg without hits takes no part (its weight goes to the others).

    Points that are `unindexed` cannot be in most legs: what the others say of them counts whole.
    """
    parts: dict[uuid.UUID, dict[str, Leg]] = {}
    total = 0.0
    for name, found in hits.items():
        if not found or not weights.get(name):
            continue
        total += weights[name]
        low, high = min(score for _, score in found), max(score for _, score in found)
        span = max(high - low, LEAST_SPAN * abs(high)) or 1.0
        for point, score in found:
            share = 1 - (high - score) / span
            parts.setdefault(point, {})[name] = Leg(score, share)
    fused = [
        Fused(
            point,
            sum(weights[name] * leg.share for name, leg in legs.items())
            / (sum(weights[name] for name in legs) if point in unindexed else total),
            legs,
        )
        for point, legs in parts.items()
    ]
    return sorted(fused, key=lambda hit: (-hit.score, hit.point.int))
