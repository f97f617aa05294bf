"""Markdown and plain text: the title, and the front matter off."""

import re

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)\n(.{0,20000}?)\n\1\n", re.DOTALL)
_TITLE = re.compile(r"^title\s*[:=]\s*(\S.*)$", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ATX = re.compile(r" {0,3}#{1,6}[ \t]+(\S.*)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-{3,})$")
_HTML_TITLE = re.compile(r"<h1\b[^<>]{0,500}>(.{1,500}?)</h1>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]{0,500}>")
_PROSE = re.compile(r"[^\W_]")
_SEARCHED = 100_000
_MARKS = re.compile(r"!\[[^\[\]\n]{0,500}\]\([^()\n]{0,500}\)|`|\\(?=[^\w\s])")
_STARRED = re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*\n]{1,300})(?<=\S)\1(?![\w*])")
_LINK = re.compile(r"\[([^\[\]\n]{0,500})\]\([^()\n]{0,500}\)")


def normalise(text: str) -> tuple[str, str]:
    """Answer (title or "", text without front matter)."""
    text = text.lstrip("\n")
    title = ""
    if front := _FRONT_MATTER.match(text):
        if found := _TITLE.search(front[2]):
            title = found[1].strip().strip("\"'")
        text = text[front.end() :].lstrip("\n")
    return title or _first_heading(text[:_SEARCHED]), text


def plain(text: str) -> str:
    """Answer a heading or a sentence without its Markdown marks: code ticks, stars, links, images."""
    text = _MARKS.sub("", text)
    return " ".join(_STARRED.sub(r"\2", _LINK.sub(r"\1", text)).split())


def _first_heading(text: str) -> str:
    fence, above = "", ""
    for line in text.split("\n"):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
        elif not fence:
            heading = _ATX.match(line)
            if heading and (title := plain(heading[1].rstrip("# "))):
                return title
            if _UNDERLINE.match(line) and _PROSE.search(above) and not above.startswith(("- ", "* ", ">", "|", "    ")):
                return plain(above)
        above = "" if fence else line
    if markup := _HTML_TITLE.search(text):
        return plain(_TAG.sub("", markup[1]))
    return ""
