"""The shapes the knowledge tools take and give."""

from typing import Annotated, Any, Literal

from pydantic import Field

from knowledge.models import Source
from knowledge.selectors import sources as selectors
from mcpbridge.tooling import Result

Query = Annotated[str, Field(min_length=1, max_length=10_000, pattern=r"^[^\x00]*\S[^\x00]*$")]
TopK = Annotated[int, Field(ge=1, le=200)]
SourceId = Annotated[
    str, Field(min_length=1, max_length=40, pattern=r"^(source-)?[1-9][0-9]{0,15}$", examples=["source-12"])
]
SourceType = Literal["upload", "directory", "git", "web", "manual"]
SourceStatus = Literal["pending", "indexing", "active", "paused", "error"]
SHOWN_DOCUMENTS = 20


class CodeBlock(Result):
    code: str
    language: str
    context: str
    lines: list[int]
    symbols: list[str]
    is_valid: bool | None


class SearchHit(Result):
    content: str
    source: str
    url: str
    score: float
    metadata: dict[str, Any] = Field(description="document, heading, lines [first, last], hash, stale, open, ...")
    code_examples: list[CodeBlock] | None = None
    explain: dict[str, Any] | None = None


class IndexLag(Result):
    pending_chunks: int
    oldest_seconds: int


class SearchResult(Result):
    results: list[SearchHit]
    total_results: int
    search_time_ms: int
    mode: str
    degraded: bool = Field(description="True: not everything that was asked for could be done; `reason` says what.")
    reason: str
    reranker: str | None = Field(description="`model`, or `fallback` where the model could not be used.")
    index_lag: IndexLag


class ExampleFound(Result):
    code: str
    language: str
    context: str
    source: str
    url: str
    symbols: list[str]
    is_valid: bool | None
    metadata: dict[str, Any]


class CodeExampleResult(Result):
    examples: list[ExampleFound]
    degraded: bool
    reason: str


class SourceItem(Result):
    id: str
    title: str
    type: str
    url: str
    tags: list[str]
    chunk_count: int
    last_updated: str
    status: str
    priority: int
    document_count: int
    failed_documents: int
    pending_chunks: int = Field(description="Chunks that only keywords find until their vectors are made.")
    progress: float | None = Field(description="0 to 1 while it is being read.")


class SourceList(Result):
    sources: list[SourceItem]
    total: int
    index_lag: IndexLag


class DocumentItem(Result):
    id: str
    path: str
    title: str
    status: str
    error: str


class SourceInfo(Result):
    id: str
    title: str
    description: str
    type: str
    url: str
    tags: list[str]
    priority: int
    chunk_count: int
    created_at: str
    updated_at: str
    metadata: dict[str, Any]
    status: str
    error: str
    document_count: int
    failed_documents: int
    code_example_count: int
    pending_chunks: int
    progress: float | None
    last_checked: str | None
    documents: list[DocumentItem] = Field(description="The first 20, those that could not be read first.")


class SourceAdded(Result):
    source_id: str
    status: str


def progress(source: Source) -> float | None:
    if source.status != Source.Status.INDEXING:
        return None
    return round(source.run_done / source.run_total, 3) if source.run_total else 0.0


def source_info(source: Source) -> SourceInfo:
    rows = selectors.documents(source_id=source.pk).order_by("-status", "path")
    failed = list(rows.filter(status="error")[:SHOWN_DOCUMENTS])
    shown = failed + list(rows.exclude(status="error")[: SHOWN_DOCUMENTS - len(failed)])
    return SourceInfo(
        id=source.public_id,
        title=source.title,
        description=source.description,
        type=source.type,
        url=source.url,
        tags=source.tags,
        priority=source.priority,
        chunk_count=source.chunk_count,
        created_at=source.created_at.isoformat(),
        updated_at=source.updated_at.isoformat(),
        metadata={**{k: v for k, v in source.metadata.items() if k != "files"}, "options": source.options},
        status=source.status,
        error=source.error,
        document_count=source.document_count,
        failed_documents=source.failed_count,
        code_example_count=source.example_count,
        pending_chunks=selectors.pending_chunks([source]).get(source.pk, 0),
        progress=progress(source),
        last_checked=source.checked_at.isoformat() if source.checked_at else None,
        documents=[
            DocumentItem(id=one.public_id, path=one.path, title=one.title, status=one.status, error=one.error)
            for one in shown
        ],
    )
