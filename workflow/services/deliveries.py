"""What webhooks are owed, from the Event log: nobody who changes something waits for a receiver.

`collect` makes the deliveries of new events and moves the webhook's cursor in one transaction, so whatever is killed,
every logged event is told of, and none twice under two ids. `sending` sends them.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from devflow import config
from workflow.models import Delivery, Event, Webhook
from workflow.selectors import activity

TEST = "webhook.test"
"""The kind of a message that tells of no event."""

BATCH = 200
MOST_PAYLOAD = 256 * 1024
"""Bytes of a message; a larger one goes without what was before and after."""


def collect() -> int:
    """Make the deliveries of every event since the last time. Returns how many."""
    return sum(_collect(webhook) for webhook in Webhook.objects.filter(active=True).select_related("project"))


def _collect(webhook: Webhook) -> int:
    made = 0
    while events := activity.since(project_id=webhook.project_id, sequence=webhook.cursor, limit=BATCH):
        rows = [
            Delivery(webhook=webhook, kind=event.kind, sequence=event.pk, payload=payload_of(event, webhook))
            for event in events
            if webhook.wants(event.kind)
        ]
        with transaction.atomic():
            ours = Webhook.objects.filter(pk=webhook.pk, cursor=webhook.cursor, active=True)
            if not ours.update(cursor=events[-1].pk):
                return made  # somebody else was faster, or it was changed: the next round reads it anew
            Delivery.objects.bulk_create(rows)
        webhook.cursor = events[-1].pk
        made += len(rows)
    return made


def payload_of(event: Event, webhook: Webhook) -> str:
    """The body of the message that tells of an event, as JSON."""
    data: dict[str, Any] = {
        "sequence": event.pk,
        "project": _project(webhook),
        "actor": {"kind": event.actor_kind, "name": event.actor_name},
        "tool": event.tool,
        "task": None,
        "phase": None,
        "before": event.before,
        "after": event.after,
    }
    if event.task is not None:
        data["task"] = {"id": event.task.public_id, "ref": event.task.ref, "subject": event.task.subject}
        if base := config.current().public_url.rstrip("/"):
            data["task"]["url"] = f"{base}/tasks/{event.task.pk}/"
    if event.phase is not None:
        data["phase"] = {"number": event.phase.number, "name": event.phase.name}
    body = _json(event.kind, event.at, data)
    if len(body.encode()) > MOST_PAYLOAD:
        body = _json(event.kind, event.at, {**data, "before": {}, "after": {}, "is_shortened": True})
    return body


def test_payload(webhook: Webhook) -> str:
    data = {"project": _project(webhook), "message": "A test: this webhook works."}
    return _json(TEST, timezone.now(), data)


def _project(webhook: Webhook) -> dict[str, str]:
    return {"slug": webhook.project.slug, "name": webhook.project.name}


def _json(kind: str, at: datetime, data: dict[str, Any]) -> str:
    moment = at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"type": kind, "timestamp": moment, "data": data}, ensure_ascii=False, separators=(",", ":"))


def prune() -> int:
    """Delete finished deliveries past the setting, and secrets that sign no more. Returns how many deliveries went."""
    now = timezone.now()
    Webhook.objects.filter(old_secret_until__lte=now).update(old_secret="", old_secret_until=None)
    before = now - timedelta(days=config.current().webhooks.keep_days)
    old = Delivery.objects.filter(created_at__lt=before).exclude(status=Delivery.Status.WAITING).order_by("pk")
    gone = 0
    while numbers := list(old.values_list("pk", flat=True)[:500]):
        gone += Delivery.objects.filter(pk__in=numbers).delete()[0]
    return gone
