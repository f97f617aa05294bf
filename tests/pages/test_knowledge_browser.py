"""The knowledge pages in a real browser, in front of a real server: fill the shelf, search it, open what it cites."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from devflow import multipart
from tests.pages.test_browser import PHONE, OpenPage, browser, faults, login, opened, violations
from tests.running import RunningServer, running

__all__ = ["browser", "faults", "login", "opened"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SCREENS = {"desktop": {"width": 1440, "height": 900}, "phone": PHONE}
SECONDS = 60_000

GUIDE = """# Gearbox manual

What the gearbox of the workshop is, and how it is taken apart.

## Tightening

Tighten the four bolts crosswise, **never** one after the other, and measure with `torque_of`:

```python
def torque_of(bolt, *, wrench):
    \"\"\"In newton metres; raises LooseBolt when it turns freely.\"\"\"
    return wrench.read(bolt) * 1.02
```

Above 40 the thread is damaged and the bolt has to be replaced, which takes the whole day because the housing has to be
opened from below. Nobody works below the housing alone. The wrench is calibrated every spring by the people next door.

## Oil

The oil is changed after the first hundred hours, then every thousand. Warm oil runs out more quickly and takes the
swarf with it; a magnet in the pan shows how much of it there was. Write the amount down beside the hours, since a rise
between two changes is the only sign of a bearing that is about to go, and it comes a month before any noise does.
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("knowledge")
    with running(folder / "home", env={"DEVFLOW_ALLOWED_ROOTS": str(folder)}) as server:
        yield server


def machines(folder: Path, screen: str) -> list[Path]:
    """Files that take a few seconds to read, and a guide no other test has."""
    (folder / "gearbox.md").write_text(GUIDE.replace("torque_of", f"torque_{screen}").replace("workshop", screen))
    for number in range(25):
        words = "\n\n".join(
            f"## Part {part}\n\nThe part {part} of machine {number} turns {part * number} times. " * 4
            for part in range(150)
        )
        (folder / f"machine-{number:02}.md").write_text(f"# Machine {number} of {screen}\n\n{words}\n")
    return sorted(folder.iterdir())


@pytest.mark.parametrize("screen", SCREENS)
def test_files_are_sent_read_before_ones_eyes_found_and_cited(opened: OpenPage, tmp_path: Path, screen: str) -> None:
    many = machines(tmp_path, screen)
    page = opened("/knowledge/", viewport=SCREENS[screen], permissions=["clipboard-read", "clipboard-write"])
    page.set_default_timeout(SECONDS)
    page.get_by_role("link", name="Add a source").click()
    page.get_by_label("Files", exact=True).set_input_files([str(path) for path in many])
    assert page.locator("[data-picked] li").first.inner_text().startswith("gearbox.md 1 KB")
    page.get_by_label("Title").fill(f"Workshop {screen}")
    page.get_by_label("Tags").fill("machines")
    page.get_by_role("button", name="Add source").click()
    page.get_by_role("heading", name=f"Workshop {screen}").wait_for()
    page.evaluate(
        """() => {
            window.moved = [];
            const look = () => {
                const bar = document.querySelector(".state progress[value]");
                if (bar && bar.value !== window.moved.at(-1)) window.moved.push(bar.value);
            };
            look();
            new MutationObserver(look).observe(document.body, { subtree: true, childList: true });
        }"""
    )
    page.locator(".state .chip", has_text="ready").wait_for()
    moved = page.evaluate("window.moved")
    assert len(moved) > 1, moved
    assert moved == sorted(moved)
    assert page.get_by_text(f"{len(many)} documents ·").is_visible()

    page.get_by_role("link", name="Knowledge", exact=True).first.click()
    page.get_by_role("searchbox").fill(f"how to tighten the bolts, torque_{screen}")
    page.get_by_role("button", name="Search").click()
    hit = page.locator(".hit", has_text=f"Workshop {screen}").first
    hit.locator("mark", has_text="bolts").first.wait_for()
    assert "q=how+to+tighten" in page.url
    hit.get_by_role("button", name="Copy this code").click()
    hit.get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(f"def torque_{screen}(bolt, *, wrench):\n")
    assert copied.rstrip().endswith("* 1.02")

    hit.get_by_role("heading").get_by_role("link").click()
    page.locator(".line.on").first.wait_for()
    cited = re.search(r"#L(\d+)-L(\d+)$", page.url)
    assert cited is not None
    first, last = int(cited[1]), int(cited[2])
    assert page.locator(".line.on").count() == last - first + 1
    assert page.locator(f"#L{first}").evaluate("line => line === document.activeElement")
    top = page.locator(f"#L{first}").bounding_box()["y"]
    assert 0 <= top < page.viewport_size["height"]
    assert f"torque_{screen}" in page.locator("#lines").inner_text()
    assert page.get_by_role("status").filter(has_text=f"Lines {first} to {last} are marked.").is_visible()


def test_a_citation_leads_to_its_lines_whatever_part_of_the_document_is_open(
    server: RunningServer, opened: OpenPage, tmp_path: Path
) -> None:
    text = "\n".join(f"line {number}" for number in range(1, 6001))
    (tmp_path / "log.txt").write_text(text)
    page = opened("/knowledge/add/")
    page.get_by_label("Files", exact=True).set_input_files(str(tmp_path / "log.txt"))
    page.get_by_role("button", name="Add source").click()
    page.locator(".state .chip", has_text="ready").wait_for(timeout=SECONDS)
    page.get_by_role("link", name="log.txt").first.click()
    page.get_by_text("Lines 1 to 2,000 of 6,000").first.wait_for()
    address = page.url
    page.goto(f"{address}#L4100-L4102")
    page.locator("#L4100.on").wait_for()
    assert page.locator(".line.on").all_inner_texts() == [f"{n}\nline {n}" for n in (4100, 4101, 4102)]
    page.get_by_label("Go to line").fill("17")
    page.get_by_role("button", name="Go", exact=True).click()
    page.locator("#L17.on").wait_for()
    page.locator("#L19 .n").click(modifiers=["Shift"])
    assert page.url.endswith("#L17-L19")
    assert page.locator(".line.on").count() == 3
    page.goto(f"{address}?view=passages#L30")
    page.locator("#L30.on").wait_for()
    page.goto(f"{address}#L99999")
    page.get_by_text("There is no line 99999 here any more.").wait_for()


def test_a_refusal_keeps_what_was_typed_and_the_files_that_were_chosen(
    opened: OpenPage, faults: list[str], tmp_path: Path
) -> None:
    (tmp_path / "fine.md").write_text("# Fine\n\nText.\n")
    (tmp_path / "empty.md").write_text("")
    page = opened("/knowledge/add/")
    page.get_by_label("What is it good for?").fill("Typed with care")
    page.get_by_label("Files", exact=True).set_input_files([str(tmp_path / "fine.md"), str(tmp_path / "empty.md")])
    page.get_by_text("empty.md is empty.").wait_for()
    page.get_by_label("Files", exact=True).set_input_files(str(tmp_path / "fine.md"))
    page.get_by_label("Priority, 1 to 10").evaluate("field => { field.type = 'text'; field.value = '77'; }")
    page.evaluate("window.notReloaded = true")
    page.context.set_offline(True)
    page.get_by_role("button", name="Add source").click()
    page.get_by_text("The server did not take it").wait_for()
    page.context.set_offline(False)
    page.get_by_role("button", name="Add source").click()
    page.get_by_text("less than or equal to 10").wait_for()
    assert page.evaluate("window.notReloaded") is True
    assert page.get_by_label("What is it good for?").input_value() == "Typed with care"
    assert page.locator("#id_upload").evaluate("field => field.files.length") == 1
    page.get_by_label("Priority, 1 to 10").fill("7")
    page.get_by_role("button", name="Add source").click()
    page.get_by_role("heading", name="fine.md").wait_for()
    assert len(faults) == 2, faults  # the lost connection and the 422, which the console reports
    faults.clear()


def test_a_file_far_too_large_is_refused_by_name_without_being_kept_in_memory(
    server: RunningServer, login: Any
) -> None:
    def memory() -> int:
        status = Path(f"/proc/{server.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])  # type: ignore[index]  # every process has it

    cookies = {cookie["name"]: cookie["value"] for cookie in login["cookies"]}
    with httpx.Client(base_url=server.url, cookies=cookies, timeout=120) as client:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', client.get("/knowledge/add/").text)
        assert token is not None
        fields = {"type": "upload", "priority": "5", "csrfmiddlewaretoken": token[1]}
        headers = {"Accept": "application/json", "Referer": server.url}
        before = memory()
        large = b"x" * (100 * multipart.MEGABYTE)
        answer = client.post(
            "/knowledge/add/", data=fields, files={"upload": ("film.md", large, "text/markdown")}, headers=headers
        )
        assert (answer.status_code, answer.json()) == (
            422,
            {"errors": {"upload": ["film.md has 100.0 MB; a file may have 25 MB at most."]}},
        )
        assert memory() - before < 40 * 1024
        try:
            whole = client.post("/knowledge/add/", content=large * 3, headers=headers)
        except httpx.TransportError:  # it closes the connection on a body nobody is going to read
            pass
        else:
            assert whole.status_code == 413


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_no_page_breaks_a_rule_of_accessibility_or_is_wider_than_the_screen(
    server: RunningServer, opened: OpenPage, tmp_path: Path, screen: str, scheme: str
) -> None:
    server.run_python(
        """
from devflow import actors
from knowledge.models import Document, Source
from knowledge.services import sources
from workflow.models import Project
project = Project.objects.get(slug="demo")
if not Source.objects.filter(title="Slow").exists():
    Source.objects.create(project=project, title="Slow", type="web", url="https://x.example/" + "long/" * 40,
                          status="indexing", run_wanted=False, run_done=3, run_total=9, tags=["a", "b"])
    source = Source.objects.create(project=project, title="Broken", type="git", url="/srv/x", status="error",
                                   run_wanted=False, error="There is no directory at this path.")
    Document.objects.create(project=project, source=source, path="a/" * 80 + "b.pdf", status="error",
                            error="The PDF is broken.", text="one\\ntwo", pages=[1, 2])
"""
    )
    page = opened("/knowledge/", color_scheme=scheme, viewport=SCREENS[screen])
    page.locator("#live[data-state=live]").wait_for()
    document = page.get_by_role("link", name="Signing in").first.get_attribute("href")
    broken = page.get_by_role("link", name="Broken").first.get_attribute("href")
    slow = page.get_by_role("link", name="Slow").first.get_attribute("href")
    page.goto(broken)
    failed = page.locator(".documents a").first.get_attribute("href")
    paths = [
        *("/knowledge/", "/knowledge/?q=access+token&explain=1&mode=reranked&tag=authentication"),
        *("/knowledge/?q=zzz&language=python", *(f"/knowledge/add/?type={kind}" for kind in ("upload", "web", "git"))),
        *(document, f"{document}edit/", f"{document}delete/", broken, slow, f"{slow}edit/", failed),
        *(
            "/knowledge/documents/1/#L3-L9",
            *(f"/knowledge/documents/1/?view={v}" for v in ("read", "passages", "code")),
        ),
    ]
    found = {}
    for path in paths:
        page.goto(path)
        if "?q=" in path:
            page.get_by_text("Filters").click()
        if "type=web" in path:
            page.get_by_text("How far to follow").click()
        found[path] = violations(page)
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            found[path].append("it scrolls sideways")
    assert {path: rules for path, rules in found.items() if rules} == {}
