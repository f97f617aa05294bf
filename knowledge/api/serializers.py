"""How sources, documents and passages look in the API, and what a change may carry."""

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from devflow import multipart
from devflow.rest import Exact, Json, Text
from knowledge.api.fields import DocumentId, Lines, Names, SourceId, Tag, Tags
from knowledge.models import Chunk, CodeExample, Document, Source
from knowledge.selectors.sources import chunk_counts, pending_chunks
from knowledge.tools.results import progress


class Page(serializers.ListSerializer[Any]):
    """Rows whose child counts something beside them: once for all of them."""

    def to_representation(self, data: Any) -> Any:
        rows = list(data)
        child: Any = self.child
        child.counts = child.counted(rows)
        return super().to_representation(rows)


class Counting:
    """A serializer of rows with a count that is asked for once a page."""

    counts: dict[int, int] | None = None

    def counted(self, rows: Sequence[Any]) -> dict[int, int]:
        raise NotImplementedError

    def count_of(self, row: Any) -> int:
        counts = self.counted([row]) if self.counts is None else self.counts
        return counts.get(row.pk, 0)


class SourceSerializer(Counting, serializers.ModelSerializer[Source]):
    id = SourceId(source="pk")
    project = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    failed_documents = serializers.IntegerField(source="failed_count", read_only=True)
    code_example_count = serializers.IntegerField(source="example_count", read_only=True)
    pending_chunks = serializers.SerializerMethodField(help_text="Chunks that only keywords find for now.")
    progress = serializers.SerializerMethodField(help_text="0 to 1 while it is being read.")
    last_checked = serializers.DateTimeField(source="checked_at", read_only=True, allow_null=True)
    metadata = serializers.SerializerMethodField(help_text="What its last reading found out, such as the commit.")

    class Meta:
        model = Source
        list_serializer_class = Page
        fields = (
            *("id", "project", "title", "description", "type", "url", "tags", "priority", "options", "metadata"),
            *("status", "error", "progress", "document_count", "failed_documents", "chunk_count"),
            *("code_example_count", "pending_chunks", "created_by", "created_at", "updated_at", "last_checked"),
        )
        read_only_fields = fields

    def counted(self, rows: Sequence[Source]) -> dict[int, int]:
        return pending_chunks(rows)

    def get_pending_chunks(self, source: Source) -> int:
        return self.count_of(source)

    def get_progress(self, source: Source) -> float | None:
        return progress(source)

    def get_metadata(self, source: Source) -> dict[str, Any]:
        return {name: value for name, value in source.metadata.items() if name != "files"}


class SourceCreate(Exact):
    project = serializers.SlugField(required=False, help_text="Where the caller sees several.")
    title = Text(max_length=255)
    type = serializers.ChoiceField(choices=Source.Type.choices)
    path = Text(max_length=2000, required=False, allow_blank=True, help_text="Of a directory or checkout.")
    url = Text(max_length=2000, required=False, allow_blank=True, help_text="Of a site or page.")
    content = Text(required=False, allow_blank=True, help_text="The text itself, or that of a file named in `path`.")
    tags = Tags()
    priority = serializers.IntegerField(min_value=1, max_value=10, default=5)
    description = Text(max_length=10_000, required=False, allow_blank=True)
    options = Json(required=False, help_text="For web: max_depth, max_pages, same_path, include, exclude.")


class SourceChange(Exact):
    title = Text(max_length=255, required=False)
    description = Text(max_length=10_000, required=False, allow_blank=True)
    tags = Tags()
    priority = serializers.IntegerField(min_value=1, max_value=10, required=False)
    options = Json(required=False)


class Reindex(Exact):
    force = serializers.BooleanField(default=False, help_text="Also parse and chunk what did not change.")


class Files(Exact):
    """Files as `multipart/form-data`; archives (.zip, .tar.gz) are kept and unpacked when they are read."""

    files = serializers.ListField(child=serializers.FileField(), required=False, max_length=multipart.FILES_AT_ONCE)
    file = serializers.FileField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        files = [*attrs.pop("files", ()), *([attrs.pop("file")] if "file" in attrs else ())]
        if not files:
            raise serializers.ValidationError({"files": "send at least one file"})
        for file in files:
            if file.size > multipart.most_bytes():
                raise multipart.too_large(file.name, file.size)
        names = [file.name for file in files]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise serializers.ValidationError({"files": f"two are named {twice}; send folders as a .zip"})
        return {**attrs, "files": files}


class Upload(Files):
    project = serializers.SlugField(required=False, help_text="Where the caller sees several.")
    title = Text(max_length=255, required=False, help_text="By default the first file's name.")
    tags = Names(child=Tag(), max_length=50, required=False)
    priority = serializers.IntegerField(min_value=1, max_value=10, default=5)
    description = Text(max_length=10_000, required=False, allow_blank=True)


class Uploaded(serializers.Serializer[Any]):
    source_id = SourceId(source="pk")
    status = serializers.ChoiceField(choices=Source.Status.choices, read_only=True)
    files = serializers.SerializerMethodField(help_text="All its files.")

    @extend_schema_field({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "size": {"type": "integer"}, "sha256": {"type": "string"}},
            "required": ["name", "size", "sha256"],
        },
    })  # fmt: skip
    def get_files(self, source: Source) -> list[dict[str, Any]]:
        files: list[dict[str, Any]] = source.metadata.get("files", [])
        return files


class DocumentSerializer(Counting, serializers.ModelSerializer[Document]):
    id = DocumentId(source="pk")
    project = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    source = SourceId(source="source_id")  # type: ignore[assignment]  # declared fields leave the class again
    hash = serializers.CharField(source="text_hash", read_only=True, help_text="sha256 of its text.")
    chunk_count = serializers.SerializerMethodField()

    class Meta:
        model = Document
        list_serializer_class = Page
        fields: tuple[str, ...] = (
            *("id", "project", "source", "path", "title", "status", "error", "media_type", "language", "size"),
            *("hash", "chunk_count", "created_at", "indexed_at"),
        )
        read_only_fields = fields

    def counted(self, rows: Sequence[Document]) -> dict[int, int]:
        return chunk_counts(rows)

    def get_chunk_count(self, document: Document) -> int:
        return self.count_of(document)


class DocumentText(DocumentSerializer):
    pages = serializers.ListField(child=serializers.IntegerField(), read_only=True, help_text="PDF: first lines.")

    class Meta(DocumentSerializer.Meta):
        fields = (*DocumentSerializer.Meta.fields, "pages", "text")
        read_only_fields = fields


class LinesQuery(Exact):
    """`from` is a word of Python's, so the fields are named here."""

    def get_fields(self) -> dict[str, Any]:
        line: dict[str, Any] = {"min_value": 1, "max_value": 2**31 - 1, "required": False}
        return {
            "from": serializers.IntegerField(**line, help_text="First line; by default 1."),
            "to": serializers.IntegerField(**line, help_text="Last line; by default the document's."),
        }


@extend_schema_field({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2})
class Span(serializers.ListField):
    child = serializers.IntegerField()


class LinesAnswer(serializers.Serializer[Any]):
    document = DocumentId(source="pk")
    path = serializers.CharField(read_only=True)
    lines = Span(read_only=True, help_text="First and last line given.")
    total_lines = serializers.IntegerField(read_only=True)
    hash = serializers.CharField(read_only=True, help_text="sha256 of the document's text.")
    text = serializers.CharField(read_only=True)


class PassageSerializer(serializers.ModelSerializer[Any]):
    """What chunks and code examples have in common. The viewset annotates `path`."""

    project = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    source = SourceId(source="source_id")  # type: ignore[assignment]  # as above
    document = DocumentId(source="document_id")
    path = serializers.CharField(read_only=True, help_text="The document's path in its source, or its URL.")
    lines = Lines()
    symbols = serializers.ListField(child=serializers.CharField(), read_only=True)


class ChunkSerializer(PassageSerializer):
    languages = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Chunk
        fields = (
            *("id", "project", "source", "document", "path", "ordinal", "heading", "text", "lines", "tokens"),
            *("hash", "symbols", "languages", "has_code"),
        )
        read_only_fields = fields


class CodeExampleSerializer(PassageSerializer):
    class Meta:
        model = CodeExample
        fields = (
            *("id", "project", "source", "document", "path", "lines", "language", "code", "context", "symbols"),
            *("hash", "is_valid"),
        )
        read_only_fields = fields


class SearchQuery(Exact):
    q = Text(max_length=10_000, help_text="What to look for, in words or identifiers.")
    project = serializers.SlugField(required=False, help_text="Where the caller sees several.")
    mode = serializers.ChoiceField(choices=["semantic", "hybrid", "reranked"], default="hybrid")
    top_k = serializers.IntegerField(min_value=1, max_value=200, default=10)
    tags = Names(child=Tag(), max_length=50, required=False, help_text="All of these on the source.")
    sources = Names(
        child=serializers.RegexField(r"^(source-)?[1-9][0-9]{0,15}$"),
        max_length=200,
        required=False,
        help_text="Only these sources.",
    )
    has_code = serializers.BooleanField(required=False, allow_null=True)
    include_code_examples = serializers.BooleanField(default=False)
    explain = serializers.BooleanField(default=False, help_text="Also give each result's score by part.")
