"""What clients can read of the knowledge base: a source, a document or some of its lines."""

import re

from devflow.errors import invalid
from knowledge.selectors import sources as selectors
from knowledge.tools.results import source_info
from mcpbridge.tooling import Caller, resource

LISTED = 50


def _sources(caller: Caller) -> list[tuple[str, str]]:
    rows = selectors.sources(project_id=caller.project.id).values_list("pk", "title")[:LISTED]
    return [(f"source-{pk}", title) for pk, title in rows]


@resource(name="source", uri_template="devflow://source/{id}", listing=_sources, toolset="knowledge")
def source(caller: Caller, value: str) -> str:
    """A knowledge source with its state and its documents, as get_source_info shows it."""
    return source_info(selectors.source(project_id=caller.project.id, source_id=value)).model_dump_json()


_LINES = re.compile(r"L([1-9][0-9]{0,8})(?:-L?([1-9][0-9]{0,8}))?")


@resource(name="document", uri_template="devflow://document/{id}", mime_type="text/markdown", toolset="knowledge")
def document(caller: Caller, value: str) -> str:
    """A document as it was indexed; `#L10-L20` after the id gives these lines only, as search results cite them."""
    name, _, fragment = value.partition("#")
    found = selectors.document(project_id=caller.project.id, document_id=name)
    if not fragment:
        return found.text
    match = _LINES.fullmatch(fragment)
    lines = found.text.split("\n")
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < first <= min(last, len(lines)):
        raise invalid(f"{fragment[:50]} are no lines of this document; it has {len(lines)}.", uri="such as #L10-L20")
    return "\n".join(lines[first - 1 : last])
