"""Sending to webhooks what they are owed, at least once each, with the same id and body every time.

`claim` and `send` take one webhook at a time in one process: a receiver that hangs holds up nobody but itself. A
process that is killed leaves what it had in hand to the next, when its hold has passed.
"""

import base64
import hmac
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from devflow import config, outside, sealing
from devflow.outside import OutsideError
from devflow.sealing import SealError
from workflow.models import Delivery, Webhook
from workflow.models.webhooks import MOST_WORDS
from workflow.services import webhooks

TRIES = 8
FIRST_WAIT = timedelta(seconds=5)
WAIT_GROWS = 5
"""5 s, 25 s, 2 min, 10 min, 52 min, 4 h, 22 h: eight tries in a little more than a day."""

JITTER = 0.25
LONGEST_WAIT = timedelta(days=1)
"""The most a `Retry-After` is heeded."""

LONGEST_REST = timedelta(minutes=5)
"""The most the other messages of a webhook wait after one that failed, unless it asked for more."""

GIVEN_UP_AFTER = timedelta(days=1)
"""A webhook that took nothing for so long is switched off when a message has used up its tries."""

TURN_SECONDS = 20
HOLD_MARGIN = timedelta(seconds=10)
MOST_READ = 16 * 1024
MOST_SHOWN = 2_000
"""Characters of an answer that are kept."""


def claim() -> Webhook | None:
    """Take a webhook in hand that has something to send now; None when there is none."""
    now = timezone.now()
    due = Delivery.objects.filter(webhook=OuterRef("pk"), status=Delivery.Status.WAITING, next_try_at__lte=now)
    free = Webhook.objects.filter(
        Q(held_until=None) | Q(held_until__lte=now), Q(rests_until=None) | Q(rests_until__lte=now), active=True
    )
    for webhook in free.filter(Exists(due)).order_by(F("held_until").asc(nulls_first=True), "pk")[:20]:
        until = _hold_until()
        if free.filter(pk=webhook.pk, held_until=webhook.held_until).update(held_until=until):
            webhook.held_until = until
            return webhook
    return None


def send(webhook: Webhook, *, stop: Callable[[], bool]) -> None:
    """Send what a claimed webhook has to send: until one fails, its turn is over, or `stop`. Then let it go."""
    over = time.monotonic() + TURN_SECONDS
    while time.monotonic() < over and not stop() and _hold_on(webhook):
        waiting = Delivery.objects.filter(webhook=webhook, status=Delivery.Status.WAITING)
        due = waiting.filter(next_try_at__lte=timezone.now()).select_related("webhook__project")
        delivery = due.order_by("next_try_at", "pk").first()
        if delivery is None or not _try(delivery):
            break
    Webhook.objects.filter(pk=webhook.pk, held_until=webhook.held_until).update(held_until=timezone.now())


def _hold_until() -> datetime:
    return timezone.now() + timedelta(seconds=config.current().webhooks.timeout_seconds) + HOLD_MARGIN


def _hold_on(webhook: Webhook) -> bool:
    """Whether the webhook is still ours to send for; then it is for another try."""
    until = _hold_until()
    ours = Webhook.objects.filter(pk=webhook.pk, held_until=webhook.held_until, active=True)
    if not ours.update(held_until=until):
        return False
    webhook.held_until = until
    return True


@dataclass(frozen=True, slots=True)
class _Went:
    """How a try went: `error` is empty where it was taken, `wait` what the receiver asked for, `final`: give up."""

    at: datetime
    signature: str
    duration_ms: int
    answer: outside.Answer | None
    error: str
    wait: timedelta = timedelta(0)
    final: str = ""


def _try(delivery: Delivery) -> bool:
    """Send a message and note how that went. Returns whether it was taken."""
    went = _sent(delivery)
    with transaction.atomic():
        (_taken if not went.error else _failed)(delivery, went)
        webhooks.told(delivery.webhook)
    return not went.error


def _sent(delivery: Delivery) -> _Went:
    limits, at, began = config.current().webhooks, timezone.now(), time.monotonic()
    body, signature, answer, error, final = delivery.payload.encode(), "", None, "", ""
    try:
        signature = signatures(delivery.webhook, delivery.message_id, at, body)
        answer = outside.post_guarded(
            delivery.webhook.url,
            body=body,
            headers={
                "Content-Type": "application/json",
                "webhook-id": delivery.message_id,
                "webhook-timestamp": str(int(at.timestamp())),
                "webhook-signature": signature,
            },
            seconds=limits.timeout_seconds,
            most_bytes=MOST_READ,
            may_be_private=webhooks.may_be_private,
        )
    except OutsideError as exc:
        error = str(exc)
    except SealError as exc:
        error = final = f"Its secret cannot be read: {exc} Make a new secret and switch it on again."
    wait = timedelta(0)
    if answer is not None and not 200 <= answer.status < 300:
        error, final = _refusal(answer)
        wait = timedelta(seconds=outside.retry_after(answer.headers.get("retry-after", "")) or 0)
    return _Went(at, signature, int((time.monotonic() - began) * 1000), answer, error, min(wait, LONGEST_WAIT), final)


def _refusal(answer: outside.Answer) -> tuple[str, str]:
    """What went wrong, and why to give up for good, if so."""
    if 300 <= answer.status < 400:
        return f"It answered {answer.status}: redirects are not followed. Give the address it leads to.", ""
    if answer.status == 410:
        return "It answered 410: it is gone.", "It answered 410: the receiver is gone for good."
    return f"It answered {answer.status}.", ""


def _taken(delivery: Delivery, went: _Went) -> None:
    fields = _noted(delivery, went) | {"status": Delivery.Status.DELIVERED, "next_try_at": None}
    Delivery.objects.filter(pk=delivery.pk).update(**fields)
    Webhook.objects.filter(pk=delivery.webhook_id).update(
        failures=0, failing_since=None, rests_until=None, delivered_at=went.at
    )


def _failed(delivery: Delivery, went: _Went) -> None:
    tried = delivery.attempts + 1
    rest = max(went.wait, min(backoff(delivery.webhook.failures + 1), LONGEST_REST))
    wait = max(rest, backoff(tried))
    is_over = tried >= TRIES or bool(went.final)
    fields = _noted(delivery, went) | {
        "status": Delivery.Status.FAILED if is_over else Delivery.Status.WAITING,
        "next_try_at": None if is_over else timezone.now() + wait,
    }
    if not Delivery.objects.filter(pk=delivery.pk, status=Delivery.Status.WAITING).update(**fields):
        return  # it was switched off meanwhile
    since = delivery.webhook.failing_since or went.at
    Webhook.objects.filter(pk=delivery.webhook_id).update(
        failures=F("failures") + 1,
        failing_since=since,
        rests_until=timezone.now() + rest,
    )
    if went.final:
        webhooks.disable(webhook_id=delivery.webhook_id, reason=went.final)
    elif is_over and went.at - since >= GIVEN_UP_AFTER:
        reason = f"It took nothing since {since:%Y-%m-%d %H:%M} UTC. The last try: {went.error}"
        webhooks.disable(webhook_id=delivery.webhook_id, reason=reason)


def _noted(delivery: Delivery, went: _Went) -> dict[str, Any]:
    answer = went.answer
    body = answer.body.decode("utf-8", "replace").replace("\0", "\ufffd")[:MOST_SHOWN] if answer else ""
    return {
        "attempts": delivery.attempts + 1,
        "tried_at": went.at,
        "signature": went.signature,
        "duration_ms": went.duration_ms,
        "response_status": answer.status if answer else None,
        "response_type": answer.headers.get("content-type", "")[:200].replace("\0", "") if answer else "",
        "response_body": body,
        "error": went.error[:MOST_WORDS],
    }


def backoff(tried: int) -> timedelta:
    """The wait after so many tries: it grows fivefold, and up to a quarter longer so that many do not meet again."""
    longer = 1 + random.uniform(0, JITTER)  # noqa: S311  # spreads load, hides nothing
    grown: int = WAIT_GROWS ** (min(tried, TRIES) - 1)
    return FIRST_WAIT * (grown * longer)


def signatures(webhook: Webhook, message_id: str, at: datetime, body: bytes) -> str:
    """The `webhook-signature` header: `v1,<base64>` by every secret in force, blanks between. Raises `SealError`."""
    sealed = [webhook.secret]
    if webhook.old_secret and webhook.old_secret_until and webhook.old_secret_until > at:
        sealed.append(webhook.old_secret)
    secrets = [sealing.unseal(one, purpose=webhooks.PURPOSE) for one in sealed]
    return " ".join(signature(secret, message_id, int(at.timestamp()), body) for secret in secrets)


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Standard Webhooks: HMAC-SHA256 over `id.timestamp.body` with the bytes that stand in base64 after `whsec_`."""
    key = base64.b64decode(secret.removeprefix(webhooks.SECRET_PREFIX))
    digest = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, "sha256")
    return f"v1,{base64.b64encode(digest).decode()}"
