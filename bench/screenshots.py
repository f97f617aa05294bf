"""Pictures of every page of a demo instance, in both schemes, for docs/images: `make screenshots`, or
`python -m bench.screenshots NAME ...` for some.

Pictures of one run are alike in size and content; times and counts on them move from run to run.
"""

import re
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from bench.board import CHROMIUM
from bench.processes import ROOT
from tests.running import RunningServer, devflow, running

IMAGES = ROOT / "docs" / "images"
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
PAGES = {
    "home": "/",
    "board": "/board/demo/",
    "board-lanes": "/board/demo/?lanes=phase",
    "task": "/tasks/6/",
    "review": "/tasks/8/",
    "agents": "/agents/",
    "agent": "/agents/2/",
    "knowledge": "/knowledge/",
    "search": "/knowledge/?q=how+do+tokens+rotate",
    "memories": "/memories/",
    "insights": "/insights/?days=30",
    "activity": "/activity/",
    "backlog": "/backlog/shop/",
    "sprint": "/sprints/shop/1/",
    "story": "/stories/1/",
    "issues": "/issues/shop/",
    "gateway": "/gateway/",
    "backend": "/gateway/files/",
    "connect": "/connect/",
    "keys": "/keys/",
    "projects": "/projects/",
    "admin": "/admin/workflow/phase/",
}
_WITHOUT_PATHS = """(root) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(root, "/opt/devflow");
}"""
ON_A_PHONE = ("home", "board", "task", "agents", "search")


def main(*names: str) -> None:
    """Take the pages named, or all."""
    from playwright.sync_api import sync_playwright

    IMAGES.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder) / "home") as server,
        sync_playwright() as playwright,
    ):
        _with_a_backend(server.home)
        _plan(server)
        _be_busy(server)
        wanted = {name: path for name, path in PAGES.items() if not names or name in names}
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        state = _log_in(browser, server)
        for scheme in ("light", "dark"):
            _take(browser, server, state, wanted, scheme=scheme, viewport=WIDE, ending=f"-{scheme}")
        phone = {name: path for name, path in wanted.items() if name in ON_A_PHONE}
        _take(browser, server, state, phone, scheme="light", viewport=PHONE, ending="-phone")
        browser.close()


def _be_busy(server: RunningServer) -> None:
    """Calls of three agents, so that the pages have something to show."""
    calls = [
        ("analyst-ada", "get_tasks", {}),
        ("analyst-ada", "search_knowledge", {"query": "how do tokens rotate"}),
        ("builder-ben", "get_my_task", {}),
        ("builder-ben", "query_memories", {"query": "webhooks"}),
        ("builder-ben", "get_messages", {}),
        ("checker-vera", "get_kanban_board", {}),
        ("checker-vera", "get_phase_info", {"phase_id": 99}),
        ("checker-vera", "get_phase_info", {"phase_id": 2}),
    ]
    clients = {"analyst-ada": "claude-code", "builder-ben": "opencode", "checker-vera": "cursor"}
    with httpx.Client(headers={"X-API-Key": server.key, "X-Project": "demo"}, timeout=60) as client:
        for agent, tool, args in calls * 3:
            headers = {"X-Agent-Id": agent, "User-Agent": clients[agent]}
            client.post(f"{server.url}/mcp/execute", json={"tool": tool, "args": args}, headers=headers)
        for request in _REQUESTS:
            client.post(f"{server.url}/mcp/gateway", json=request, headers={"X-Agent-Id": "builder-ben"})


_REQUESTS: list[dict[str, Any]] = [
    {"intent": "QUERY", "action": "files.echo", "params": {"text": "where is the cart?"}},
    {"intent": "QUERY", "action": "files.count", "constraints": {"isolation": "subprocess"}},
    {"intent": "QUERY", "action": "files.launch", "params": {"what": "a deployment"}},
    {"intent": "QUERY", "action": "files.fail", "params": {"why": "there is no such file"}},
]


def _plan(server: RunningServer) -> None:
    """A project that plans: two epics, stories in a sprint that runs, their tasks, some of them done, and issues."""
    today = datetime.now(UTC).date()
    days = {"starts_on": str(today - timedelta(days=8)), "ends_on": str(today + timedelta(days=5))}
    headers = {"X-API-Key": server.key, "X-Project": "shop", "X-Agent-Id": "builder-ben"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:

        def made(path: str, **fields: Any) -> int:
            answer = client.post(f"/api/v1/{path}/", json={"project": "shop", **fields}).raise_for_status()
            return int(answer.json()["id"])

        def called(tool: str, **args: Any) -> dict[str, Any]:
            answer: dict[str, Any] = client.post("/mcp/execute", json={"tool": tool, "args": args}).json()
            if answer["error"]:
                raise RuntimeError(f"{tool}: {answer['error']}")
            return answer

        client.post("/api/v1/projects/", json={"slug": "shop", "name": "Shop"}).raise_for_status()
        sprint = made("sprints", name="Sprint 1", **days)
        for epic, color, stories in _EPICS:
            its = made("epics", subject=epic, color=color)
            for subject, points, is_planned, tasks in stories:
                more = {"sprint": sprint} if is_planned else {}
                story = made("stories", subject=subject, epic=its, points=points, **more)
                for task in tasks:
                    called("taiga.create_task", userStoryId=story, subject=task)
        for kind, severity, subject in _ISSUES:
            made("issues", subject=subject, type=kind, severity=severity)
        for _ in range(4):
            if (task := called("claim_task", phase_id=1)["result"]) is None:
                break
            args = {"task_id": task["id"], "status": "done", "result": "Built", "lease_token": task["lease_token"]}
            called("update_task_status", **args)
        called("claim_task", phase_id=1)


_EPICS: list[tuple[str, str, list[tuple[str, dict[str, int], bool, list[str]]]]] = [
    (
        "Paying",
        "#4da6ff",
        [
            ("Pay by card", {"front": 3, "back": 5}, True, ["Form for the card", "Call the bank", "Show the receipt"]),
            ("Pay by bill", {"back": 2}, True, ["Bill as PDF", "Send it by mail"]),
            ("Pay later", {"back": 8}, False, []),
        ],
    ),
    (
        "Finding things",
        "#7bc96f",
        [
            ("Search by name", {"front": 2, "back": 3}, True, ["Index the names", "Field with suggestions"]),
            ("Search by picture", {"back": 13}, False, []),
        ],
    ),
]
_ISSUES = [
    ("bug", "critical", "The cart is empty after signing in"),
    ("bug", "minor", "Prices are not aligned on phones"),
    ("question", "normal", "Which countries do we deliver to?"),
]


def _with_a_backend(home: Path) -> None:
    """A backend to show, registered as an administrator would."""
    script = ROOT / "tests" / "fakes" / "small_backend.py"
    done = devflow(home, "backend", "add", "files", "--command", sys.executable, "--args", str(script))
    if done.returncode:
        raise RuntimeError(done.stderr)


def _log_in(browser: Any, server: RunningServer) -> Any:
    password = re.search(r"admin / (\S+)", server.output)
    if password is None:
        raise RuntimeError("the server printed no login")
    context = browser.new_context(base_url=server.url)
    page = context.new_page()
    page.goto("/login/")
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill(password[1])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{server.url}/")
    return context.storage_state()


def _take(
    browser: Any,
    server: RunningServer,
    state: Any,
    pages: dict[str, str],
    *,
    scheme: str,
    viewport: dict[str, int],
    ending: str,
) -> None:
    context = browser.new_context(
        base_url=server.url, storage_state=state, viewport=viewport, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    for name, path in pages.items():
        page.goto(path, wait_until="networkidle" if name == "insights" else "load")
        if page.locator("[data-live]").count():
            page.locator("#live[data-state=live]").wait_for(state="attached")
        page.evaluate(_WITHOUT_PATHS, str(ROOT))
        page.screenshot(path=IMAGES / f"{name}{ending}.png")
    context.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
