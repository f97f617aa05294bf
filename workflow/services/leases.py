"""The fields a claim sets and a call of its holder renews."""

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from workflow.models import Phase, Task

RENEW_AFTER = timedelta(seconds=30)


def renew_after(minutes: int) -> timedelta:
    """How old a renewal is before the next call writes another: a sixtieth of the lease, at most 30 s."""
    return min(RENEW_AFTER, timedelta(seconds=minutes))


def minutes_of(phase: Phase) -> int:
    return int(phase.lease.total_seconds() // 60)


def lease_fields(*, phase: Phase, session: str, now: datetime) -> dict[str, Any]:
    """A fresh lease in `phase` from `now` on."""
    minutes = minutes_of(phase)
    return {
        "lease_token": secrets.token_urlsafe(18),
        "lease_session": session,
        "lease_expires_at": now + timedelta(minutes=minutes),
        "lease_renew_at": now + renew_after(minutes),
        "lease_minutes": minutes,
    }


def renew(*, agent_id: int, session: str, at: datetime | None = None) -> int:
    """Renew every live lease of (agent, session). Returns how many; an expired lease stays expired."""
    now = at or timezone.now()
    held = Task.objects.held(now).filter(assigned_agent_id=agent_id, lease_session=session)
    by_minutes: dict[int, list[int]] = {}
    for pk, minutes in held.values_list("pk", "lease_minutes"):
        by_minutes.setdefault(minutes, []).append(pk)
    return sum(_extend(pks, minutes=minutes, now=now) for minutes, pks in by_minutes.items())


def _extend(task_ids: Iterable[int], *, minutes: int, now: datetime) -> int:
    return (
        Task.objects.held(now)
        .filter(pk__in=list(task_ids))
        .update(lease_expires_at=now + timedelta(minutes=minutes), lease_renew_at=now + renew_after(minutes))
    )


def due(*, agent_id: int, sessions: Iterable[str], at: datetime) -> Any:
    """The live leases of an agent in these sessions that the next call should renew."""
    return Task.objects.held(at).filter(
        assigned_agent_id=agent_id, lease_session__in=list(sessions), lease_renew_at__lte=at
    )
