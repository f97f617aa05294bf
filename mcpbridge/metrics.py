"""Counts and times of calls, kept once (prometheus-client) and shown twice: as JSON and as Prometheus text.

With several workers the values live in files they share (`PROMETHEUS_MULTIPROC_DIR`), so both shapes are the sum.
"""

import logging
import os
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.db import DatabaseError
from django.utils import timezone
from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from devflow import config, ports
from mcpbridge.models import ToolCall

logger = logging.getLogger(__name__)

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_own = CollectorRegistry()
CALLS = Counter("devflow_tool_calls", "Calls by tool and outcome.", ["tool", "outcome"], registry=_own)
SECONDS = Histogram("devflow_tool_seconds", "Seconds a call took.", ["tool"], buckets=BUCKETS, registry=_own)


@lru_cache(maxsize=4096)
def _counter(tool: str, outcome: str) -> Any:
    return CALLS.labels(tool, outcome)


@lru_cache(maxsize=1024)
def _histogram(tool: str) -> Any:
    return SECONDS.labels(tool)


def observe(tool: str, outcome: str, seconds: float) -> None:
    """Count one call. `tool` must be a known tool's name (labels are kept for ever)."""
    if config.current().mcp_gateway.telemetry.enabled:
        _counter(tool, outcome).inc()
        _histogram(tool).observe(seconds)


def _collector() -> CollectorRegistry:
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return _own
    summed = CollectorRegistry()
    MultiProcessCollector(summed)  # type: ignore[no-untyped-call]  # untyped in prometheus-client
    return summed


class _Gauges(Collector):
    """What the rooms measure of themselves, read when it is asked for."""

    def collect(self) -> Iterable[Metric]:
        for name, (help_text, reading) in ports.gauges.readings.items():
            family = GaugeMetricFamily(f"devflow_{name}", help_text, labels=["kind"])
            try:
                values = reading()
            except DatabaseError as exc:  # the counts of calls are worth having without it
                logger.warning("%s could not be measured: %s", name, exc)
                continue
            for kind, value in values.items():
                family.add_metric([kind], value)
            yield family


def as_text() -> bytes:
    """Prometheus exposition format, all workers together (blocks on what the rooms measure of themselves)."""
    own = CollectorRegistry()
    own.register(_Gauges())
    return generate_latest(_collector()) + generate_latest(own)


def _quantile(buckets: list[tuple[float, float]], share: float) -> float | None:
    """Seconds below which `share` of the calls stayed, interpolated inside the bucket it falls into."""
    total = buckets[-1][1] if buckets else 0
    if not total:
        return None
    rank, low, below = share * total, 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return low


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _summary(buckets: list[tuple[float, float]]) -> dict[str, float | None]:
    return {
        "p50_ms": _milliseconds(_quantile(buckets, 0.50)),
        "p95_ms": _milliseconds(_quantile(buckets, 0.95)),
        "p99_ms": _milliseconds(_quantile(buckets, 0.99)),
    }


def _merged(histograms: Iterable[dict[float, float]]) -> list[tuple[float, float]]:
    together: dict[float, float] = defaultdict(float)
    for histogram in histograms:
        for bound, count in histogram.items():
            together[bound] += count
    return sorted(together.items())


def as_json() -> dict[str, Any]:
    """The metrics of the PRD plus percentiles per tool (milliseconds). Blocks on one indexed count."""
    calls: dict[str, float] = defaultdict(float)
    errors: dict[str, float] = defaultdict(float)
    seconds: dict[str, float] = defaultdict(float)
    buckets: dict[str, dict[float, float]] = defaultdict(dict)
    for family in _collector().collect():
        for sample in family.samples:
            tool = sample.labels.get("tool", "")
            if sample.name == "devflow_tool_calls_total":
                calls[tool] += sample.value
                if sample.labels["outcome"] != "ok":
                    errors[tool] += sample.value
            elif sample.name == "devflow_tool_seconds_sum":
                seconds[tool] += sample.value
            elif sample.name == "devflow_tool_seconds_bucket":
                buckets[tool][float(sample.labels["le"])] = sample.value
    total, failed, spent = sum(calls.values()), sum(errors.values()), sum(seconds.values())
    since = timezone.now() - timedelta(seconds=60)
    return {
        "requests_total": int(total),
        "requests_per_minute": ToolCall.objects.filter(at__gte=since).count(),
        "errors_total": int(failed),
        "error_rate": round(failed / total, 6) if total else 0.0,
        "avg_response_time_ms": round(spent / total * 1000, 3) if total else 0.0,
        **_summary(_merged(buckets.values())),
        "gauges": {name: reading() for name, (_, reading) in ports.gauges.readings.items()},
        "tools": {
            tool: {
                "calls": int(count),
                "errors": int(errors[tool]),
                "avg_time_ms": round(seconds[tool] / count * 1000, 3) if count else 0.0,
                **_summary(sorted(buckets[tool].items())),
            }
            for tool, count in sorted(calls.items())
        },
    }
