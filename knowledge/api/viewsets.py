"""Sources and the documents read from them."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from devflow.errors import invalid
from knowledge.api import filters
from knowledge.api import serializers as shapes
from knowledge.api.access import KnowledgeRows, project_of, query_of
from knowledge.api.fields import DOCUMENT_ID, SOURCE_ID
from knowledge.models import Document, Source
from knowledge.services import sources

_SOURCE = OpenApiParameter("id", str, OpenApiParameter.PATH, description="`source-12` or `12`.", pattern=SOURCE_ID)
_DOCUMENT = OpenApiParameter(
    "id", str, OpenApiParameter.PATH, description="`document-12` or `12`.", pattern=DOCUMENT_ID
)


def _pieces(files: list[Any]) -> list[tuple[str, Iterator[bytes]]]:
    return [(file.name, file.chunks()) for file in files]


@extend_schema_view(retrieve=extend_schema(parameters=[_SOURCE]))
class SourceViewSet(ListModelMixin, RetrieveModelMixin, KnowledgeRows):
    """What the knowledge base is made from. Reading goes on in the background; `status` and `progress` tell how far."""

    rows = Source.objects.select_related("project").order_by("-pk")
    serializer_class = shapes.SourceSerializer
    filterset_class = filters.SourceRows
    write_serializers = {"create": shapes.SourceCreate, "partial_update": shapes.SourceChange}
    lookup_value_regex = r"(?:source-)?[1-9][0-9]{0,15}"
    lookup_url_kwarg = "id"
    ordering_fields = ("id", "title", "type", "status", "priority", "created_at", "updated_at", "chunk_count")

    @extend_schema(request=shapes.SourceCreate, responses={201: shapes.SourceSerializer})
    def create(self, request: Request) -> Response:
        """Add a source: `content` for manual (and for an upload, with a file name in `path`), `path` for a directory
        or a git checkout inside the directories the server may read, `url` for web. Files go to `upload`."""
        values = self.given(request)
        project = project_of(request, values.pop("project", None))
        made = sources.create(project_id=project.id, actor=self.writer(project.id), **values)
        return self.shown(made.pk, created=True)

    @extend_schema(request=shapes.Upload, responses={201: shapes.Uploaded})
    @action(detail=False, methods=["post"], parser_classes=(MultiPartParser,))
    def upload(self, request: Request) -> Response:
        """Add a source from files: Markdown, text, reStructuredText, HTML, PDF, DOCX, notebooks, code, or archives."""
        values = self.given(request, shapes.Upload)
        project = project_of(request, values.pop("project", None))
        actor, files = self.writer(project.id), values.pop("files")
        title = values.pop("title", "") or files[0].name[:255]
        made = sources.create(
            project_id=project.id, actor=actor, title=title, type=Source.Type.UPLOAD, files=_pieces(files), **values
        )
        return Response(shapes.Uploaded(made).data, status=201)

    @extend_schema(parameters=[_SOURCE], request=shapes.Files, responses=shapes.Uploaded)
    @action(detail=True, methods=["post"], parser_classes=(MultiPartParser,))
    def files(self, request: Request, id: str) -> Response:
        """Add files to an upload; one of a name it has takes its place."""
        source: Source = self.get_object()
        actor = self.writer(source.project_id)
        files = self.given(request, shapes.Files)["files"]
        changed = sources.add_files(source=source, files=_pieces(files), actor=actor)
        return Response(shapes.Uploaded(changed).data)

    @extend_schema(parameters=[_SOURCE], request=shapes.SourceChange, responses=shapes.SourceSerializer)
    def partial_update(self, request: Request, id: str) -> Response:
        return self._done(sources.configure, **self.given(request))

    @extend_schema(parameters=[_SOURCE], responses={204: None})
    def destroy(self, request: Request, id: str) -> Response:
        """Delete it with its documents, files and everything a search could find of it."""
        source: Source = self.get_object()
        sources.delete(source=source, actor=self.writer(source.project_id))
        return Response(status=204)

    def _done(self, service: Callable[..., Any], **values: Any) -> Response:
        source: Source = self.get_object()
        service(source=source, actor=self.writer(source.project_id), **values)
        return self.shown(source.pk)

    @extend_schema(parameters=[_SOURCE], request=shapes.Reindex, responses=shapes.SourceSerializer)
    @action(detail=True, methods=["post"])
    def reindex(self, request: Request, id: str) -> Response:
        """Read it again; what did not change is skipped unless `force`."""
        return self._done(sources.request_run, **self.given(request, shapes.Reindex))

    @extend_schema(parameters=[_SOURCE], request=None, responses=shapes.SourceSerializer)
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, id: str) -> Response:
        """Read the documents again that could not be read."""
        return self._done(sources.retry_failed)

    @extend_schema(parameters=[_SOURCE], request=None, responses=shapes.SourceSerializer)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, id: str) -> Response:
        """Stop reading it; what is indexed is still found."""
        return self._done(sources.pause)

    @extend_schema(parameters=[_SOURCE], request=None, responses=shapes.SourceSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, id: str) -> Response:
        """Go on reading where it was paused."""
        return self._done(sources.resume)

    @extend_schema(parameters=[_SOURCE], responses=shapes.DocumentSerializer(many=True))
    @action(detail=True, methods=["get"], filterset_class=None, ordering_fields=())
    def documents(self, request: Request, id: str) -> Response:
        """Its documents by path, without their text."""
        source: Source = self.get_object()
        rows = Document.objects.filter(source=source).select_related("project").defer("text").order_by("path", "pk")
        page = self.paginate_queryset(rows)
        context = self.get_serializer_context()
        return self.get_paginated_response(shapes.DocumentSerializer(page, many=True, context=context).data)


@extend_schema_view(retrieve=extend_schema(parameters=[_DOCUMENT]))
class DocumentViewSet(ListModelMixin, RetrieveModelMixin, KnowledgeRows):
    """Documents as they were indexed. The list leaves their text out."""

    rows = Document.objects.select_related("project").order_by("pk")
    serializer_class = shapes.DocumentSerializer
    filterset_class = filters.DocumentRows
    write_serializers = {"retrieve": shapes.DocumentText}
    lookup_value_regex = r"(?:document-)?[1-9][0-9]{0,15}"
    lookup_url_kwarg = "id"
    ordering_fields = ("id", "path", "title", "status", "size", "indexed_at")
    http_method_names = ("get", "post", "delete", "head", "options")

    def narrowed(self, rows: QuerySet[Document]) -> QuerySet[Document]:
        return rows if self.action in ("retrieve", "lines") else rows.defer("text")

    @extend_schema(parameters=[_DOCUMENT, shapes.LinesQuery], responses=shapes.LinesAnswer)
    @action(detail=True, methods=["get"], filterset_class=None, ordering_fields=())
    def lines(self, request: Request, id: str) -> Response:
        """Some of its lines, as citations count them."""
        document: Document = self.get_object()
        asked = query_of(request, shapes.LinesQuery)
        lines = document.text.split("\n")
        first, last = asked.get("from", 1), asked.get("to", len(lines))
        if not first <= last <= len(lines):
            raise invalid(
                f"There are no lines {first} to {last}; the document has {len(lines)}.",
                **{"from": "not after `to`", "to": f"at most {len(lines)}"},
            )
        answer = SimpleNamespace(
            pk=document.pk,
            path=document.path,
            lines=[first, last],
            total_lines=len(lines),
            hash=document.text_hash,
            text="\n".join(lines[first - 1 : last]),
        )
        return Response(shapes.LinesAnswer(answer).data)

    @extend_schema(parameters=[_DOCUMENT], request=None, responses=shapes.DocumentSerializer)
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, id: str) -> Response:
        """Read it again where it could not be read (the others of its source are looked at and skipped)."""
        document: Document = self.get_object()
        sources.retry_document(document=document, actor=self.writer(document.project_id))
        return self.shown(document.pk)

    @extend_schema(parameters=[_DOCUMENT], responses={204: None})
    def destroy(self, request: Request, id: str) -> Response:
        """Delete it. Outside of uploads it comes back when its source is read again, unless it is gone there too."""
        document: Document = self.get_object()
        sources.delete_document(document=document, actor=self.writer(document.project_id))
        return Response(status=204)
