"""The knowledge page: a search box, what it found, and the sources it looked into."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, get_args
from urllib.parse import urlencode

from django.core.cache import cache
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from devflow.errors import DevFlowError
from devflow.shell import may_write, page, project_of
from devflow.vectors.base import DENSE, SYMBOLS, TEXT
from knowledge.models import CodeExample
from knowledge.selectors import sources as selectors
from knowledge.services import citations, examples, search
from knowledge.services.search import KEYWORD, WEIGHTS, Filters, Found, Hit, Mode
from knowledge.views import markup
from knowledge.views.shown import fault, shown

MODES: Mapping[Mode, tuple[str, str]] = {
    "hybrid": ("Hybrid", "Meaning, words and exact names together"),
    "semantic": ("Semantic", "Meaning only"),
    "reranked": ("Reranked", "A language model orders the best; slower"),
}
LEGS = {DENSE: "meaning", TEXT: "words", SYMBOLS: "names", KEYWORD: "keywords"}
STEP, MOST = 10, 50
MOST_SOURCES = 200
LANGUAGES_KEPT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Asked:
    """A search as the address says it; what makes no sense there is left out."""

    q: str = ""
    mode: Mode = "hybrid"
    tags: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()
    code: str = ""
    language: str = ""
    explain: bool = False
    top: int = STEP

    @classmethod
    def of(cls, query: QueryDict) -> Self:
        mode = query.get("mode", "")
        numbers = [one for one in query.getlist("source") if re.fullmatch(r"[1-9][0-9]{0,15}", one, re.ASCII)]
        top = query.get("top", "")
        return cls(
            q=query.get("q", "").replace("\0", " ").strip()[:10_000],
            mode=mode if mode in get_args(Mode) else "hybrid",  # type: ignore[arg-type]  # one of the three
            tags=tuple(tag for tag in dict.fromkeys(query.getlist("tag")[:50]) if tag and "\0" not in tag),
            sources=tuple(dict.fromkeys(int(one) for one in numbers[:MOST_SOURCES])),
            code=code if (code := query.get("code", "")) in ("yes", "no") else "",
            language=query.get("language", "").replace("\0", "")[:40],
            explain="explain" in query,
            top=min(MOST, int(top)) if re.fullmatch(r"[1-9][0-9]?", top, re.ASCII) else STEP,
        )

    def filters(self) -> Filters:
        return Filters(
            tags=self.tags,
            sources=self.sources or None,
            has_code={"yes": True, "no": False}.get(self.code),
            language=examples.canonical(self.language) if self.language else "",
        )

    @property
    def is_narrowed(self) -> bool:
        return bool(self.tags or self.sources or self.code or self.language)

    def address(self, **changes: Any) -> str:
        """The query string of this search with something changed."""
        asked = replace(self, **changes)
        pairs: list[tuple[str, Any]] = [("q", asked.q), ("mode", asked.mode if asked.mode != "hybrid" else "")]
        pairs += [("tag", tag) for tag in asked.tags] + [("source", number) for number in asked.sources]
        pairs += [("code", asked.code), ("language", asked.language), ("explain", "1" if asked.explain else "")]
        pairs += [("top", asked.top if asked.top != STEP else "")]
        return "?" + urlencode([(name, value) for name, value in pairs if value])

    def narrowings(self, titles: Mapping[int, str]) -> list[tuple[str, str]]:
        """Each filter that is on, in words, with the address of the search without it."""
        found = [(f"tag {tag}", self.address(tags=tuple(one for one in self.tags if one != tag))) for tag in self.tags]
        for number in self.sources:
            left = tuple(one for one in self.sources if one != number)
            found.append((titles.get(number, f"source-{number}"), self.address(sources=left)))
        if self.code:
            found.append(("with code" if self.code == "yes" else "without code", self.address(code="")))
        if self.language:
            found.append((f"language {self.language}", self.address(language="")))
        return found


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a result: HTML to read, or code (with what was looked for marked) to copy by its `id`."""

    html: SafeString | str = ""
    code: SafeString | str = ""
    language: str = ""
    context: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """A hit as a person reads it. `score` lies in 0..1, `legs` are (name, score, share, weight)."""

    hit: Hit
    score: float
    opens: str
    heading: SafeString
    page: int | None
    is_stale: bool
    blocks: list[Block]
    legs: list[tuple[str, float, float, float]]


@page
@require_safe
def knowledge(request: HttpRequest) -> HttpResponse:
    """The page; its sources alone for a request of the page's own script."""
    project, projects = project_of(request)
    context: dict[str, Any] = {"project": project, "projects": projects, "here": "knowledge"}
    if project is None:
        return render(request, "knowledge/index.html", context)
    context |= {"may_write": may_write(request, project.id), **_sources(project.id)}
    if request.headers.get("HX-Request"):
        return render(request, "knowledge/_sources.html", context)
    asked = Asked.of(request.GET)
    titles = {one.source.pk: one.source.title for one in context["sources"]}
    context |= {
        "asked": asked,
        "modes": [(name, *words) for name, words in MODES.items()],
        "tags": sorted({tag for one in context["sources"] for tag in one.source.tags} | set(asked.tags)),
        "languages": _languages(project.id),
        "narrowings": asked.narrowings(titles),
        "without": asked.address(tags=(), sources=(), code="", language=""),
    }
    if asked.q:
        context |= _answer(project.id, asked)
    return render(request, "knowledge/index.html", context)


def _sources(project_id: int) -> dict[str, Any]:
    rows = selectors.sources(project_id=project_id).defer("description", "metadata")
    sources = shown(list(rows[: MOST_SOURCES + 1]))
    return {
        "sources": sources[:MOST_SOURCES],
        "is_cut": len(sources) > MOST_SOURCES,
        "waiting": sum(one.waiting for one in sources),
        "fault": fault(),
    }


def _languages(project_id: int) -> list[str]:
    """The languages of the project's code examples, the most frequent first."""
    key = f"knowledge-languages-{project_id}-{selectors.revision(project_id).changes}"
    found: list[str] | None = cache.get(key)
    if found is None:
        rows = CodeExample.objects.filter(project_id=project_id).exclude(language="").order_by()
        counted = rows.values_list("language").annotate(n=Count("pk")).order_by("-n", "language")
        found = [language for language, _ in counted[:40]]
        cache.set(key, found, LANGUAGES_KEPT_SECONDS)
    return found


def _answer(project_id: int, asked: Asked) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        found = search.find(
            project_id=project_id, query=asked.q, mode=asked.mode, top_k=asked.top, filters=asked.filters()
        )
    except DevFlowError as exc:
        return {"problem": exc.message}
    results = results_of(found, asked)
    more = asked.address(top=min(asked.top + STEP, MOST)) if found.candidates > len(results) >= asked.top else ""
    return {
        "found": found,
        "results": results,
        "took": round((time.perf_counter() - started) * 1000),
        "more": more if asked.top < MOST else "",
    }


def results_of(found: Found, asked: Asked) -> list[Result]:
    """Hits with what a person reads of them."""
    code = search.examples_in([hit.chunk for hit in found.hits])
    pattern = markup.looked_for(asked.q)
    return [_result(hit, code.get(hit.chunk.pk, ()), pattern, place) for place, hit in enumerate(found.hits, 1)]


def _result(hit: Hit, code: Sequence[CodeExample], pattern: "re.Pattern[str] | None", place: int) -> Result:
    chunk = hit.chunk
    document = chunk.document
    first, last = chunk.start_line, chunk.end_line
    return Result(
        hit=hit,
        score=min(hit.score, 1.0),
        opens=citations.opens(document.pk, first, last).replace("#", f"?line={first}#"),
        heading=markup.marked((chunk.heading or document.title or document.path).replace(" > ", " › "), pattern),
        page=document.page_of(first),
        is_stale=citations.is_stale(document, chunk.source),
        blocks=list(_blocks(hit, list(code), pattern, f"code-{place}")),
        legs=[
            (LEGS.get(name, name), leg.score, leg.share, WEIGHTS.get(name, 0.0)) for name, leg in hit.fused.legs.items()
        ],
    )


def _blocks(hit: Hit, code: list[CodeExample], pattern: "re.Pattern[str] | None", prefix: str) -> list[Block]:
    """The passage with its code taken apart; a block that is cut off in the passage is shown whole."""
    chunk = hit.chunk
    if language := chunk.document.language:
        return [Block(code=markup.marked(chunk.text, pattern), language=language, id=prefix)]
    blocks: list[Block] = []
    for part in markup.parts_of(chunk.text):
        if not part.is_code:
            blocks.append(Block(html=markup.rendered(part.text, pattern=pattern, is_excerpt=True)))
            continue
        whole = next((one for one in code if part.text.strip() in one.code or one.code.strip() in part.text), None)
        if whole is not None:
            code.remove(whole)
        text, language = (whole.code, whole.language) if whole else (part.text, part.language)
        blocks.append(Block(code=markup.marked(text, pattern), language=language, id=f"{prefix}-{len(blocks)}"))
    for one in code:
        shown = markup.marked(one.code, pattern)
        blocks.append(Block(code=shown, language=one.language, context=one.context, id=f"{prefix}-{len(blocks)}"))
    return blocks
