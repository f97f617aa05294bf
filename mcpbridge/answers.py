"""Stored answers: the same idempotency key again gives the same answer and has no second effect."""

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from devflow.errors import DevFlowError, ErrorCode, conflict, invalid
from mcpbridge.models import StoredAnswer
from mcpbridge.tooling import Caller

KEEP = timedelta(hours=24)
MAX_KEY = 255


def request_hash(tool: str, arguments: Mapping[str, Any], *, project: str, agent: str) -> str:
    """A call's fingerprint: tool, arguments, the project it was aimed at, and the agent that named itself.

    Two agents of one key that pick the same idempotency key are told so, instead of one getting the other's lease.
    """
    return hashlib.sha256(json.dumps([tool, arguments, project, agent], sort_keys=True).encode()).hexdigest()


def fingerprint(tool: str, arguments: Mapping[str, Any], caller: Caller) -> str:
    """What must be the same for a call to count as a repeat of an earlier one."""
    agent = caller.agent_name if caller.is_named else ""
    place = " ".join(filter(None, (caller.project_slug, caller.project_root)))
    return request_hash(tool, arguments, project=place, agent=agent)


def checked_key(key: object) -> str:
    """Raises `invalid_input` unless the idempotency key is 1 to 255 printable ASCII characters."""
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
        raise invalid(f"An idempotency key is 1 to {MAX_KEY} printable ASCII characters.", idempotency_key="malformed")
    return key


def reserve(key_id: int, idempotency_key: str, fingerprint: str) -> StoredAnswer | None:
    """Take an idempotency key inside the call's transaction.

    None: it is new, the call runs and must `store` its answer. Otherwise the earlier answer; a call that is still
    running under the same key is waited for by the database. Raises `conflict` for another body under that key.
    """
    try:
        with transaction.atomic():
            StoredAnswer.objects.create(key_id=key_id, idempotency_key=idempotency_key, request_hash=fingerprint)
    except IntegrityError:
        earlier = StoredAnswer.objects.get(key_id=key_id, idempotency_key=idempotency_key)
        if earlier.request_hash != fingerprint:
            raise conflict(
                "This idempotency key was used for another call.",
                suggestion="Use a fresh key for every new call, and the same key only to repeat one.",
            ) from None
        return earlier
    return None


def reserve_alone(key_id: int, idempotency_key: str, fingerprint: str) -> dict[str, Any] | None:
    """`reserve` for a call that does its work outside a transaction: the earlier answer, or None for a new call.

    Raises `conflict` also while the earlier call has no answer: it is at work, or was cut off, and nobody knows which.
    """
    earlier = reserve(key_id, idempotency_key, fingerprint)
    if earlier is None:
        return None
    if earlier.answer is None:
        raise conflict(
            "The first call with this idempotency key is still at work, or was cut off before its answer.",
            suggestion="Wait and repeat; if it stays so, look at what the call did before you use a fresh key.",
        )
    answer: dict[str, Any] = earlier.answer
    if (error := answer.get("error")) is not None:
        raise DevFlowError(ErrorCode(error["code"]), error["message"], **error["more"])
    return answer


def store_failure(key_id: int, idempotency_key: str, error: DevFlowError) -> None:
    """Keep how a call failed whose end is known, for its repeats."""
    more = {"details": dict(error.details), "suggestion": error.suggestion}
    kept = {"error": {"code": error.code.value, "message": error.message, "more": more}}
    store(key_id, idempotency_key, kept)


def release(key_id: int, idempotency_key: str) -> None:
    """Give a key back whose call did nothing."""
    StoredAnswer.objects.filter(key_id=key_id, idempotency_key=idempotency_key, answer__isnull=True).delete()


def store(key_id: int, idempotency_key: str, answer: dict[str, Any]) -> None:
    StoredAnswer.objects.filter(key_id=key_id, idempotency_key=idempotency_key).update(answer=answer)


def expire() -> int:
    """Delete answers older than a day. Returns how many."""
    return StoredAnswer.objects.filter(created_at__lt=timezone.now() - KEEP).delete()[0]
