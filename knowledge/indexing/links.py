"""The links of a page, of Markdown and of a sitemap: pure functions from text to URLs.

HTML is scanned for its few tags that matter, not parsed: a DOM takes quadratic time on nested tags (100,000 of them:
12 s), and a crawler meets every page before anybody has judged it.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from html import unescape
from typing import Final
from urllib.parse import urljoin

from devflow.addresses import MAX_URL

MAX_LINKS: Final = 5_000  # of one page
MAX_LOCATIONS: Final = 50_000  # of one sitemap, as its format says
_MAX_NESTING: Final = 20  # elements of a sitemap; the format has three
_MAX_TEXT: Final = 5_000_000  # characters that are looked at

# Every repetition is possessive and bounded or stops at `<`, so that no text takes more than linear time.
_OPENING = re.compile(
    r"<(?:(?P<skip>!--|(?:script|style|template|textarea)\b)"
    r"|(?P<tag>a|base|link|meta)(?P<attributes>\s(?:[^<>\"']{1,2000}+|\"[^\"]{0,2000}+\"|'[^']{0,2000}+'){0,80}+)>)",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(r"([a-zA-Z-]{1,20}+)\s{0,9}+=\s{0,9}+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s\"'<>]++))")
_MARKDOWN_LINK = re.compile(r"\]\(\s{0,9}+<?([^\s()<>]{1,2000}+)|<(https?://[^\s<>]{1,2000}+)>")


@dataclass(slots=True)
class Links:
    """What a page says about others and itself: absolute URLs in order, and whether it may be kept and followed."""

    urls: list[str] = field(default_factory=list)
    canonical: str = ""
    is_indexable: bool = True
    is_followable: bool = True

    def obey(self, robots: str) -> None:
        """Apply the content of a robots meta tag or an X-Robots-Tag header."""
        words = set(re.findall(r"[a-z]+", robots.lower()[:1000]))
        self.is_indexable &= not words & {"noindex", "none"}
        self.is_followable &= not words & {"nofollow", "none"}


def decode(data: bytes) -> str:
    """Text good enough to find links in: they are ASCII in whatever the page declares, save for UTF-16."""
    return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", "replace")[:_MAX_TEXT]


def in_html(text: str, url: str) -> Links:
    """The links of a page at `url`: its anchors without rel=nofollow, `<base>` and the robots meta tags obeyed."""
    links, base, position = Links(), url, 0
    while len(links.urls) < MAX_LINKS and (match := _OPENING.search(text, position)):
        position = match.end()
        if skipped := match["skip"]:
            closing = re.compile("-->" if skipped == "!--" else rf"</{skipped}", re.IGNORECASE).search(text, position)
            if closing is None:
                break
            position = closing.end()
            continue
        attributes = _attributes(match["attributes"])
        tag, href = match["tag"].lower(), attributes.get("href", "").strip()
        relation = attributes.get("rel", "").lower().split()
        if tag == "meta":
            if attributes.get("name", "").lower() in ("robots", "devflow"):
                links.obey(attributes.get("content", ""))
        elif not href:
            continue
        elif tag == "base":
            if base == url:  # the first one counts
                base = _joined(url, href) or base
        elif tag == "link":
            if "canonical" in relation:
                links.canonical = _joined(base, href)
        elif "nofollow" not in relation and (target := _joined(base, href)):
            links.urls.append(target)
    return links


def in_markdown(text: str, url: str) -> Links:
    """The inline links and autolinks of Markdown, as llms.txt has them."""
    links = Links()
    for match in _MARKDOWN_LINK.finditer(text):
        if target := _joined(url, match[1] or match[2]):
            links.urls.append(target)
        if len(links.urls) >= MAX_LINKS:
            break
    return links


def in_sitemap(data: bytes, url: str) -> tuple[list[str], list[str]] | None:
    """The pages and the further sitemaps a sitemap names, as far as it can be read; None if it is no sitemap."""
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import XMLParser

    sitemap = _Sitemap(url)
    with suppress(_Enough, ParseError, DefusedXmlException, ValueError, LookupError):
        XMLParser(target=sitemap, forbid_dtd=True).feed(data)
    return {"urlset": (sitemap.urls, []), "sitemapindex": ([], sitemap.urls)}.get(sitemap.root)


class _Enough(Exception):  # noqa: N818 - it ends the parsing, nothing is wrong
    pass


class _Sitemap:
    """A target for the XML parser that keeps the locations only, never a tree."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.root = ""
        self.urls: list[str] = []
        self._depth = 0
        self._text: str | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition("}")[2].lower()
        self.root = self.root or name
        self._depth += 1
        is_deep = self._depth > _MAX_NESTING
        if self.root not in ("urlset", "sitemapindex") or len(self.urls) >= MAX_LOCATIONS or is_deep:
            raise _Enough
        self._text = "" if name == "loc" else None

    def data(self, text: str) -> None:
        if self._text is not None and len(self._text) <= MAX_URL:
            self._text += text

    def end(self, tag: str) -> None:
        if self._text and (target := _joined(self.url, self._text.strip())):
            self.urls.append(target)
        self._text = None
        self._depth -= 1


def _attributes(text: str) -> dict[str, str]:
    # As in HTML, the first of several attributes with one name counts.
    return {
        match[1].lower(): unescape(match[2] or match[3] or match[4] or "")
        for match in reversed(list(_ATTRIBUTE.finditer(text)))
    }


def _joined(base: str, href: str) -> str:
    try:
        url = urljoin(base, href)
    except ValueError:
        return ""
    return url if url.startswith(("http://", "https://")) else ""
