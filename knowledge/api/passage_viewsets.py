"""What searches find: chunks and code examples. Reading a source makes them; nobody writes them."""

from django.db.models import F
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from knowledge.api import filters
from knowledge.api import serializers as shapes
from knowledge.api.access import KnowledgeRows
from knowledge.models import Chunk, CodeExample


class ChunkViewSet(ListModelMixin, RetrieveModelMixin, KnowledgeRows):
    """Passages of documents. To search, GET /api/v1/knowledge/search/."""

    rows = Chunk.objects.select_related("project").defer("keywords").annotate(path=F("document__path")).order_by("pk")
    serializer_class = shapes.ChunkSerializer
    filterset_class = filters.ChunkRows
    lookup_value_regex = r"[1-9][0-9]{0,15}"
    ordering_fields = ("id", "tokens")
    http_method_names = ("get", "head", "options")


class CodeExampleViewSet(ListModelMixin, RetrieveModelMixin, KnowledgeRows):
    """Code in documents: fenced blocks, doctest sessions, functions and classes."""

    rows = CodeExample.objects.select_related("project").annotate(path=F("document__path")).order_by("pk")
    serializer_class = shapes.CodeExampleSerializer
    filterset_class = filters.CodeExampleRows
    lookup_value_regex = r"[1-9][0-9]{0,15}"
    ordering_fields = ("id", "language")
    http_method_names = ("get", "head", "options")
