"""Where a chunk comes from, so that anybody can open it at the right lines and see whether it still holds."""

from pathlib import Path
from typing import Any

from devflow import config, serving
from knowledge.models import Chunk, CodeExample, Document, Source


def base_url() -> str:
    """Where people open this server, without a slash at the end."""
    conf = config.current()
    host = serving.loopback_of(conf.mcp_gateway.host)
    own = f"http://[{host}]" if ":" in host else f"http://{host}"
    return conf.public_url.rstrip("/") or f"{own}:{conf.mcp_gateway.port}"


def opens(document_id: int, first: int, last: int) -> str:
    """The page that shows these lines of a document."""
    return f"/knowledge/documents/{document_id}/#L{first}-L{last}"


def url(chunk: Chunk | CodeExample) -> str:
    """The web page it was read from; else where its lines open here."""
    if chunk.source.type == Source.Type.WEB:
        return chunk.document.path
    return base_url() + opens(chunk.document_id, chunk.start_line, chunk.end_line)


def is_stale(document: Document, source: Source) -> bool:
    """Whether the original is known to have changed since: a file's time or size differs, or it can no longer be
    read."""
    if document.status == Document.Status.ERROR:
        return True
    if not source.is_local or not document.modified:
        return False
    try:
        stat = (Path(source.url) / document.path).stat()
    except OSError:
        return True
    return f"{stat.st_mtime:.6f}:{stat.st_size}" != document.modified


def metadata(chunk: Chunk) -> dict[str, Any]:
    document, source = chunk.document, chunk.source
    page = document.page_of(chunk.start_line)
    return {
        "document": document.path,
        "heading": chunk.heading,
        "lines": [chunk.start_line, chunk.end_line],
        "hash": chunk.hash,
        "stale": is_stale(document, source),
        "title": document.title,
        "document_id": document.public_id,
        "source_id": source.public_id,
        "source_type": source.type,
        "tags": source.tags,
        "open": opens(chunk.document_id, chunk.start_line, chunk.end_line),
        "resource": f"devflow://document/{document.public_id}#L{chunk.start_line}-L{chunk.end_line}",
        "has_code": chunk.has_code,
        "languages": chunk.languages,
        **({"page": page} if page else {}),
    }


def example(found: CodeExample) -> dict[str, Any]:
    """A code example inside a search result."""
    return {
        "code": found.code,
        "language": found.language,
        "context": found.context,
        "lines": [found.start_line, found.end_line],
        "symbols": found.symbols,
        "is_valid": found.is_valid,
    }
