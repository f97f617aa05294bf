"""Answers of backends past 1 MiB: the caller gets the first part and a link, behind which the whole lies for a day.

The link is read with `resources/read` (`devflow://answers/<id>`) or `GET /mcp/answers/<id>`, by the same key only.
"""

import json
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.utils import timezone

from devflow.errors import DevFlowError, ErrorCode, not_found
from mcpbridge.gateway.artifacts import text_of
from mcpbridge.models import KeptAnswer
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Caller

LIMIT = 1024 * 1024
"""Bytes an answer may have, as JSON, to be given whole."""
FIRST_PART = 64 * 1024
"""Characters of a larger one that are given at once."""
KEEP = timedelta(days=1)
PREFIX = "devflow://answers/"


def _is_large(value: Any) -> bool:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace")) > LIMIT


def _whole(wire: Mapping[str, Any]) -> tuple[str, str]:
    """An MCP result as one text, and its media type: structured content, else plain text, else the result itself."""
    if wire.get("structuredContent") is not None:
        return json.dumps(wire["structuredContent"], ensure_ascii=False), "application/json"
    if all(item.get("type") == "text" for item in wire.get("content", ())):
        return text_of(wire), "text/plain"
    return json.dumps(wire, ensure_ascii=False), "application/json"


async def fitting(caller: Caller, wire: dict[str, Any], *, has_schema: bool) -> dict[str, Any]:
    """An MCP result that is small enough: as it came, or its first part and a link.

    A tool that declared an output schema (`has_schema`) promised structured content, which a part cannot be: such an
    answer is marked as an error, so that clients do not refuse it whole.
    """
    if not _is_large(wire):
        return wire
    text, media_type = _whole(wire)
    answer_id = await run_blocking(_keep, caller, text, media_type)
    note = (
        f"[This answer has {len(text):,} characters. Above are the first {FIRST_PART:,}; the whole can be read for a "
        f"day as the resource {PREFIX}{answer_id}, or with GET /mcp/answers/{answer_id}.]"
    )
    return {
        "content": [
            {"type": "text", "text": text[:FIRST_PART]},
            {"type": "text", "text": note},
            {
                "type": "resource_link",
                "uri": PREFIX + answer_id,
                "name": "the whole answer",
                "mimeType": media_type,
                "size": len(text.encode(errors="replace")),
            },
        ],
        "isError": bool(wire.get("isError")) or has_schema,
    }


async def fitting_data(caller: Caller, data: dict[str, Any]) -> dict[str, Any]:
    """The same for the `data` of an envelope: `{is_cut, first_part, characters, uri, path}` where it is too large."""
    if not _is_large(data):
        return data
    only = next(iter(data.values())) if len(data) == 1 else None
    text, media_type = (
        (only, "text/plain") if isinstance(only, str) else (json.dumps(data, ensure_ascii=False), "application/json")
    )
    answer_id = await run_blocking(_keep, caller, text, media_type)
    return {
        "is_cut": True,
        "first_part": text[:FIRST_PART],
        "characters": len(text),
        "uri": PREFIX + answer_id,
        "path": f"/mcp/answers/{answer_id}",
    }


def _keep(caller: Caller, text: str, media_type: str) -> str:
    row = KeptAnswer.objects.create(
        answer_id=secrets.token_urlsafe(16),
        key_id=caller.scope.key_id,
        user_id=caller.scope.user_id,
        media_type=media_type,
        text=text.replace("\x00", ""),  # PostgreSQL's text takes none
    )
    return row.answer_id


def kept(caller: Caller, answer_id: str) -> KeptAnswer:
    """A kept answer of this very key (blocks). Raises `not_found`."""
    row = KeptAnswer.objects.filter(
        answer_id=answer_id,
        key_id=caller.scope.key_id,
        user_id=caller.scope.user_id,
        created_at__gte=timezone.now() - KEEP,
    ).first()
    if row is None:
        raise not_found("Answer", answer_id, suggestion="Answers are kept for a day, for the key that got them.")
    return row


def is_cut(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("is_cut") is True and str(value.get("uri", "")).startswith(PREFIX)


def refuse_cut(value: Any, what: str) -> None:
    """Raises `too_large` where a step would work with a part only."""
    if is_cut(value):
        raise DevFlowError(
            ErrorCode.TOO_LARGE,
            f"{what} answered more than 1 MiB, which cannot be passed on to another step.",
            details={"uri": value["uri"]},
            suggestion="Ask that step for less.",
        )


def expire() -> int:
    """Delete answers older than a day (blocks). Returns how many."""
    return KeptAnswer.objects.filter(created_at__lt=timezone.now() - KEEP).delete()[0]
