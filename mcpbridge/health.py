"""Is every part up: the probes of all rooms, asked together and remembered for a moment."""

import threading
import time
from typing import Any

from django.core.cache import cache
from django.db import DatabaseError, connection

from devflow import config, ports
from devflow.ports import HealthReport
from mcpbridge import remote

REMEMBER_SECONDS = 1.0


def _database() -> HealthReport:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as exc:
        return HealthReport("down", str(exc))
    return HealthReport("up")


def _redis() -> HealthReport:
    from redis import RedisError

    try:
        cache.get("devflow-health")
    except (RedisError, OSError) as exc:
        return HealthReport("down", str(exc))
    return HealthReport("up")


_lock = threading.Lock()
_last: tuple[float, dict[str, HealthReport]] = (0.0, {})


def parts() -> dict[str, HealthReport]:
    """Every part's report by name (blocks). Asked at most once a second, whoever asks."""
    global _last
    with _lock:
        until, known = _last
        if until > time.monotonic():
            return known
        reports = {"database": _database()}
        if config.current().redis_url:
            reports["redis"] = _redis()
        for name, probe in ports.health.probes.items():
            reports[name] = probe()
        for name, probe in remote.probes().items():
            reports[name] = probe()
        _last = (time.monotonic() + REMEMBER_SECONDS, reports)
        return reports


def overall(reports: dict[str, HealthReport]) -> str:
    """`unhealthy` when the database is away, `degraded` when another part is not up, else `healthy`."""
    if reports["database"].status == "down":
        return "unhealthy"
    return "healthy" if all(report.status == "up" for report in reports.values()) else "degraded"


def as_json() -> dict[str, Any]:
    reports = parts()
    return {
        "status": overall(reports),
        "backend_services": {name: "down" if report.status == "down" else "up" for name, report in reports.items()},
        "details": {name: report.detail for name, report in reports.items() if report.detail},
    }
