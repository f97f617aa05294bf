import gzip
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from devflow.errors import DevFlowError
from knowledge.indexing import crawling
from knowledge.indexing.crawling import Crawl, Page, Rules
from knowledge.indexing.fetching import Fetcher
from tests.knowledge.loading.conftest import Configure
from tests.knowledge.loading.site import Answer, Request, Site, misbehaving, serving

LIMIT = 20


@dataclass
class Crawled:
    pages: list[Page]
    is_complete: bool
    note: str

    @property
    def paths(self) -> list[str]:
        return ["/" + page.url.split("/", 3)[3] for page in self.pages]

    def of(self, path: str) -> Page:
        return self.pages[self.paths.index(path)]


@pytest.fixture(autouse=True)
def no_delay(configure: Configure) -> None:
    configure(knowledge_crawl_delay_seconds=0, knowledge_allow_private_addresses="true")


def crawl(
    url: str,
    *,
    known: Mapping[str, tuple[str, str]] | None = None,
    stop_after: int | None = None,
    timeout: float = 10,
    **rules: object,
) -> Crawled:
    asked: list[Page] = []
    with Fetcher(timeout=timeout) as fetcher:
        made = Crawl(
            Rules(url, **{"max_depth": 5, "max_pages": LIMIT, **rules}),  # type: ignore[arg-type] # mixed kinds
            fetcher,
            known=known,
            stop=lambda: stop_after is not None and len(asked) >= stop_after,
        )
        for page in made:
            asked.append(page)
            assert page.total_known >= len(asked) or page.total_known == LIMIT
            assert bool(page.error) == (page.fetched is None)
    assert len({page.url for page in asked}) == len(asked)
    return Crawled(asked, made.is_complete, made.note)


def test_pages_are_read_by_their_links_each_once(site: Site) -> None:
    site.html("/", "/a", "/b#x", "a?utm_source=mail", "https://other.example/", "mailto:x@example.com")
    site.html("/a", "/", "/b", "/c", "/")
    site.html("/b", "/a")
    site.html("/c")
    found = crawl(site.url)
    assert found.paths == ["/", "/a", "/b", "/c"]
    assert [page.depth for page in found.pages] == [0, 1, 1, 2]
    assert found.is_complete and not found.note
    assert all(page.fetched and page.fetched.data for page in found.pages)
    assert sorted(set(site.paths)) == sorted(
        ["/robots.txt", "/", "/llms.txt", "/llms-full.txt", "/sitemap.xml", "/a", "/b", "/c"]
    )
    assert len(site.paths) == len(set(site.paths))


def test_progress_is_known_while_it_goes(site: Site) -> None:
    site.html("/", "/a", "/b")
    site.html("/a", "/c")
    site.html("/b")
    site.html("/c")
    assert [page.total_known for page in crawl(site.url).pages] == [3, 4, 4, 4]


@pytest.mark.parametrize(("depth", "paths"), [(0, ["/"]), (1, ["/", "/1"]), (2, ["/", "/1", "/2"])])
def test_depth_is_limited(site: Site, depth: int, paths: list[str]) -> None:
    site.html("/", "/1")
    site.html("/1", "/2")
    site.html("/2", "/3")
    site.html("/3")
    found = crawl(site.url, max_depth=depth)
    assert found.paths == paths and found.is_complete


def test_a_trap_of_endless_links_ends_at_the_limit_and_says_so(site: Site) -> None:
    class Endless(dict[str, Answer]):
        def get(self, path: str, default: object = None) -> Answer:
            if path in ("/robots.txt", "/llms.txt", "/llms-full.txt", "/sitemap.xml"):
                return Answer(status=404)
            body = "".join(f'<a href="{path.rstrip("/")}/{n}">x</a>' for n in range(100)).encode()
            return Answer(body, headers={"Content-Type": "text/html"})

    site.pages = Endless()  # type: ignore[assignment] # as above
    found = crawl(site.url)
    assert len(found.pages) == LIMIT
    assert not found.is_complete and "more than 20 pages" in found.note


@pytest.mark.parametrize("kind", ["redirects", "images", "noindex"])
def test_a_trap_of_what_is_no_page_ends_too(site: Site, kind: str) -> None:
    def page(request: Request) -> Answer:
        number = int(request.path[1:])
        links = "".join(f'<a href="/{number * 10 + n}">x</a>' for n in range(10))
        if kind == "redirects":
            return Answer(status=302, headers={"Location": "/"})
        if kind == "images":
            return Answer(b"x", headers={"Content-Type": "image/png"})
        return Answer(f"<meta name=robots content=noindex>{links}".encode(), headers={"Content-Type": "text/html"})

    site.html("/", *(f"/{number}" for number in range(1, 1000)))
    for number in range(1, 1000):
        site.pages[f"/{number}"] = page
    found = crawl(site.url)
    assert found.paths == ["/"] and not found.is_complete
    assert len(site.asked) < 5 * LIMIT


def test_the_configuration_bounds_what_a_source_asks_for(site: Site, configure: Configure) -> None:
    configure(knowledge_crawl_max_pages=3, knowledge_crawl_max_depth=1)
    site.html("/", *(f"/{number}" for number in range(10)))
    for number in range(10):
        site.html(f"/{number}", "/deep")
    assert len(crawl(site.url, max_pages=100, max_depth=100).pages) == 3
    assert crawl(site.url + "/9", max_depth=0).paths == ["/9"]


def test_a_source_is_what_lies_below_its_address_unless_told(site: Site) -> None:
    site.html("/docs/", "/docs/a", "/blog/", "/docs/../blog/x")
    site.html("/docs/a")
    site.html("/blog/")
    site.html("/blog/x")
    assert crawl(f"{site.url}/docs/").paths == ["/docs/", "/docs/a"]
    assert set(crawl(f"{site.url}/docs/", same_path=False).paths) == {"/docs/", "/docs/a", "/blog/", "/blog/x"}


def test_patterns_choose_pages_but_the_address_itself_is_always_read(site: Site) -> None:
    site.html("/", "/api/a", "/api/old/b", "/blog/c")
    for path in ("/api/a", "/api/old/b", "/blog/c"):
        site.html(path)
    assert crawl(site.url, include=("*/api/*",), exclude=("*/old/*",)).paths == ["/", "/api/a"]


def test_one_broken_page_does_not_stop_the_others(site: Site) -> None:
    site.html("/", "/gone", "/away", "/fine", "/loop")
    site.pages["/gone"] = Answer(status=410)
    site.pages["/away"] = Answer(status=500)
    site.pages["/loop"] = Answer(status=302, headers={"Location": "/loop"})
    site.html("/fine")
    found = crawl(site.url)
    assert set(found.paths) == {"/", "/gone", "/away", "/fine", "/loop"}
    assert (found.of("/gone").is_gone, found.of("/gone").retry) == (True, False)
    assert (found.of("/away").is_gone, found.of("/away").retry) == (False, True)
    assert "500" in found.of("/away").error
    assert found.is_complete


def test_a_site_that_goes_away_is_not_waited_for_page_by_page(site: Site) -> None:
    site.html("/", *(f"/{number}" for number in range(100)))
    for number in range(100):
        site.pages[f"/{number}"] = Answer(status=503)
    found = crawl(site.url, max_pages=200)
    assert len(found.pages) == 11
    assert not found.is_complete and "failed" in found.note


@pytest.mark.parametrize("status", [404, 500])
def test_an_address_that_fails_makes_the_crawl_incomplete(site: Site, status: int) -> None:
    site.pages["/"] = Answer(status=status)
    found = crawl(site.url, known={f"{site.url}/a": ("", "")})
    assert found.paths == ["/"] and str(status) in found.of("/").error
    assert not found.is_complete and str(status) in found.note


def test_addresses_that_are_none_are_refused_before_anything_is_fetched(site: Site, configure: Configure) -> None:
    for url in ("file:///etc/passwd", "http://169.254.169.254/latest/meta-data/", "http://x@example.com/"):
        with pytest.raises(DevFlowError):
            crawl(url)
    configure(knowledge_allow_private_addresses="false")
    with pytest.raises(DevFlowError):
        crawl(site.url)
    assert site.asked == []


def test_the_address_may_redirect_to_another_host_which_is_then_the_source() -> None:
    with serving() as old, serving() as new:
        old.pages["/"] = Answer(status=301, headers={"Location": f"{new.url}/docs/"})
        new.html("/docs/", "/docs/a", "/other", f"{old.url}/b")
        new.html("/docs/a")
        found = crawl(old.url)
        assert [page.url for page in found.pages] == [f"{new.url}/docs/", f"{new.url}/docs/a"]
        new.text("/robots.txt", "User-agent: *\nDisallow: /docs/")
        refused = crawl(old.url)
        assert not refused.is_complete and "robots.txt" in refused.pages[0].error


def test_pages_that_redirect_count_as_what_they_redirect_to(site: Site) -> None:
    site.html("/", "/old", "/new", "/elsewhere", "/older")
    for path in ("/old", "/older"):
        site.pages[path] = Answer(status=301, headers={"Location": "/new"})
    site.pages["/elsewhere"] = Answer(status=302, headers={"Location": "http://127.0.0.1:1/"})
    site.html("/new")
    found = crawl(site.url)
    assert set(found.paths) == {"/", "/new", "/elsewhere"}
    assert found.of("/elsewhere").error


def test_spellings_a_page_calls_canonical_are_one_page_but_a_wrong_canonical_is_not_believed(site: Site) -> None:
    home = '<link rel="canonical" href="/">'
    site.html("/", "/a?session=1", "/a?session=2", "/b", "/c/index.html", "/c/", head=home)
    for path in ("/a?session=1", "/a?session=2", "/a"):
        site.html(path, head='<link rel="canonical" href="/a">')
    site.html("/b", head=home)
    for path in ("/c/index.html", "/c/"):
        site.html(path, head='<link rel="canonical" href="/c/">')
    assert sorted(crawl(site.url).paths) == ["/", "/a", "/b", "/c/"]


def test_pages_that_ask_not_to_be_kept_or_followed_are_obeyed(site: Site) -> None:
    site.html("/", "/hidden", "/closed", "/header")
    site.html("/hidden", "/behind", head='<meta name="robots" content="noindex">')
    site.html("/closed", "/never", head='<meta name="robots" content="nofollow">')
    site.html("/header", headers={"X-Robots-Tag": "noindex, nofollow"})
    site.html("/behind")
    site.html("/never")
    assert crawl(site.url).paths == ["/", "/closed", "/behind"]


def test_an_address_that_may_not_be_kept_says_so_and_is_still_followed(site: Site) -> None:
    site.html("/", "/a", head='<meta name="robots" content="noindex">')
    site.html("/a")
    found = crawl(site.url)
    assert found.paths == ["/", "/a"] and "not to index" in found.of("/").error and found.is_complete


@pytest.mark.parametrize(
    ("path", "kind", "kept"),
    [
        ("/x", "text/html", True),
        ("/x", "TEXT/HTML; charset=utf-8", True),
        ("/x", "application/xhtml+xml", True),
        ("/x", "text/markdown", True),
        ("/x", "text/plain", True),
        ("/x", "application/pdf", True),
        ("/x.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", True),
        ("/x.ipynb", "application/json", True),
        ("/x.md", "application/octet-stream", True),
        ("/x", "", True),
        ("/x", "application/json", False),
        ("/x", "application/octet-stream", False),
        ("/x", "image/png", False),
        ("/x", "application/zip", False),
        ("/x.html", "application/x-executable", False),
    ],
)
def test_only_what_can_be_parsed_is_kept(site: Site, path: str, kind: str, kept: bool) -> None:
    site.html("/", path)
    site.pages[path] = Answer(b"content", headers={"Content-Type": kind})
    assert crawl(site.url).paths == ["/", path][: 1 + kept]
    alone = crawl(site.url + path)
    assert bool(alone.pages[0].error) is not kept and alone.is_complete is kept


# robots.txt


def test_robots_txt_is_obeyed_and_asked_for_once(site: Site) -> None:
    site.text("/robots.txt", "User-agent: *\nDisallow: /private/\nAllow: /private/open\nDisallow: /*.pdf$")
    site.html("/", "/private/a", "/private/open", "/a.pdf", "/b")
    for path in ("/private/a", "/private/open", "/a.pdf", "/b"):
        site.html(path)
    found = crawl(site.url)
    assert found.paths == ["/", "/private/open", "/b"] and found.is_complete
    assert site.paths[0] == "/robots.txt" and site.paths.count("/robots.txt") == 1


@pytest.mark.parametrize("name", ["devflow", "DevFlow", "DEVFLOW"])
def test_a_group_for_devflow_comes_before_the_group_for_all(site: Site, name: str) -> None:
    site.text("/robots.txt", f"User-agent: *\nDisallow: /\n\nUser-agent: OtherBot\nUser-agent: {name}\nDisallow: /a")
    site.html("/", "/a", "/b")
    site.html("/b")
    assert crawl(site.url).paths == ["/", "/b"]


def test_a_site_that_allows_nothing_gives_nothing_and_says_why(site: Site) -> None:
    site.text("/robots.txt", "\ufeffUser-agent: *\nDisallow: /")
    site.html("/", "/a")
    found = crawl(site.url)
    assert not found.is_complete and "robots.txt" in found.of("/").error and site.paths == ["/robots.txt"]


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_site_without_robots_txt_allows_everything(site: Site, status: int) -> None:
    site.pages["/robots.txt"] = Answer(status=status)
    site.html("/")
    assert crawl(site.url).is_complete


@pytest.mark.parametrize("status", [429, 500, 503])
def test_while_robots_txt_cannot_be_read_nothing_is(site: Site, status: int) -> None:
    site.pages["/robots.txt"] = Answer(status=status)
    site.html("/")
    found = crawl(site.url)
    assert "robots.txt" in found.of("/").error and found.of("/").retry and not found.is_complete
    assert site.paths == ["/robots.txt"]


def test_an_unreachable_site_is_an_error_of_its_address() -> None:
    with misbehaving(lambda connection, over: None) as url:
        found = crawl(url, timeout=1)
    assert len(found.pages) == 1 and found.pages[0].retry and not found.is_complete


def test_a_hostile_robots_txt_costs_little(site: Site) -> None:
    names = "\n".join(f"User-agent: bot{number}" for number in range(10_000))
    rules = "\n".join(f"Disallow: /{number}*a*b*c" for number in range(10_000))
    site.text("/robots.txt", f"{names}\n{rules}\nUser-agent: *\nDisallow: /x\nCrawl-delay: nan\nRequest-rate: 0/0")
    site.html("/", "/x", "/y")
    site.html("/y")
    started = time.perf_counter()
    assert crawl(site.url).paths == ["/", "/y"]
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("robots", "seconds"),
    [
        ("", 0.2),
        ("Crawl-delay: 3", 3),
        ("Crawl-delay: 86400", 10),
        ("Request-rate: 1/5", 5),
        ("Crawl-delay: 0.01", 0.2),
    ],
)
def test_a_host_is_given_the_time_it_asks_for_up_to_a_bound(
    site: Site, configure: Configure, monkeypatch: pytest.MonkeyPatch, robots: str, seconds: float
) -> None:
    configure(knowledge_crawl_delay_seconds=0.2)
    now = 1000.0
    waited: list[float] = []

    def sleep(wait: float) -> None:
        nonlocal now
        now += wait
        waited.append(wait)

    site.text("/robots.txt", f"User-agent: *\n{robots}")
    site.html("/", "/a")
    site.html("/a")
    with Fetcher(timeout=10) as fetcher, monkeypatch.context() as patch:
        patch.setattr("knowledge.indexing.politeness.time.monotonic", lambda: now)
        fetched = list(Crawl(Rules(site.url + "/", max_depth=1, max_pages=5), fetcher, sleep=sleep))
    assert len(fetched) == 2
    waits = len(site.asked) - 1
    assert max(waited) <= 0.25
    # The first request after robots.txt waits only for what the configuration says.
    assert sum(waited) == pytest.approx(0.2 + (waits - 1) * seconds, abs=0.3)


# Sitemaps and llms.txt


def sitemap(*urls: str) -> str:
    return "<urlset>" + "".join(f"<url><loc>{url}</loc></url>" for url in urls) + "</urlset>"


def index(*urls: str) -> str:
    return "<sitemapindex>" + "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls) + "</sitemapindex>"


def test_a_sitemap_names_pages_no_link_leads_to(site: Site) -> None:
    site.html("/docs/")
    site.html("/docs/alone", "/docs/linked")
    site.html("/docs/linked")
    site.text("/sitemap.xml", sitemap("/docs/alone", "/blog/x", "https://other.example/docs/"), "application/xml")
    found = crawl(f"{site.url}/docs/")
    assert found.paths == ["/docs/", "/docs/alone", "/docs/linked"] and found.is_complete


def test_sitemaps_that_robots_txt_names_are_read_through_their_indexes_and_gzip(site: Site) -> None:
    site.text("/robots.txt", f"Sitemap: {site.url}/maps/index.xml\nSitemap: /gone.xml\nSitemap: file:///etc/passwd")
    site.text("/maps/index.xml", index("/maps/a.xml", "/maps/b.xml.gz", "/maps/index.xml"), "text/xml")
    site.text("/maps/a.xml", sitemap("/a"), "text/xml")
    site.pages["/maps/b.xml.gz"] = Answer(gzip.compress(sitemap("/b").encode()))
    for path in ("/", "/a", "/b"):
        site.html(path)
    found = crawl(site.url)
    assert found.paths == ["/", "/a", "/b"] and found.is_complete
    assert site.paths.count("/maps/index.xml") == 1 and "/sitemap.xml" not in site.paths


def test_a_sitemap_can_be_the_address(site: Site) -> None:
    site.text("/sitemap.xml", index("/one.xml"), "application/xml")
    site.text("/one.xml", sitemap("/a", "/b/c"), "application/xml")
    site.html("/a", "/d")
    site.html("/b/c")
    site.html("/d")
    assert crawl(f"{site.url}/sitemap.xml").paths == ["/a", "/b/c", "/d"]


def test_an_empty_sitemap_as_the_address_is_no_complete_crawl(site: Site) -> None:
    site.text("/sitemap.xml", sitemap(), "application/xml")
    found = crawl(f"{site.url}/sitemap.xml")
    assert found.pages == [] and not found.is_complete and found.note


def test_other_xml_as_the_address_is_an_error(site: Site) -> None:
    site.text("/feed.xml", "<rss></rss>", "application/xml")
    found = crawl(f"{site.url}/feed.xml")
    assert "type" in found.pages[0].error and not found.is_complete


def test_sitemaps_without_end_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawling, "_MAX_SITEMAPS", 5)

    def more(request: Request) -> Answer:
        number = int(request.path.strip("/.xml"))
        return Answer(index(f"/{number + 1}.xml", f"/{number + 1000}.xml").encode())

    site.text("/robots.txt", "Sitemap: /1.xml")
    for number in range(1, 9):
        for step in range(9):
            site.pages[f"/{number + 1000 * step}.xml"] = more
    site.html("/")
    found = crawl(site.url)
    assert found.paths == ["/"] and not found.is_complete and "sitemaps" in found.note
    assert len([path for path in site.paths if path.endswith(".xml")]) == 5


@pytest.mark.parametrize("name", ["/llms.txt", "/llms-full.txt"])
def test_llms_txt_of_a_site_names_pages(site: Site, name: str) -> None:
    site.html("/")
    site.text(name, "# Site\n- [Guide](/guide.md): x\n- [Other](https://other.example/x.md)")
    site.text("/guide.md", "# Guide\n[more](more.md)", "text/markdown")
    site.text("/more.md", "# More", "text/markdown")
    assert crawl(site.url).paths == ["/", "/guide.md", "/more.md"]
    assert crawl(f"{site.url}{name}").paths == [name, "/guide.md", "/more.md"]


def test_a_page_that_is_served_for_every_path_is_no_llms_txt(site: Site) -> None:
    site.html("/")
    site.html("/llms.txt", "/wrong")
    site.html("/wrong")
    assert crawl(site.url).paths == ["/"]


# Again


def remembered(found: Crawled) -> dict[str, tuple[str, str]]:
    return {page.url: (page.fetched.etag, page.fetched.modified) if page.fetched else ("", "") for page in found.pages}


def versioned(site: Site, path: str, version: str, *links: str) -> None:
    site.html(path, *links)
    page = site.pages[path]
    assert isinstance(page, Answer)
    full = Answer(page.body, headers={**page.headers, "ETag": version})
    site.pages[path] = lambda asked: (
        Answer(status=304, headers={"ETag": version}) if asked.headers.get("if-none-match") == version else full
    )


def test_unchanged_pages_are_not_sent_again_and_what_they_link_to_is_still_visited(site: Site) -> None:
    versioned(site, "/", "v1", "/a")
    versioned(site, "/a", "v1", "/b")
    versioned(site, "/b", "v1", "/c")
    versioned(site, "/c", "v1")
    first = crawl(site.url)
    assert first.paths == ["/", "/a", "/b", "/c"]
    versioned(site, "/b", "v2", "/c", "/new")
    versioned(site, "/new", "v1")
    again = crawl(site.url, known=remembered(first))
    assert sorted(again.paths) == ["/", "/a", "/b", "/c", "/new"] and again.is_complete
    changed = {path for path, page in zip(again.paths, again.pages, strict=True) if not page.fetched.not_modified}  # type: ignore[union-attr] # all were read
    assert changed == {"/", "/b", "/new"}


def test_a_page_nothing_links_to_any_more_is_missing_from_a_complete_crawl(site: Site) -> None:
    site.html("/", "/a", "/b")
    site.html("/a")
    site.html("/b")
    first = crawl(site.url)
    site.html("/", "/a")
    again = crawl(site.url, known=remembered(first))
    assert again.paths == ["/", "/a"] and again.is_complete


def test_a_page_that_fails_for_now_does_not_lose_the_pages_behind_it(site: Site) -> None:
    site.html("/", "/a")
    site.html("/a", "/b")
    site.html("/b")
    first = crawl(site.url)
    site.pages["/a"] = Answer(status=500)
    again = crawl(site.url, known=remembered(first))
    assert again.paths == ["/", "/a", "/b"] and again.is_complete
    assert again.of("/a").error and not again.of("/b").error


def test_known_pages_outside_the_rules_are_not_visited(site: Site) -> None:
    site.html("/docs/", "/docs/a")
    site.pages["/docs/a"] = Answer(status=500)
    site.html("/blog/")
    known = {f"{site.url}/blog/": ("", ""), "http://169.254.169.254/": ("", ""), "nonsense": ("", "")}
    assert crawl(f"{site.url}/docs/", known=known).paths == ["/docs/", "/docs/a"]


def test_a_crawl_can_be_stopped(site: Site) -> None:
    site.html("/", *(f"/{number}" for number in range(10)))
    for number in range(10):
        site.html(f"/{number}")
    found = crawl(site.url, stop_after=3)
    assert len(found.pages) == 3 and not found.is_complete and found.note == "It was stopped."


def test_a_page_too_large_or_slow_is_its_own_error(site: Site, configure: Configure) -> None:
    configure(knowledge_max_document_mb=1)
    site.html("/", "/large", "/fine")
    site.pages["/large"] = Answer(b"x" * 2_000_000, headers={"Content-Type": "text/html"})
    site.html("/fine")
    found = crawl(site.url)
    assert "larger than 1 MB" in found.of("/large").error and not found.of("/fine").error and found.is_complete
