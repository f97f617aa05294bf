"""Search over REST: the same answer as the tool `search_knowledge`."""

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from knowledge.api import serializers as shapes
from knowledge.api.access import KnowledgeRows, project_of, query_of
from knowledge.models import Chunk
from knowledge.services import answers
from knowledge.tools.results import SearchResult


class KnowledgeViewSet(KnowledgeRows):
    rows = Chunk.objects.none()
    http_method_names = ("get", "head", "options")

    @extend_schema(parameters=[shapes.SearchQuery], responses=SearchResult)
    @action(detail=False, methods=["get"], filter_backends=(), pagination_class=None)
    def search(self, request: Request) -> Response:
        """Search the knowledge base of a project by meaning, words and exact identifiers; every result cites where
        it stands. `degraded` tells when only part of the search ran, and `reason` why."""
        asked = query_of(request, shapes.SearchQuery)
        project = project_of(request, asked.pop("project", None))
        filters = {
            name: asked.pop(name) for name in ("tags", "sources", "has_code") if asked.get(name) not in (None, [])
        }
        asked.pop("has_code", None)
        made = answers.answer(project_id=project.id, query=asked.pop("q"), filters=filters, **asked)
        return Response(SearchResult.model_validate(made).model_dump(mode="json"))
