"""The loopback Taiga answers as the recorded one did: the same requests, in the same order."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.fakes.taiga_server import TaigaServer

EXCHANGES = json.loads((Path(__file__).parent / "recorded.json").read_text())["exchanges"]
PAGING = [
    *("x-pagination-count", "x-paginated", "x-paginated-by", "x-pagination-current"),
    *("x-pagination-next", "x-pagination-prev", "www-authenticate", "content-type"),
]
FREE = {"permissions", "my_permissions", "values", "diff", "values_diff", "tags_colors"}


def shape(value: Any) -> Any:
    """Keys and types; of lists what their first object looks like."""
    if isinstance(value, dict):
        return {name: shape(item) if name not in FREE else "free" for name, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return "number" if type(value) in (int, float) else type(value).__name__


def differences(ours: Any, theirs: Any, at: str = "") -> list[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [f"{at}: {name}" for name in ours.keys() ^ theirs.keys()]
        return keys + [
            one for name in ours.keys() & theirs.keys() for one in differences(ours[name], theirs[name], f"{at}.{name}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [f"{at}: {len(ours)} items, recorded are {len(theirs)}"]
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [one for number, (mine, other) in pairs for one in differences(mine, other, f"{at}[{number}]")]
    return [] if ours == theirs else [f"{at}: {ours}, recorded is {theirs}"]


def test_every_recorded_exchange_is_answered_in_the_same_way() -> None:
    wrong: dict[str, Any] = {}
    with TaigaServer() as taiga, httpx.Client(base_url=taiga.url) as client:
        token = "none"
        for exchange in EXCHANGES:
            asked, recorded = exchange["request"], exchange["response"]
            headers = {} if exchange["label"] == "no token" else {"Authorization": f"Bearer {token}"}
            sent: Any = {"content": b"{no json"} if exchange["label"] == "bad json" else {"json": asked["body"]}
            if asked["body"] is None and "content" not in sent:
                sent = {}
            answer = client.request(asked["method"], asked["path"], headers=headers, **sent)
            body = answer.json() if answer.content else None
            if exchange["label"] == "login":
                token = body["auth_token"]
            found = differences(shape(body), shape(recorded["body"]))
            if answer.status_code != recorded["status"]:
                found.insert(0, f"{answer.status_code}, recorded is {recorded['status']}")
            for name in PAGING:
                ours, theirs = answer.headers.get(name), recorded["headers"].get(name)
                if (
                    (ours or "").partition("/api/")[2] != (theirs or "").partition("/api/")[2]
                    or bool(ours) != bool(theirs)
                    or ("/api/" not in (ours or "") and ours != theirs)
                ):
                    found.append(f"{name}: {ours}, recorded is {theirs}")
            if found:
                wrong[f"{exchange['label']}: {asked['method']} {asked['path']}"] = found
    assert wrong == {}, json.dumps(wrong, indent=1)


def test_the_numbers_it_gives_are_the_recorded_ones() -> None:
    """Refs count over the kinds of a project, so the same requests make the same refs, ids and versions."""
    with TaigaServer() as taiga, httpx.Client(base_url=taiga.url) as client:
        headers = {"Authorization": f"Bearer {taiga.token_for()}"}
        for exchange in EXCHANGES:
            asked, recorded = exchange["request"], exchange["response"]["body"]
            if asked["method"] == "GET" or asked["path"].startswith("/auth") or asked["body"] is None:
                continue
            body = client.request(asked["method"], asked["path"], headers=headers, json=asked["body"]).json()
            if isinstance(recorded, dict):
                for name in {"id", "ref", "version", "project", "status", "points"} & recorded.keys():
                    assert body[name] == recorded[name], (exchange["label"], name)
