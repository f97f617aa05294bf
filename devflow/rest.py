"""What the REST viewsets of every room share: bounded pages, and bodies that hold nothing unknown.

Nobody can ask for more than 200 rows, and a bad page is refused instead of guessed.
"""

import json
import os
from datetime import UTC, datetime
from typing import Any

import django_filters
from django.http import HttpRequest
from rest_framework import serializers
from rest_framework.pagination import CursorPagination, LimitOffsetPagination
from rest_framework.request import Request
from rest_framework.views import APIView

from devflow.digits import whole
from devflow.errors import invalid

MAX_LIMIT = 200
MAX_OFFSET = 1_000_000


def _whole(value: str | None, *, name: str, default: int, low: int, high: int) -> int:
    if value is None or value == "":
        return default
    number = whole(value, digits=9)
    if number is None or not low <= number <= high:
        raise invalid(f"{name} must be a whole number from {low} to {high}.", **{name: f"{low} to {high}"})
    return number


class BoundedLimitOffset(LimitOffsetPagination):
    """`?limit=1..200&offset=0..1000000`; anything else is `invalid_input`."""

    max_limit = MAX_LIMIT

    def get_limit(self, request: Request) -> int:
        return _whole(
            request.query_params.get("limit"),
            name="limit",
            default=int(self.default_limit or 50),
            low=1,
            high=MAX_LIMIT,
        )

    def get_offset(self, request: Request) -> int:
        return _whole(request.query_params.get("offset"), name="offset", default=0, low=0, high=MAX_OFFSET)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return [
            _parameter("limit", 1, MAX_LIMIT, "Rows on a page."),
            _parameter("offset", 0, MAX_OFFSET, "Rows to skip."),
        ]


class EventCursor(CursorPagination):
    """Feeds of rows that only ever get more: newest first, `?cursor=` from the answer, `?limit=1..200`."""

    ordering = "-id"
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = MAX_LIMIT

    def get_page_size(self, request: Request) -> int:
        return _whole(request.query_params.get("limit"), name="limit", default=self.page_size, low=1, high=MAX_LIMIT)

    def decode_cursor(self, request: Request) -> Any:
        cursor = super().decode_cursor(request)
        position: Any = cursor and cursor.position
        if position is not None and whole(position, digits=18) is None:
            raise invalid(
                "That cursor is not one of ours; start without it.", cursor="`next` or `previous` of an answer"
            )
        return cursor

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        cursor = {
            "name": "cursor",
            "in": "query",
            "required": False,
            "description": "The page to read: `next` and `previous` of an answer carry it.",
            "schema": {"type": "string"},
        }
        return [cursor, _parameter("limit", 1, MAX_LIMIT, "Rows on a page.")]


def _parameter(name: str, low: int, high: int, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": description,
        "schema": {"type": "integer", "minimum": low, "maximum": high},
    }


class Since(django_filters.IsoDateTimeFilter):  # type: ignore[misc]  # django-filter has no types
    """Rows from a moment on. Raises `invalid_input` for one that has no place in UTC."""

    def filter(self, qs: Any, value: datetime | None) -> Any:
        try:
            return super().filter(qs, value and value.astimezone(UTC))
        except OverflowError:
            raise invalid(f"{self.label}: no such moment.", since="a moment from year 1 to 9999, in UTC") from None


class KeyFirst(APIView):
    """401 comes before 406: who may not come in is not told what could be had."""

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """A chunked body names no length, and would be taken for an empty one."""
        stream: Any = getattr(request, "_stream", None)
        if "CONTENT_LENGTH" not in request.META and stream is not None and stream.seekable():
            request.META["CONTENT_LENGTH"] = str(stream.seek(0, os.SEEK_END))
            stream.seek(0)
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self.perform_authentication(request)
        self.check_permissions(request)
        super().initial(request, *args, **kwargs)


class Exact(serializers.Serializer[Any]):
    """A body whose unknown keys are refused."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict) and (unknown := sorted(data.keys() - self.fields.keys())):
            raise serializers.ValidationError(dict.fromkeys((ascii(name)[1:-1] for name in unknown), "unknown field"))
        return super().to_internal_value(data)


class Text(serializers.CharField):
    """Text that may be stored: no NUL, no lone surrogates, at most 100,000 characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 100_000, "trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        text: str = super().to_internal_value(data)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise serializers.ValidationError("lone surrogates are not text") from None
        return text


class Json(serializers.JSONField):
    """A JSON object of at most 100,000 characters; that a database can keep it is the parser's care."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            raise serializers.ValidationError("must be an object")
        if len(json.dumps(data)) > 100_000:
            raise serializers.ValidationError("is larger than 100,000 characters as JSON")
        return data
