"""Dates and moments as agents and people write them."""

from datetime import UTC, date, datetime, time, timedelta

from devflow.errors import invalid


def end_of(day: date) -> datetime:
    """The first moment after a day, in UTC. Raises `OverflowError` for the last day there is."""
    return datetime.combine(day + timedelta(days=1), time(), tzinfo=UTC)


def read(text: str, *, field: str) -> datetime:
    """A date means its end, a moment without an offset is UTC. Raises `invalid_input` naming `field`."""
    text = text.strip()
    try:
        if len(text) == 10:
            return end_of(date.fromisoformat(text)) - timedelta(microseconds=1)
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise invalid(
            f"{field}: {text[:40]!r} is no date and no moment.", **{field: "such as 2026-07-01 or 2026-07-01T12:00:00Z"}
        ) from None
