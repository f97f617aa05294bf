"""Measures of a ranking against the set of what is relevant, and how sure a difference is."""

import math
import random
from collections.abc import Collection, Hashable, Sequence


def ndcg(ranked: Sequence[Hashable], relevant: Collection[Hashable], k: int = 10) -> float:
    """Normalised discounted cumulative gain of the first `k`, with binary relevance: 1 is perfect."""
    gained = sum(1 / math.log2(place + 2) for place, one in enumerate(ranked[:k]) if one in relevant)
    best = sum(1 / math.log2(place + 2) for place in range(min(k, len(relevant))))
    return gained / best if best else 0.0


def recall(ranked: Sequence[Hashable], relevant: Collection[Hashable], k: int = 10) -> float:
    """The share of what is relevant among the first `k`."""
    return sum(1 for one in set(ranked[:k]) if one in relevant) / len(relevant) if relevant else 0.0


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def paired_bootstrap(ours: Sequence[float], theirs: Sequence[float], *, rounds: int = 10_000) -> tuple[float, float]:
    """The 95 % interval of the mean difference `ours - theirs` over the same questions, resampled with a fixed seed."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    draw = random.Random(7)  # noqa: S311  # a reproducible resampling, no secret
    means = sorted(mean(draw.choices(differences, k=len(differences))) for _ in range(rounds))
    return means[int(0.025 * rounds)], means[int(0.975 * rounds) - 1]
