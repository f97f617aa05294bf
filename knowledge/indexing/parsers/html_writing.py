"""The elements of a page as Markdown: headings, lists, code, tables, and API descriptions as Sphinx marks them up."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from knowledge.indexing.parsers import languages, writing
from knowledge.indexing.parsers.wordsets import words
from knowledge.indexing.parsers.writing import Lines

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode as Node

DROPPED = words("""
    script style noscript template nav svg iframe button input select textarea object canvas video audio map
    head link meta dialog
""")
_WALKED_DEPTH = 100
_LAYOUT_ROWS = 10  # a table with code or tables in it and no more rows than these is no table
_FURNITURE = re.compile(
    r"(?:^|\s)(?:headerlink|header-?anchor|anchor-?link|anchor|sphinxsidebar|toctree-wrapper|linenos?|linenodiv|gutter|"
    r"viewcode-link|breadcrumbs?|navbar|toc|table-of-contents|sidebar|edit-page|skip-link|sr-only|visually-hidden|"
    r"mw-editsection|related|copybtn|copy-button)(?:\s|$)"
)
_BLOCKS = words("""
    address article aside blockquote body center dd details div dl dt fieldset figcaption figure footer form h1
    h2 h3 h4 h5 h6 header hr legend li main ol p pre section summary table tbody td tfoot th thead tr ul
""")
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_NEVER_FURNITURE = frozenset({"main", "body", *_HEADINGS})
_CODE = frozenset({"code", "kbd", "samp", "tt"})
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*"}
_WRAPPERS = frozenset({"a", "span", "font", "label", "ins", "del", "center", "mark", "picture"})
_BLOCK_SELECTOR = "p,div,ul,ol,dl,table,pre,h1,h2,h3,h4,h5,h6,blockquote,section,article"
_LANGUAGE_CLASS = re.compile(
    r"(?:^|\s)(?:highlight-source|highlight-text|highlight|language|lang|brush:|sourceCode)[- ]\s*([\w+#-]+)"
)
_PERMALINKS = frozenset({"", "¶", "#", "§", "\U0001f517"})


def write(root: "Node") -> tuple[str, str]:
    """Answer (the first heading or "", Markdown) of an element and what is in it."""
    walker = _Walker()
    lines = walker.blocks(root)
    return walker.title, "\n".join(lines)


class _Walker:
    def __init__(self) -> None:
        self.title = ""
        self.level = 0  # of the heading above the place where the walk is
        self.depth = 0

    def blocks(self, parent: "Node", *, headings: bool = True) -> Lines:
        """Render what stands in an element. Without `headings`, those in it are set in bold: lists cannot hold any."""
        if self.depth >= _WALKED_DEPTH:
            return writing.paragraph(writing.flat(parent.text(separator=" ")))
        self.depth += 1
        parts: list[Lines] = []
        text: list[str] = []
        within, described = "", False
        for is_block, node in self._children(parent):
            if not is_block:
                text.append(self.inline(node))
                continue
            parts.append(_paragraphs("".join(text)))
            text.clear()
            lines = self.block(node, headings=headings)
            if node.tag in _HEADINGS and headings:
                within, described = (lines[0].lstrip("# ") if lines else within), False
            elif lines and described and within and not _is_described(node):
                parts.append(writing.heading(self.level, within + writing.CONTINUED))
                described = False
            described = described or (headings and _is_described(node))
            parts.append(lines)
        parts.append(_paragraphs("".join(text)))
        self.depth -= 1
        return writing.join(parts)

    def _children(self, parent: "Node") -> Iterator[tuple[bool, "Node"]]:
        """Yield the children that are read, each with whether it is a block; those of wrappers are lifted out."""
        for node in parent.iter(include_text=True):
            tag = node.tag or ""
            if tag == "-text":
                yield False, node
            elif tag.startswith("-") or _is_furniture(node):
                continue
            elif tag in _BLOCKS:
                yield True, node
            else:
                is_wrapper = (tag in _WRAPPERS or "-" in tag) and node.css_first(_BLOCK_SELECTOR) is not None
                yield is_wrapper, node

    def block(self, node: "Node", *, headings: bool) -> Lines:
        tag = node.tag or ""
        if tag in _HEADINGS:
            return self._heading(node, headings=headings)
        if tag == "pre":
            return self._code(node)
        if tag in ("ul", "ol"):
            return self._list(node)
        if tag == "dl":
            return self._definitions(node, headings=headings)
        if tag == "table":
            return self._table(node, headings=headings)
        if tag == "blockquote":
            return [f"> {line}".rstrip() for line in self.blocks(node, headings=False)]
        if tag == "hr":
            return []
        if tag in ("summary", "legend") or "admonition-title" in (node.attributes.get("class") or ""):
            title = writing.flat(self.inline(node))
            return [f"**{title}**"] if title and "**" not in title else writing.paragraph(title)
        return self.blocks(node, headings=headings)

    def _heading(self, node: "Node", *, headings: bool) -> Lines:
        title = writing.flat(self.inline(node)).rstrip("¶").strip()
        if not title:
            return []
        if not headings:
            return [f"**{title}**"]
        if not self.title and node.tag in ("h1", "h2"):
            self.title = re.sub(r"[`*]", "", title)
        self.level = _HEADINGS[node.tag or "h1"]
        return writing.heading(self.level, title)

    def _code(self, node: "Node") -> Lines:
        text = _verbatim(node)
        language = _language(node)
        if languages.canonical(language) in ("", "python") and language not in ("text", "none"):
            language = languages.guess(text) if language in ("", "default") else language
        if language in ("python", "python3", "py") and text.lstrip().startswith(">>> "):
            language = "pycon"
        return writing.fence(text, "" if language in ("text", "none", "plaintext") else language)

    def _list(self, node: "Node") -> Lines:
        items = (self.blocks(entry, headings=False) for entry in node.iter() if entry.tag == "li")
        if node.tag == "ul":
            return writing.listing(items)
        start = (node.attributes.get("start") or "1").strip()
        return writing.listing(items, start=int(start) if re.fullmatch(r"\d{1,6}", start) else 1)

    def _definitions(self, node: "Node", *, headings: bool) -> Lines:
        described, glossary = _is_described(node), "glossary" in (node.attributes.get("class") or "")
        level = self.level
        terms: list[Node] = []
        parts: list[Lines] = []
        for entry in self._entries(node):
            if entry.tag == "dt":
                terms.append(entry)
                continue
            if headings and (described or glossary) and terms:
                parts += self._description(terms, entry, level + 1, described=described)
            else:
                parts.append(
                    _term([writing.flat(self.inline(term)) for term in terms], self.blocks(entry, headings=False))
                )
            terms = []
        if terms:
            parts.append(_term([writing.flat(self.inline(term)) for term in terms], []))
        self.level = level
        return writing.join(parts)

    def _entries(self, node: "Node") -> Iterator["Node"]:
        for child in node.iter():
            if child.tag == "div":  # HTML lets pairs stand in one
                yield from (entry for entry in child.iter() if entry.tag in ("dt", "dd"))
            elif child.tag in ("dt", "dd"):
                yield child

    def _description(self, terms: list["Node"], body: "Node", level: int, *, described: bool) -> list[Lines]:
        """A documented name (or a glossary's term) as a heading, its signatures and its body below."""
        signatures = [writing.flat(re.sub(r"[`*]|\[source\]|¶", "", self.inline(term))) for term in terms]
        if level > writing.MAX_HEADING:
            return [_term([writing.code(text) for text in signatures], self.blocks(body, headings=False))]
        name = _name(terms[0], signatures[0]) if described else ", ".join(signatures)
        self.level = level
        shown = [writing.code(text) for text in signatures] if described and signatures != [name] else []
        lines = self.blocks(body)
        return [writing.heading(level, writing.code(name) if described else name), shown, lines]

    def _table(self, node: "Node", *, headings: bool) -> Lines:
        rows = [[cell for cell in row.iter() if cell.tag in ("td", "th")] for row in _rows(node)]
        if len(rows) <= _LAYOUT_ROWS and node.css_first("pre, table table, h1, h2, h3, h4") is not None:
            cells = (cell for row in rows for cell in row if not _is_furniture(cell))
            return writing.join(self.blocks(cell, headings=headings) for cell in cells)
        caption = node.css_first("caption")
        title = writing.paragraph(self.inline(caption)) if caption is not None else []
        texts = [[" ".join(self.blocks(cell, headings=False)) for cell in row] for row in rows]
        return writing.join([title, writing.table(texts)])

    def inline(self, node: "Node") -> str:
        tag = node.tag or ""
        if tag == "-text":
            return re.sub(r"\s+", " ", node.text_content or "")
        if tag.startswith("-") or _is_furniture(node):
            return ""
        if tag == "br":
            return "\n"
        if tag == "img":
            alt = writing.flat(node.attributes.get("alt") or "")
            return f"[Image: {alt}]" if alt else ""
        if tag in _CODE or self.depth >= _WALKED_DEPTH:
            text = node.text(separator="")
            return writing.code(text) if tag in _CODE else writing.flat(text)
        self.depth += 1
        text = "".join(self.inline(child) for child in node.iter(include_text=True))
        self.depth -= 1
        if tag == "a" and text.strip() in _PERMALINKS:
            return ""
        mark = _MARKS.get(tag, "")
        if mark and text.strip() and "*" not in text and "`" not in text:
            return f"{mark}{text.strip()}{mark}" if text == text.strip() else f" {mark}{text.strip()}{mark} "
        return text if tag not in _BLOCKS else f" {text} "


def _is_furniture(node: "Node") -> bool:
    if node.tag in DROPPED:
        return True
    attributes = node.attributes
    if not attributes:
        return False
    role = attributes.get("role")
    if role in ("navigation", "search", "banner", "contentinfo") or "hidden" in attributes:
        return True
    classes = attributes.get("class")
    return bool(classes) and node.tag not in _NEVER_FURNITURE and _FURNITURE.search(classes or "") is not None


def _is_described(node: "Node") -> bool:
    """Tell whether a list describes names of code, as Sphinx marks it up."""
    if node.tag != "dl":
        return False
    first = next((child for child in node.iter() if child.tag == "dt"), None)
    return first is not None and bool({"sig", "sig-object"} & set((first.attributes.get("class") or "").split()))


def _rows(table: "Node") -> Iterator["Node"]:
    """Yield the rows of a table, not those of tables in it."""
    for child in table.iter():
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from (row for row in child.iter() if row.tag == "tr")


def _name(term: "Node", signature: str) -> str:
    """The name that a signature documents: the anchor where it is a dotted path, else the name in the markup."""
    marked = term.css_first(".sig-name, .descname")
    name = writing.flat(marked.text()) if marked is not None else signature
    anchor = term.attributes.get("id") or ""
    if re.fullmatch(r"[\w.]+", anchor) and anchor.endswith(name) and not anchor.startswith("c."):
        return anchor
    return name[:80]


def _language(node: "Node") -> str:
    """The language that a `pre`, the `code` in it, or an element round it names."""
    inner = node.css_first("code")
    place: Node | None = node
    for element in [inner, node, *(place := place and place.parent for _ in range(3))]:
        if element is None or element.tag in ("body", "main", "article"):
            continue
        attributes = element.attributes
        named = attributes.get("data-lang") or attributes.get("data-language")
        if named:
            return named.strip().lower()
        if found := _LANGUAGE_CLASS.search(attributes.get("class") or ""):
            return found[1].lower()
    return ""


def _verbatim(node: "Node") -> str:
    parts: list[str] = []
    for child in node.traverse(include_text=True):
        if child.tag == "-text":
            parts.append(child.text_content or "")
        elif child.tag == "br":
            parts.append("\n")
    return "".join(parts)


def _paragraphs(text: str) -> Lines:
    """Inline text as a paragraph; a `<br>` starts a line."""
    return [line for part in text.split("\n") for line in writing.paragraph(writing.flat(part))]


def _term(terms: list[str], body: Lines) -> Lines:
    lead = ", ".join(term if "`" in term or "**" in term else f"**{term}**" for term in terms if term)
    if not body or not lead:
        return writing.item("-", [lead] if lead else body)
    if body[0].startswith(("`" * 3, "|", "- ", "#")):
        return writing.item("-", [f"{lead}:", "", *body])
    return writing.item("-", [f"{lead}: {body[0]}", *body[1:]])
