"""Fields the knowledge room's bodies, queries and rows share."""

from typing import Any

from django import forms
from django.core.validators import RegexValidator
from django_filters import Filter
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from devflow.rest import Text

SOURCE_ID = r"^(source-)?[1-9][0-9]{0,15}$"
DOCUMENT_ID = r"^(document-)?[1-9][0-9]{0,15}$"


class Tag(Text):
    """One tag: no comma, at most 64 characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 64, **options})
        self.validators.append(RegexValidator(r"^[^,]+$", "a tag has no comma"))


class Tags(serializers.ListField):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"child": Tag(), "max_length": 50, "required": False, **options})


class Names(serializers.ListField):
    """A list of texts without commas: repeated in a form or a query, or with commas between them."""

    def to_internal_value(self, data: Any) -> list[Any]:
        if isinstance(data, list):
            data = [part for item in data for part in (item.split(",") if isinstance(item, str) else [item])]
            data = [part.strip() if isinstance(part, str) else part for part in data]
        values: list[Any] = super().to_internal_value([part for part in data if part != ""])
        return values


class Public(serializers.Field[Any, Any, str, Any]):
    """The public id of a row: `source-12`."""

    def __init__(self, noun: str, **options: Any) -> None:
        self.noun = noun
        super().__init__(read_only=True, **options)

    def to_representation(self, value: Any) -> str:
        return f"{self.noun}-{value}"


class SourceId(Public):
    def __init__(self, **options: Any) -> None:
        super().__init__("source", **options)


class DocumentId(Public):
    def __init__(self, **options: Any) -> None:
        super().__init__("document", **options)


for _kind, _pattern in ((SourceId, r"^source-[1-9][0-9]*$"), (DocumentId, r"^document-[1-9][0-9]*$")):
    extend_schema_field({"type": "string", "pattern": _pattern})(_kind)


@extend_schema_field({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2})
class Lines(serializers.Field[Any, Any, list[int], Any]):
    """First and last line in the document, as citations count them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"source": "*", "read_only": True, **options})

    def to_representation(self, value: Any) -> list[int]:
        return [value.start_line, value.end_line]


class _Numbered(Filter):
    """Rows of the source or document with this public id."""

    field_class = forms.RegexField
    pattern = ""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"regex": self.pattern, **options})

    def filter(self, qs: Any, value: Any) -> Any:
        return super().filter(qs, int(value.rpartition("-")[2]) if value else None)


@extend_schema_field({"type": "string", "pattern": SOURCE_ID})
class OfSource(_Numbered):
    pattern = SOURCE_ID


@extend_schema_field({"type": "string", "pattern": DOCUMENT_ID})
class OfDocument(_Numbered):
    pattern = DOCUMENT_ID
