"""The board in a browser: how long the server takes, when it is painted, and when another person sees a move."""

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import httpx

from bench.processes import seeded_by
from tests.running import RunningServer, running

SIZES = (2_000, 10_000)
PAGES = 60
MOVES = 100
Cookie = tuple[str, str]
CHROMIUM = os.environ.get("DEVFLOW_TEST_CHROMIUM", "/usr/bin/chromium")

_WATCH = """() => {
  window.seen = {};
  new MutationObserver((changes) => {
    for (const change of changes) for (const node of change.addedNodes) {
      if (node.id) window.seen[`${node.id}@${node.closest("ol")?.dataset.column}`] ??= Date.now();
    }
  }).observe(document.getElementById("board"), { subtree: true, childList: true });
}"""
_MOVE = """async ([id, column]) => {
  const began = Date.now();
  const answer = await fetch(`/api/v1/tasks/${id}/move`, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      "X-CSRFToken": document.querySelector('meta[name="csrf-token"]').content,
    },
    body: JSON.stringify({ column }),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return began;
}"""
_PICK_UP = """async () => {
  const card = document.querySelector("#col-ready .card");
  card.focus();
  const began = performance.now();
  for (const key of [" ", "ArrowDown", "ArrowRight", "Escape"]) {
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return (performance.now() - began) / 4;
}"""


def run(home: Path) -> str:
    lines = [
        "A project of so many tasks, a third of them done, on SQLite, one process; Chromium without a window on the",
        "same machine. *Server*: the whole page over HTTP with a log-in, one caller, from the first byte sent to the",
        "last received. *Painted*: first contentful paint of a page opened anew. *Key*: from a key that moves a",
        "picked-up card to the next frame, mean of four. *Seen*: from a click in one browser to the card in another's"
        f" column, {MOVES} moves. Milliseconds.",
        "",
        "| tasks | server p50 | server p95 | page, kB | painted | key | seen p50 | seen p95 |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for size in SIZES:
        with running(home / str(size), arguments=("--no-demo",)) as server:
            session = _cookie(server), seeded_by("bench.people", server.home, "shop", size)
            times, weight = _pages(server, session)
            painted, key, seen = _browsers(server, session)
        lines.append(
            f"| {size:,} | {statistics.median(times):.0f} | {_p95(times):.0f} | {weight / 1000:.0f} | {painted:.0f} "
            f"| {key:.0f} | {statistics.median(seen):.0f} | {_p95(seen):.0f} |"
        )
    return "\n".join(lines)


def _cookie(server: RunningServer) -> str:
    """The name of the server's session cookie, which tells instances on one host apart."""
    names = httpx.get(f"{server.url}/login/").cookies.keys()
    return next(name for name in names if "csrf" in name).replace("csrf", "session")


def _p95(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]


def _pages(server: RunningServer, session: Cookie) -> tuple[list[float], int]:
    times = []
    with httpx.Client(base_url=server.url, cookies=dict([session]), timeout=30) as client:
        for _ in range(PAGES + 5):
            start = time.perf_counter()
            page = client.get("/board/shop/")
            times.append((time.perf_counter() - start) * 1000)
            if page.status_code != 200 or 'id="board"' not in page.text:
                raise RuntimeError(f"unexpected answer {page.status_code}")
    return times[5:], len(page.content)


def _browsers(server: RunningServer, session: Cookie) -> tuple[float, float, list[float]]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            mover, watcher = _opened(browser, server, session), _opened(browser, server, session)
            paints = []
            for _ in range(5):
                mover.reload()
                mover.locator("#live[data-state=live]").wait_for(state="attached")
                entries = json.loads(mover.evaluate("JSON.stringify(performance.getEntriesByType('paint'))"))
                paints.append(next(one["startTime"] for one in entries if one["name"] == "first-contentful-paint"))
            key = statistics.median(mover.evaluate(_PICK_UP) for _ in range(5))
            watcher.evaluate(_WATCH)
            return statistics.median(paints), key, _moves(mover, watcher)
        finally:
            browser.close()


def _opened(browser: Any, server: RunningServer, session: Cookie) -> Any:
    context = browser.new_context(base_url=server.url, viewport={"width": 1440, "height": 900})
    name, value = session
    context.add_cookies([{"name": name, "value": value, "url": server.url}])
    page = context.new_page()
    page.goto("/board/shop/")
    page.locator("#live[data-state=live]").wait_for(state="attached")
    return page


def _moves(mover: Any, watcher: Any) -> list[float]:
    """Cards go from ready to in progress and back, by turns."""
    ids = watcher.eval_on_selector_all(
        "#col-ready .card", f"cards => cards.slice(0, {MOVES // 4}).map(card => card.id)"
    )
    times = []
    for number in range(MOVES):
        card = ids[number % len(ids)]
        column = "in_progress" if (number // len(ids)) % 2 == 0 else "ready"
        watcher.evaluate("window.seen = {}")
        began = mover.evaluate(_MOVE, [card, column])
        mark = f"{card}@{column}"
        watcher.wait_for_function("mark => window.seen[mark]", arg=mark, timeout=10_000, polling=5)
        times.append(watcher.evaluate("mark => window.seen[mark]", mark) - began)
    return times
