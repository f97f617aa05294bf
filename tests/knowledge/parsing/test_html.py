"""Pages become Markdown by their structure, without the furniture round it."""

import pytest

from knowledge.indexing.parsed import Parsed, ParseError, parse


def page(body: str, *, title: str = "Page - Site") -> Parsed:
    return parse(
        f"<!doctype html><html><head><title>{title}</title></head><body>{body}</body></html>".encode(), name="a"
    )


def markdown(body: str) -> str:
    return page(f"<main>{body}</main>").text


def test_the_main_part_is_read_without_furniture() -> None:
    parsed = page(
        """<header><h1>Site</h1></header><nav><a href=/>Home</a></nav>
        <main><nav>Breadcrumbs</nav><h1>Setting <em>up</em><a class="headerlink" href="#x">¶</a></h1>
        <p>First do <code>a_b</code>,<br>then <a href="/x">this</a>.</p><script>alert(1)</script>
        <div class="toc">On this page</div><svg><text>logo</text></svg></main><footer>Imprint</footer>"""
    )
    assert parsed.title == "Setting up"
    assert parsed.text == "# Setting *up*\n\nFirst do `a_b`,\nthen this."


def test_the_title_of_a_page_without_headings_is_its_own_without_the_site() -> None:
    assert page("<main><p>Words.</p></main>", title="Set-up guide — Python 3 documentation").title == "Set-up guide"


def test_code_keeps_its_lines_and_gets_its_language_from_classes_and_looks() -> None:
    found = markdown(
        """<div class="highlight-python3 notranslate"><div class="highlight"><pre><span></span>def f():
    <span class="k">return</span> 1
</pre></div></div>
        <pre><code class="language-rust hljs">fn main() {}</code></pre>
        <div class="highlight-source-shell"><pre>ls ```</pre></div>
        <pre data-lang="go">package a</pre>
        <div class="highlight-default"><pre>&gt;&gt;&gt; 1
1</pre></div><pre>&lt;just text&gt;</pre>"""
    )
    assert "```python3\ndef f():\n    return 1\n```" in found
    assert "```rust\nfn main() {}\n```" in found
    assert "````shell\nls ```\n````" in found
    assert "```go\npackage a\n```" in found
    assert "```pycon\n>>> 1\n1\n```" in found
    assert "```\n<just text>\n```" in found


def test_lists_tables_quotes_and_definitions() -> None:
    found = markdown(
        """<ul><li>one<ul><li>inner</li></ul></li><li><p>two</p><pre>x</pre></li></ul><ol start="3"><li>c</li></ol>
        <table><caption>Signs</caption><thead><tr><th>a|b<th>c</thead><tr><td><p>x</p><p>y</p></td></tr></table>
        <blockquote><p>Said.</p></blockquote><dl><dt>term</dt><dd>meaning</dd></dl>
        <div class="admonition note"><p class="admonition-title">Note</p><p>Mind.</p></div>"""
    )
    assert "- one\n\n  - inner\n\n- two\n\n  ```\n  x\n  ```\n\n3. c" in found
    assert "Signs\n\n| a\\|b | c |\n| --- | --- |\n| x y |  |" in found.replace("x  y", "x y")
    assert "> Said." in found
    assert "- **term**: meaning" in found
    assert "**Note**\n\nMind." in found


def test_descriptions_of_sphinx_are_headings_with_their_names() -> None:
    found = markdown(
        """<section><h1>json</h1><dl class="py function"><dt class="sig sig-object py" id="json.loads">"""
        """<span class="sig-prename descclassname">json.</span><span class="sig-name descname">loads</span>"""
        """<span class="sig-paren">(</span><em>s</em><span class="sig-paren">)</span><a class="headerlink">¶</a></dt>"""
        """<dd><p>Reads.</p></dd></dl><p>After.</p></section>"""
    )
    assert found == "# json\n\n## `json.loads`\n\n`json.loads(s)`\n\nReads.\n\n# json (continued)\n\nAfter."


def test_a_layout_table_is_read_through() -> None:
    assert markdown("<table><tr><td><h2>Left</h2><pre>x</pre></td><td><p>Right</p></td></tr></table>") == (
        "## Left\n\n```\nx\n```\n\nRight"
    )


def test_long_paragraphs_are_broken_between_sentences() -> None:
    sentence = "This sentence has about eighty characters, which is not much but does add up."
    assert markdown(f"<p>{sentence} {sentence} {sentence}</p>").split("\n") == [sentence] * 3


def test_a_page_without_structure_goes_through_trafilatura() -> None:
    words = "This is the article that somebody wrote, and it goes on for a while. " * 8
    assert "the article that somebody wrote" in page(f"<div><div><p>{words}</p></div></div>").text


def test_a_page_without_text_is_refused() -> None:
    with pytest.raises(ParseError, match="no text"):
        page('<div id="root"></div><script>render()</script>')
