"""HTML to Markdown by its structure: the main part of the page, headings, lists, code, tables, API descriptions.

Page furniture (navigation, scripts, permalinks) is left out. Where a page has no structure to go by, trafilatura picks
its text. Depth is bounded before parsing: lexbor takes time quadratic in it.
"""

import re
from typing import TYPE_CHECKING

from knowledge.indexing.parsed import ParseError
from knowledge.indexing.parsers import html_writing, writing
from knowledge.indexing.parsers.wordsets import words

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode as Node

MAX_DEPTH = 2_000
_ROOTS = (
    "article.markdown-body",
    "[itemprop=articleBody]",
    "div.body",
    ".theme-doc-markdown",
    ".md-content article",
    "main article:only-of-type",
    "main",
    "[role=main]",
    "article:only-of-type",
    "#mw-content-text",
    "#main-content",
    "#content",
)
_ROOT_SHARE = 0.25
_LITTLE_TEXT = 200
_FALLBACK_SIZE = 2_000_000

_TAGS = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)")
# Tags that others close, or that have no end: an unclosed one is ordinary and nests nothing.
_UNCLOSED = words("""
    p li td th tr dt dd option optgroup thead tbody tfoot colgroup col br hr img input meta link source wbr area
    base embed track param html head body rp rt a b i em strong font small big tt u s strike code nobr
""")
_SITE = re.compile(r"\s+[|—–·»]\s+|\s+-\s+(?=[^-]*$)")


def to_markdown(text: str) -> tuple[str, str]:
    """Answer (title or "", Markdown). Raises `ParseError` for what nests too deep."""
    _refuse_deep(text)
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(text)
    titles = [writing.flat(node.text()) for node in tree.css("head title")[:1]]
    tree.strip_tags([*html_writing.DROPPED - {"head"}])
    body = tree.body
    if body is None:
        return "".join(titles), ""
    root = _root(body)
    if root is None and not body.css_first("h1,h2,h3,pre") and (found := _fallback(text)):
        return _page_title(titles), found
    title, written = html_writing.write(root or body)
    return title or _page_title(titles), written


def _refuse_deep(text: str) -> None:
    depth = 0
    for match in _TAGS.finditer(text):
        if match[2].lower() not in _UNCLOSED:
            depth = max(depth + (-1 if match[1] else 1), 0)
            if depth > MAX_DEPTH:
                raise ParseError(
                    f"The page nests more than {MAX_DEPTH:,} elements. Save it as text or PDF and add that."
                )


def _root(body: "Node") -> "Node | None":
    whole = len(body.text())
    for selector in _ROOTS:
        node = body.css_first(selector)
        if node is not None and len(node.text()) >= max(whole * _ROOT_SHARE, 1):
            return node
    return None


def _page_title(titles: list[str]) -> str:
    return _SITE.split(titles[0])[0] if titles else ""


def _fallback(text: str) -> str:
    if len(text) > _FALLBACK_SIZE:
        return ""
    import trafilatura

    found = trafilatura.extract(text, output_format="markdown", include_tables=True, include_links=False) or ""
    return found if len(found) >= _LITTLE_TEXT else ""
