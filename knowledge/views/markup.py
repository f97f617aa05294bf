"""Text of documents as HTML that can do nothing: rendered, with the words somebody looked for marked."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urljoin, urlsplit

import nh3
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from devflow.fulltext import words_of

TAGS = {
    *("p", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong", "s", "hr"),
    *("br", "a", "table", "thead", "tbody", "tr", "th", "td", "mark", "span"),
}
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)")
_ENDING = re.compile(r"(?:ing|ed|es|s|ly|e)$")


@lru_cache(maxsize=64)
def looked_for(query: str) -> re.Pattern[str] | None:
    """Matches the words of a query and what only differs from them at the end; None: there is nothing to mark."""
    stems = {_ENDING.sub("", word) if len(word) > 4 else word for word in words_of(query)}
    if not stems:
        return None
    longest = sorted(stems, key=lambda stem: (-len(stem), stem))
    stem = "|".join(map(re.escape, longest))
    return re.compile(rf"(?<![^\W_])(?:{stem})[^\W_]{{0,4}}(?![^\W_])", re.IGNORECASE)


def marked(text: str, pattern: re.Pattern[str] | None) -> SafeString:
    """Plain text with what `pattern` matches marked."""
    if pattern is None:
        return escape(text)
    parts, end = [], 0
    for match in pattern.finditer(text):
        parts += [escape(text[end : match.start()]), f"<mark>{escape(match[0])}</mark>"]
        end = match.end()
    return mark_safe("".join([*parts, escape(text[end:])]))  # noqa: S308  # every part is escaped


def rendered(
    text: str, *, base: str = "", level: int = 2, pattern: re.Pattern[str] | None = None, is_excerpt: bool = False
) -> SafeString:
    """Markdown as HTML. `base`: the address its relative links are read against; without one they are no links.

    `level` is that of its first headings. An excerpt's headings are bold words: it has no place in an outline.
    """
    env = {"pattern": pattern, "level": level, "last": level - 1, "is_excerpt": is_excerpt}
    clean = nh3.clean(
        _markdown.render(text, env),
        tags=TAGS,
        attributes={"a": {"href"}, "code": {"class"}},
        attribute_filter=_links(base),
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    return mark_safe(clean)  # noqa: S308  # cleaned by nh3 just above


def _links(base: str) -> Callable[[str, str, str], str | None]:
    def keep(tag: str, name: str, value: str) -> str | None:
        if tag == "a" and name == "href":
            found = urljoin(base, value) if base else value
            return found if urlsplit(found).scheme in ("http", "https", "mailto") else None
        return value

    return keep


def _text(self: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    return marked(tokens[place].content, env.get("pattern"))


def _code(self: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    return f"<code>{marked(tokens[place].content, env.get('pattern'))}</code>"


def _image(self: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    return escape(self.renderInlineAsText(tokens[place].children or [], options, env))


def _opened(self: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    if env["is_excerpt"]:
        return "<p><strong>"
    wanted = int(tokens[place].tag[1:]) + env["level"] - 1
    env["last"] = min(wanted, env["last"] + 1, 6)  # an outline leaves out no level
    return f"<h{env['last']}>"


def _closed(self: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    return "</strong></p>" if env["is_excerpt"] else f"</h{env['last']}>"


_markdown = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
for _name, _rule in {
    "text": _text,
    "code_inline": _code,
    "image": _image,
    "heading_open": _opened,
    "heading_close": _closed,
}.items():
    _markdown.add_render_rule(_name, _rule)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of Markdown, or the code of a fence with its language."""

    text: str
    is_code: bool = False
    language: str = ""


def parts_of(text: str) -> list[Part]:
    """Markdown with its fences taken apart."""
    parts: list[Part] = []
    lines: list[str] = []
    fence, language = "", ""

    def close(is_code: bool) -> None:
        if any(line.strip() for line in lines):
            parts.append(Part("\n".join(lines).strip("\n"), is_code, language))
        lines.clear()

    for line in text.split("\n"):
        match = _FENCE.match(line)
        if fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            close(True)
            fence, language = "", ""
        elif match and not fence:
            close(False)
            fence, language = match[1], match[2]
        else:
            lines.append(line)
    close(bool(fence))
    return parts


def fence_before(lines: Sequence[str]) -> str:
    """The line that opened a fence which is still open after these lines; empty: none is."""
    opened = fence = ""
    for line in lines:
        match = _FENCE.match(line)
        if fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            opened = fence = ""
        elif match and not fence:
            opened, fence = line, match[1]
    return opened
