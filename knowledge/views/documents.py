"""One document: its lines as citations count them, as it reads, its passages and its code."""

import re
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from devflow.shell import may_write, page, person_of, projects_of
from knowledge.models import Document, Source
from knowledge.selectors import sources as selectors
from knowledge.services import citations, sources
from knowledge.views import markup
from knowledge.views.access import document_of, refused

LINES = 2000
PAGE = 50
VIEWS = {"lines": "Lines", "read": "Read", "passages": "Passages", "code": "Code examples"}


@dataclass(frozen=True, slots=True)
class Line:
    """`page`: the page of the original that begins here."""

    number: int
    text: str
    page: int | None


@dataclass(frozen=True, slots=True)
class Window:
    """The lines shown at once, of `count`."""

    page: int
    pages: int
    first: int
    last: int
    count: int

    @classmethod
    def at(cls, request: HttpRequest, count: int) -> "Window":
        """The page of `?line=` or `?page=`; the first for what makes no sense, the last for what lies behind it."""
        line, number = (_number(request.GET.get(name, "")) for name in ("line", "page"))
        pages = max(1, -(-count // LINES))
        here = min(pages, max(1, (line - 1) // LINES + 1 if line else number or 1))
        return cls(here, pages, (here - 1) * LINES + 1, min(here * LINES, count), count)


def _number(text: str) -> int:
    match = re.fullmatch(r"L?([0-9]{1,9})(?:-L?[0-9]{1,9})?", text, re.ASCII)
    return int(match[1]) if match else 0


@page
@require_safe
def document(request: HttpRequest, number: int) -> HttpResponse:
    view = request.GET.get("view", "")
    view = view if view in VIEWS else "lines"
    found, project = document_of(request, number, with_text=view in ("lines", "read"))
    context: dict[str, Any] = {
        "project": project,
        "projects": projects_of(request),
        "document": found,
        "source": found.source,
        "view": view,
        "views": [(name, words) for name, words in VIEWS.items() if not (name == "read" and found.language)],
        "is_stale": citations.is_stale(found, found.source),
        "may_write": may_write(request, project.id),
        "here": "knowledge",
    }
    if view in ("lines", "read"):
        context |= _text(request, found, is_read=view == "read")
    elif view == "passages":
        context |= _passages(request, found)
    else:
        rows = Paginator(found.examples.order_by("start_line", "pk"), PAGE).get_page(request.GET.get("page"))
        context |= {"rows": rows}
    return render(request, "knowledge/document.html", context)


def _text(request: HttpRequest, found: Document, *, is_read: bool) -> dict[str, Any]:
    lines = found.text.split("\n") if found.text else []
    if len(lines) > 1 and not lines[-1]:
        lines.pop()  # what follows the last newline is no line
    window = Window.at(request, len(lines))
    part = lines[window.first - 1 : window.last]
    if is_read:
        opened = markup.fence_before(lines[: window.first - 1])
        text = "\n".join([opened, *part] if opened else part)
        base = found.path if found.source.type == Source.Type.WEB else ""
        return {"window": window, "html": markup.rendered(text, base=base)}
    starts = {first: place for place, first in enumerate(found.pages, 1)}
    numbered = enumerate(part, window.first)
    return {"window": window, "lines": [Line(number, text, starts.get(number)) for number, text in numbered]}


def _passages(request: HttpRequest, found: Document) -> dict[str, Any]:
    rows = Paginator(found.chunks.defer("keywords"), PAGE).get_page(request.GET.get("page"))
    points = [chunk.point for chunk in rows]
    waiting = set(selectors.pending().filter(point__in=points).values_list("point", flat=True))
    return {"rows": rows, "passages": [(chunk, chunk.point in waiting) for chunk in rows]}


@page
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, number: int) -> HttpResponse:
    """Ask, then delete one document."""
    found, project = document_of(request, number)
    if refusal := refused(request, project):
        return refusal
    if request.method == "POST":
        source = found.source
        sources.delete_document(document=found, actor=person_of(request))
        messages.success(request, f"{found} was deleted.")
        return redirect("source", source.pk)
    context = {
        "project": project,
        "projects": projects_of(request),
        "document": found,
        "source": found.source,
        "title": str(found),
        "back": reverse("document", args=[found.pk]),
        "here": "knowledge",
    }
    return render(request, "knowledge/delete.html", context)
