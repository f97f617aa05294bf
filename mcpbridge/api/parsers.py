"""JSON as REST paths take it. Apart from `base`, which DRF cannot import while it reads its settings."""

from collections.abc import Mapping
from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser
from rest_framework.utils import json

from mcpbridge import payload


class StrictJSONParser(JSONParser):
    """JSON in UTF-8, whatever charset a client names (some of Python's decompress), nested no deeper than the stack."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        try:
            return json.loads(stream.read().decode(), parse_constant=json.strict_constant)
        except RecursionError:
            raise ParseError("JSON parse error - nested too deep") from None
        except ValueError as exc:
            raise ParseError(f"JSON parse error - {str(exc).encode('ascii', 'backslashreplace').decode()}") from None


class BoundedJSONParser(StrictJSONParser):
    """The same, with an object's values inside the bounds of everything that may be stored (`payload.bounded`)."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        parsed = super().parse(stream, media_type, parser_context)
        return payload.bounded(parsed) if isinstance(parsed, dict) else parsed
