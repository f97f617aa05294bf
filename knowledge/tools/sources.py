"""Tools over sources: list, show, add."""

from typing import Annotated

from pydantic import Field

from devflow.vectors import index
from knowledge.selectors import sources as selectors
from knowledge.services import answers, sources
from knowledge.tools.results import (
    IndexLag,
    SourceAdded,
    SourceId,
    SourceInfo,
    SourceItem,
    SourceList,
    SourceStatus,
    SourceType,
    progress,
    source_info,
)
from mcpbridge.tooling import MAX_TEXT, Caller, Effect, Intent, JsonObject, Limit, Offset, ShortText, Tags, tool


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="knowledge")
def list_knowledge_sources(
    caller: Caller,
    *,
    tags: Tags | None = None,
    status: SourceStatus | None = None,
    limit: Limit = 200,
    offset: Offset = 0,
) -> SourceList:
    """List what the knowledge base is made from, with how much of it is indexed and how far the index is behind.

    Args:
        tags: Only sources that carry all of these tags.
        status: Only sources in this state.
        limit: How many, 1 to 200.
        offset: How many to skip.
    """
    rows = selectors.sources(project_id=caller.project.id, tags=tags or (), status=status)
    page = list(rows[offset : offset + limit])
    waiting = selectors.pending_chunks(page)
    return SourceList(
        sources=[
            SourceItem(
                id=source.public_id,
                title=source.title,
                type=source.type,
                url=source.url,
                tags=source.tags,
                chunk_count=source.chunk_count,
                last_updated=source.updated_at.isoformat(),
                status=source.status,
                priority=source.priority,
                document_count=source.document_count,
                failed_documents=source.failed_count,
                pending_chunks=waiting.get(source.pk, 0),
                progress=progress(source),
            )
            for source in page
        ],
        total=rows.count(),
        index_lag=IndexLag(**answers.lag_of(index.lag(selectors.KIND))),
    )


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="knowledge")
def get_source_info(caller: Caller, *, source_id: SourceId) -> SourceInfo:
    """Show one source: what it is, how it is doing, and the documents that could not be read.

    Args:
        source_id: A source's id, as list_knowledge_sources gives it.
    """
    return source_info(selectors.source(project_id=caller.project.id, source_id=source_id))


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="knowledge")
def ingest_source(
    caller: Caller,
    *,
    title: ShortText,
    type: SourceType,  # the contract's name
    path: Annotated[str, Field(max_length=2000, pattern=r"^[^\x00]*$")] | None = None,
    url: Annotated[str, Field(max_length=2000, pattern=r"^[^\x00]*$")] | None = None,
    content: Annotated[str, Field(max_length=MAX_TEXT, pattern=r"^[^\x00]*$")] | None = None,
    tags: Tags = [],  # noqa: B006  # pydantic copies defaults
    priority: Annotated[int, Field(ge=1, le=10)] = 5,
    description: Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")] = "",
    options: JsonObject | None = None,
) -> SourceAdded:
    """Add a source to the project's knowledge base. It is read in the background; get_source_info tells how far it is.

    manual takes content; upload takes content and a file name in path; directory and git take a path inside the
    directories the server may read; web takes a url, whose pages, sitemap and llms.txt are followed.

    Args:
        title: What people will see as the source of an answer.
        type: upload, directory, git, web or manual.
        path: Of the directory or checkout; for an upload its file name, which says the format.
        url: Of a site or page, http or https.
        content: The text itself, at most 100,000 characters.
        tags: For filters.
        priority: 1 to 10; higher ones rank higher among equals.
        description: What it is good for.
        options: For web: max_depth, max_pages, same_path, include and exclude (lists of patterns).
    """
    source = sources.create(
        project_id=caller.project.id,
        actor=caller.writer("ingest_source"),
        title=title,
        type=type,
        path=path or "",
        url=url or "",
        content=content or "",
        description=description,
        tags=tags,
        priority=priority,
        options=options,
    )
    return SourceAdded(source_id=source.public_id, status=source.status)
