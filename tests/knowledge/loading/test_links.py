import time

import pytest

from knowledge.indexing.links import MAX_LINKS, decode, in_html, in_markdown, in_sitemap
from knowledge.indexing.scope import Scope

URL = "https://docs.example/guide/page.html"


def test_anchors_are_found_in_order_against_the_address_of_the_page() -> None:
    text = """
        <A HREF="a.html">one</A> <a class=x href='/b?x=1&amp;y=2#part'>two</a> <a href=c.html>three</a>
        <a href="https://other.example/">four</a> <a title="a > b" href="d.html">five</a> <a name="e">no</a>
        <a href="">no</a> <a href="mailto:x@example.com">no</a> <a href="javascript:void(0)">no</a>
        <abbr href="f">no</abbr>
        <a rel="nofollow noopener" href="g.html">no</a> <a
            href="h.html"
        >six</a> <a href="http://[::1/">no</a> <a href=" i.html ">seven</a>
    """
    assert in_html(text, URL).urls == [
        "https://docs.example/guide/a.html",
        "https://docs.example/b?x=1&y=2#part",
        "https://docs.example/guide/c.html",
        "https://other.example/",
        "https://docs.example/guide/d.html",
        "https://docs.example/guide/h.html",
        "https://docs.example/guide/i.html",
    ]


def test_the_first_base_counts_and_bad_ones_do_not() -> None:
    assert in_html('<base href="/other/"><base href="/more/"><a href=a>', URL).urls == ["https://docs.example/other/a"]
    assert in_html('<base href="javascript:x"><a href=a>', URL).urls == ["https://docs.example/guide/a"]
    assert in_html("<base target=_blank><a href=a>", URL).urls == ["https://docs.example/guide/a"]


def test_comments_scripts_and_templates_hold_no_links() -> None:
    text = """<!-- <a href=a> --><script>"<a href=b>"</script><STYLE><a href=c></STYLE><template><a href=d></template>
        <textarea><a href=e></textarea><a href=real><!-- <a href=f>"""
    assert in_html(text, URL).urls == ["https://docs.example/guide/real"]


@pytest.mark.parametrize(
    ("content", "indexable", "followable"),
    [
        ("noindex", False, True),
        ("NoFollow", True, False),
        ("noindex, nofollow", False, False),
        ("none", False, False),
        ("index, follow", True, True),
        ("max-snippet:-1", True, True),
    ],
)
def test_pages_say_whether_robots_may_keep_and_follow_them(content: str, indexable: bool, followable: bool) -> None:
    told = in_html(f'<meta name="Robots" content="{content}"><a href=a>', URL)
    assert (told.is_indexable, told.is_followable) == (indexable, followable)
    header = in_html("", URL)
    header.obey(content)
    assert (header.is_indexable, header.is_followable) == (indexable, followable)


def test_a_page_names_its_canonical_address() -> None:
    assert in_html('<link rel="canonical" href="/page">', URL).canonical == "https://docs.example/page"
    assert in_html('<link rel="stylesheet" href="/page">', URL).canonical == ""


def test_links_of_markdown_are_found() -> None:
    text = """# Site
        - [Guide](guide.md): how to [x](<b.md> "title") ![image](i.png)
        <https://docs.example/auto> [empty]() [ref]: /no  (plain)"""
    assert in_markdown(text, "https://docs.example/llms.txt").urls == [
        "https://docs.example/guide.md",
        "https://docs.example/b.md",
        "https://docs.example/i.png",
        "https://docs.example/auto",
    ]


def test_one_page_names_a_bounded_number_of_links() -> None:
    assert len(in_html("<a href=x>" * 100_000, URL).urls) == MAX_LINKS
    assert len(in_markdown("[](x)" * 100_000, URL).urls) == MAX_LINKS


@pytest.mark.parametrize(
    "piece",
    [
        "<div>",
        "<a ",
        '<a "',
        "<a '",
        '<a href="',
        "<!--",
        "<script",
        "<script></script ",
        "<base href=/x>",
        "<a '\"<a \"'",
    ],
)
def test_hostile_pages_take_linear_time(piece: str) -> None:
    text = piece * (2_000_000 // len(piece))
    started = time.perf_counter()
    in_html(text, URL)
    in_markdown(text, URL)
    assert time.perf_counter() - started < 5  # 0.2 s here; a DOM takes minutes for the first of them


def test_sitemaps_name_pages_or_sitemaps() -> None:
    urls = b"""<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
        <url><loc> https://docs.example/a </loc><lastmod>2024</lastmod></url><url><loc>/b?x=1&amp;y=2</loc></url>
        <url><loc>ftp://docs.example/no</loc></url><url><loc/></url></urlset>"""
    assert in_sitemap(urls, URL) == (["https://docs.example/a", "https://docs.example/b?x=1&y=2"], [])
    index = b"<sitemapindex><sitemap><loc>/s1.xml</loc></sitemap></sitemapindex>"
    assert in_sitemap(index, URL) == ([], ["https://docs.example/s1.xml"])


@pytest.mark.parametrize(
    "data", [b"", b"<html></html>", b"plain", b"<rss><loc>/x</loc></rss>", b"\x00\x01", b"<urlset"]
)
def test_what_is_no_sitemap_is_told_from_one(data: bytes) -> None:
    assert in_sitemap(data, URL) is None


def test_a_sitemap_is_used_as_far_as_it_can_be_read() -> None:
    assert in_sitemap(b"<urlset><url><loc>/a</loc></url><url><loc", URL) == (["https://docs.example/a"], [])


def test_xml_bombs_expand_nothing() -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><urlset><url><loc>/&b;</loc></url></urlset>'
    assert in_sitemap(bomb, URL) is None
    external = b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><urlset><url><loc>/&a;</loc></url></urlset>'
    assert in_sitemap(external, URL) is None
    assert in_sitemap(b"<urlset>" + b"<a>" * 1_000_000, URL) == ([], [])
    many = b"<urlset>" + b"<url><loc>/a</loc></url>" * 60_000 + b"</urlset>"
    assert len((in_sitemap(many, URL) or ([], []))[0]) == 50_000


def test_pages_in_any_encoding_are_looked_at() -> None:
    assert in_html(decode("<a href=a>é".encode("utf-16")), URL).urls == ["https://docs.example/guide/a"]
    assert in_html(decode("<a href=a>é".encode("latin-1")), URL).urls == ["https://docs.example/guide/a"]
    assert in_html(decode(b"\xff\xfe\x00"), URL).urls == []


def spelled(start: str, url: str, *, same_path: bool = True, **patterns: tuple[str, ...]) -> str | None:
    both = {"include": (), "exclude": (), **patterns}
    return Scope.below(start, same_path=same_path, **both).spell(url)


@pytest.mark.parametrize(
    ("start", "inside", "outside"),
    [
        ("https://h.example/docs/", "/docs/a", "/blog/"),
        ("https://h.example/docs", "/docs/a", "/docsother"),
        ("https://h.example/docs", "/docs", "/"),
        ("https://h.example/docs/intro.html", "/docs/other.html", "/docs2/"),
        ("https://h.example/", "/anything/at/all", "//elsewhere.example/"),
        ("https://h.example/docs/", "/docs/x/../y", "/docs/../admin"),
        ("https://h.example/docs/", "/docs/x", "/docs/%2e%2e/admin"),
    ],
)
def test_a_source_is_what_lies_below_its_address(start: str, inside: str, outside: str) -> None:
    from urllib.parse import urljoin

    assert spelled(start, urljoin(start, inside))
    assert spelled(start, urljoin(start, outside)) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example/docs/a",
        "https://h.example:8443/docs/a",
        "https://sub.h.example/docs/",
        "ftp://h.example/docs/",
    ],
)
def test_another_host_or_port_is_another_source(url: str) -> None:
    assert spelled("https://h.example/docs/", url, same_path=False) is None


def test_the_whole_host_can_be_asked_for() -> None:
    assert spelled("https://h.example/docs/", "https://h.example/blog", same_path=False) == "https://h.example/blog"


@pytest.mark.parametrize(
    ("written", "one"),
    [
        ("http://h.example/a", "https://h.example/a"),
        ("https://h.example/a#part", "https://h.example/a"),
        ("https://h.example/a?utm_source=x&q=1&fbclid=y", "https://h.example/a?q=1"),
        ("https://h.example/a?gclid=1", "https://h.example/a"),
        ("https://h.example/a?page=2&b=", "https://h.example/a?page=2&b="),
        ("HTTPS://H.EXAMPLE:443/a", "https://h.example/a"),
    ],
)
def test_spellings_of_one_page_are_one(written: str, one: str) -> None:
    assert spelled("https://h.example/", written) == one


@pytest.mark.parametrize("name", ["a.png", "a.ZIP", "a.tar.gz", "feed.xml", "a.mp4", "a.woff2", "a.css"])
def test_what_is_plainly_no_page_is_left_out(name: str) -> None:
    assert spelled("https://h.example/", f"https://h.example/{name}") is None


def test_patterns_choose_pages() -> None:
    page = "https://h.example/docs/v2/api.html"
    assert spelled("https://h.example/", page, include=("*/docs/*",)) == page
    assert spelled("https://h.example/", page, include=("*/blog/*",)) is None
    assert spelled("https://h.example/", page, exclude=("*/v2/*",)) is None
    assert spelled("https://h.example/", page, include=("*",), exclude=("*.pdf",)) == page
