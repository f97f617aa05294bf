"""The knowledge room's part of /api/v1/."""

from typing import Any

from knowledge.api import passage_viewsets, search_viewset, viewsets


def register(router: Any) -> None:
    router.register("sources", viewsets.SourceViewSet, basename="source")
    router.register("documents", viewsets.DocumentViewSet, basename="document")
    router.register("chunks", passage_viewsets.ChunkViewSet, basename="chunk")
    router.register("code-examples", passage_viewsets.CodeExampleViewSet, basename="code-example")
    router.register("knowledge", search_viewset.KnowledgeViewSet, basename="knowledge")
