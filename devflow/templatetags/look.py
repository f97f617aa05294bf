"""What templates need beyond Django's own: Markdown made safe, times as people say them, initials."""

from datetime import datetime, timedelta

import nh3
from django import template
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

register = template.Library()

_markdown = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
_TAGS = nh3.ALLOWED_TAGS - {"img", "map", "area", "bdo", "style", "script"}


@register.filter
def markdown(text: str) -> SafeString:
    """Text an agent or a person wrote, as HTML that can do nothing."""
    clean = nh3.clean(
        _markdown.render(text),
        tags=_TAGS,
        attributes={"a": {"href"}, "td": set(), "th": set(), "code": {"class"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    boxed = clean.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    return mark_safe(boxed)  # noqa: S308  # cleaned by nh3 just above


@register.filter
def ago(at: datetime | None) -> str:
    """`just now`, `4 min ago`, `3 h ago`, `2 d ago`; the template gives the absolute time on hover."""
    if at is None:
        return "never"
    passed = timezone.now() - at
    if passed < timedelta(minutes=1):
        return "just now"
    if passed < timedelta(hours=1):
        return f"{passed // timedelta(minutes=1)} min ago"
    if passed < timedelta(days=2):
        return f"{passed // timedelta(hours=1)} h ago"
    return f"{passed.days} d ago"


@register.filter
def left(until: datetime | None) -> str:
    """`18 min`, `3 h`, or nothing."""
    if until is None:
        return ""
    rest = max(timedelta(0), until - timezone.now())
    return f"{rest // timedelta(hours=1)} h" if rest >= timedelta(hours=2) else f"{rest // timedelta(minutes=1)} min"


@register.filter
def initials(name: str) -> str:
    """Two letters for a round badge: the first of the first two words, such as `BB` for builder-ben."""
    words = [word for word in name.replace("_", "-").replace(" ", "-").split("-") if word]
    return "".join(word[0] for word in words[:2]).upper() or "?"


@register.filter
def words(value: str) -> str:
    """`in_progress` as people write it."""
    return value.replace("_", " ")


@register.filter
def grouped(number: int | None) -> str:
    """`12,345`."""
    return f"{number or 0:,}"


@register.filter
def public_id(pk: int | None) -> str:
    return "" if pk is None else f"task-{pk}"
