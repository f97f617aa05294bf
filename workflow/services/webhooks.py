"""What admins do with webhooks: add, change, switch on and off, new secrets, tests, sending again.

`deliveries` makes what they are sent, `sending` sends it. An address is checked here as it is written, and again at
every try once its name is resolved. The Event log names it by its host only: its path can hold a secret.
"""

import base64
import re
import secrets
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from devflow import addresses, config, sealing
from devflow.actors import SYSTEM, Actor
from devflow.addresses import UrlError
from devflow.errors import conflict, invalid, not_found
from devflow.events import LiveEvent, bus
from workflow.models import KINDS, Delivery, Event, Project, Webhook
from workflow.models.webhooks import MOST_NAME, MOST_WORDS
from workflow.services import activity, deliveries

MOST_WEBHOOKS = 20
"""Webhooks a project may have."""

BOTH_SIGN = timedelta(days=1)
"""How long the secret before the last one signs too, so that a receiver can be changed meanwhile."""

SECRET_BYTES = 32
SECRET_PREFIX = "whsec_"  # noqa: S105  # the prefix of every secret, not one
PURPOSE = "webhook"
SWITCHED_OFF = "Not sent: the webhook was switched off."

_SUBJECTS = {kind.partition(".")[0] for kind in KINDS}


def may_be_private(host: str, port: int) -> bool:
    """Whether whoever runs this server lets webhooks reach `host` though it is not public."""
    written = f"[{host}]" if ":" in host else host
    named = {name.lower() for name in config.current().webhooks.allowed_hosts}
    return bool(named & {host, written, f"{written}:{port}"})


def new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


@transaction.atomic
def create(
    *, project_id: int, url: str, actor: Actor, name: str = "", kinds: Iterable[str] = ()
) -> tuple[Webhook, str]:
    """Add a webhook that hears what happens from now on. Returns it with its secret, which is shown this once.

    Raises `not_found`, `invalid_input` for an address that is not public or a kind that does not exist, `conflict` when
    there are too many.
    """
    project = Project.objects.select_for_update(no_key=True).filter(pk=project_id).first()
    if project is None:
        raise not_found("Project", project_id)
    if Webhook.objects.filter(project=project).count() >= MOST_WEBHOOKS:
        raise conflict(f"A project has at most {MOST_WEBHOOKS} webhooks.", suggestion="Delete one that is not needed.")
    secret = new_secret()
    webhook = Webhook.objects.create(
        project=project,
        name=_checked_name(name),
        url=checked_url(url),
        kinds=checked_kinds(kinds),
        secret=sealing.seal(secret, purpose=PURPOSE),
        created_by=actor.name[:150],
    )
    webhook.cursor = _record("webhook.created", webhook, actor).pk
    webhook.save(update_fields=["cursor"])
    return webhook, secret


@transaction.atomic
def change(
    *,
    webhook_id: int,
    actor: Actor,
    name: str | None = None,
    url: str | None = None,
    kinds: Iterable[str] | None = None,
    active: bool | None = None,
) -> Webhook:
    """Change a webhook; what is None stays. Switched on, it hears what happens from then on. Raises as `create`."""
    webhook = _locked(webhook_id)
    wanted: dict[str, Any] = {
        "name": None if name is None else _checked_name(name),
        "url": None if url is None else checked_url(url),
        "kinds": None if kinds is None else checked_kinds(kinds),
        "active": active,
    }
    given = {field: value for field, value in wanted.items() if value is not None}
    changed = {field: value for field, value in given.items() if getattr(webhook, field) != value}
    if not changed:
        return webhook
    before = {field: _said(webhook)[field] for field in changed}
    for field, value in changed.items():
        setattr(webhook, field, value)
    if "url" in changed or changed.get("active"):
        webhook.failures, webhook.failing_since, webhook.rests_until, webhook.disabled_reason = 0, None, None, ""
    if changed.get("active") is False:
        _drop_waiting(webhook)
    after = {field: _said(webhook)[field] for field in changed}
    event = _record("webhook.changed", webhook, actor, before=before, after=after)
    if changed.get("active"):
        webhook.cursor = event.pk
    webhook.save()
    return webhook


@transaction.atomic
def rotate(*, webhook_id: int, actor: Actor) -> tuple[Webhook, str]:
    """Make a new secret, returned this once. For a day every message is signed with both."""
    webhook = _locked(webhook_id)
    secret = new_secret()
    webhook.old_secret, webhook.secret = webhook.secret, sealing.seal(secret, purpose=PURPOSE)
    webhook.old_secret_until = timezone.now() + BOTH_SIGN
    webhook.save(update_fields=["secret", "old_secret", "old_secret_until"])
    _record("webhook.changed", webhook, actor, after={"secret": "a new one"})
    return webhook, secret


@transaction.atomic
def delete(*, webhook_id: int, actor: Actor) -> None:
    """Delete a webhook and the log of its deliveries."""
    webhook = _locked(webhook_id)
    _record("webhook.deleted", webhook, actor)
    webhook.delete()


@transaction.atomic
def ping(*, webhook_id: int) -> Delivery:
    """Send a test message; its delivery tells how that went. No Event: the log of deliveries keeps it.

    Raises `conflict` for one that is switched off.
    """
    webhook = _locked(webhook_id)
    _require_active(webhook)
    payload = deliveries.test_payload(webhook)
    made = Delivery.objects.create(webhook=webhook, kind=deliveries.TEST, payload=payload)
    _send_soon(webhook)
    return made


@transaction.atomic
def send_again(*, delivery_id: int) -> Delivery:
    """Send a message again with its old id, with all the tries of a new one. No Event: the log of deliveries keeps it.

    Raises `not_found`, `conflict` for a webhook that is switched off.
    """
    delivery = Delivery.objects.filter(pk=delivery_id).first()
    if delivery is None:
        raise not_found("Delivery", delivery_id)
    webhook = _locked(delivery.webhook_id)
    _require_active(webhook)
    delivery.status, delivery.attempts, delivery.next_try_at = Delivery.Status.WAITING, 0, timezone.now()
    delivery.error = ""
    delivery.save(update_fields=["status", "attempts", "next_try_at", "error"])
    _send_soon(webhook)
    return delivery


@transaction.atomic
def disable(*, webhook_id: int, reason: str) -> None:
    """Switch a webhook off because its receiver is gone; what waits is not sent. Repeating that changes nothing."""
    webhook = _locked(webhook_id)
    if not webhook.active:
        return
    webhook.active, webhook.disabled_reason = False, reason[:MOST_WORDS]
    webhook.save(update_fields=["active", "disabled_reason"])
    _drop_waiting(webhook)
    _record("webhook.disabled", webhook, SYSTEM, after={"reason": webhook.disabled_reason})


def _drop_waiting(webhook: Webhook) -> None:
    waiting = Delivery.objects.filter(webhook=webhook, status=Delivery.Status.WAITING)
    waiting.update(status=Delivery.Status.FAILED, next_try_at=None, error=SWITCHED_OFF)


def told(webhook: Webhook) -> None:
    """Tell pages that its log changed."""
    bus.publish(LiveEvent("webhook.delivery", webhook.project_id, webhook.public_id))


def checked_url(url: str) -> str:
    """The one spelling of an address that may be told things. Raises `invalid_input`."""
    try:
        return addresses.check(url, may_be_private=may_be_private)
    except UrlError as exc:
        raise invalid(
            f"This address cannot be told: {exc}. Give a public http or https address, or have whoever runs this "
            "server name the host in DEVFLOW_WEBHOOKS_ALLOWED_HOSTS.",
            url=str(exc),
        ) from None


def checked_kinds(kinds: Iterable[str]) -> list[str]:
    """Kinds of events in order, without repeats. Raises `invalid_input` for one that does not exist."""
    given = sorted(set(kinds))
    for kind in given:
        subject, _, rest = kind.partition(".")
        if kind not in KINDS and not (rest == "*" and subject in _SUBJECTS):
            alike = [name for name in KINDS if name.startswith(f"{subject}.")]
            near = alike or sorted(f"{name}.*" for name in _SUBJECTS)
            raise invalid(f"There is no kind of event {kind[:60]!r}. There are: {', '.join(near)}.", kinds=kind[:60])
    return given


def _checked_name(name: str) -> str:
    name = re.sub(r"\s+", " ", name).strip()
    if len(name) > MOST_NAME:
        raise invalid(f"A name has at most {MOST_NAME} characters.", name=f"{len(name)} given")
    return name


def _locked(webhook_id: int) -> Webhook:
    rows = Webhook.objects.select_for_update(of=("self",), no_key=True).select_related("project")
    webhook = rows.filter(pk=webhook_id).first()
    if webhook is None:
        raise not_found("Webhook", webhook_id)
    return webhook


def _require_active(webhook: Webhook) -> None:
    if not webhook.active:
        raise conflict("This webhook is switched off.", suggestion="Switch it on first.")


def _send_soon(webhook: Webhook) -> None:
    from workflow.jobs import send_webhooks

    webhook.rests_until = None
    webhook.save(update_fields=["rests_until"])
    told(webhook)
    send_webhooks.wake()


def _said(webhook: Webhook) -> dict[str, Any]:
    return {"name": webhook.name, "url": webhook.host, "kinds": webhook.kinds, "active": webhook.active}


def _record(
    kind: str,
    webhook: Webhook,
    actor: Actor,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> Event:
    return activity.record(
        kind=kind,
        project=webhook.project,
        actor=actor,
        subject_id=webhook.public_id,
        before=before,
        after={"webhook": str(webhook), "host": webhook.host, **(after or {})},
    )
