"""Jupyter notebooks: Markdown cells, code cells as fences in the kernel's language, short text outputs."""

import json
from typing import Any

from knowledge.indexing.parsed import ParseError
from knowledge.indexing.parsers import encodings, languages, markdown, writing

MAX_OUTPUT_LINES = 20
MAX_OUTPUT = 2_000


def to_markdown(text: str) -> tuple[str, str]:
    """Answer (title or "", Markdown). Raises `ParseError` for what is no notebook."""
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        raise ParseError(
            "This is not a Jupyter notebook: its JSON cannot be read. Save it again from Jupyter."
        ) from None
    cells = _cells(notebook)
    language = languages.canonical(_language(notebook))
    blocks = [block for cell in cells if isinstance(cell, dict) for block in _blocks(cell, language)]
    title, body = markdown.normalise("\n".join(writing.join(blocks)))
    return title, body


def _cells(notebook: Any) -> list[Any]:
    if isinstance(notebook, dict):
        sheets = notebook.get("worksheets")
        cells = notebook.get("cells", sheets[0].get("cells") if isinstance(sheets, list) and sheets else None)
        if isinstance(cells, list):
            return cells
    raise ParseError("This is not a Jupyter notebook: it has no cells. Save it again from Jupyter.")


def _language(notebook: dict[str, Any]) -> str:
    metadata = notebook.get("metadata")
    for part, key in (("language_info", "name"), ("kernelspec", "language")):
        found = metadata.get(part) if isinstance(metadata, dict) else None
        if isinstance(found, dict) and isinstance(found.get(key), str):
            return str(found[key])
    return "python"


def _blocks(cell: dict[str, Any], language: str) -> list[writing.Lines]:
    source = encodings.clean(_text(cell.get("source", cell.get("input", ""))))
    if cell.get("cell_type") == "markdown":
        return [source.strip("\n").split("\n")] if source.strip() else []
    if cell.get("cell_type") != "code":
        return []
    outputs = cell.get("outputs")
    shown = [_output(output) for output in outputs if isinstance(output, dict)] if isinstance(outputs, list) else []
    printed = encodings.clean("\n".join(filter(None, shown)))[:MAX_OUTPUT].split("\n")
    if len(printed) > MAX_OUTPUT_LINES:
        printed = [*printed[:MAX_OUTPUT_LINES], "..."]
    return [writing.fence(source, language), writing.fence("\n".join(printed), "text")]


def _output(output: dict[str, Any]) -> str:
    if output.get("output_type") in ("error", "pyerr"):
        return f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"
    data = output.get("data")
    return _text(output.get("text") or (data.get("text/plain") if isinstance(data, dict) else "")).rstrip("\n")


def _text(source: Any) -> str:
    if isinstance(source, list):
        return "".join(part for part in source if isinstance(part, str))
    return source if isinstance(source, str) else ""
