"""The form of a result is what was asked for, or the answer says so."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from devflow.errors import DevFlowError
from mcpbridge.gateway.artifacts import as_object, shaped
from mcpbridge.gateway.changes import MAX_FILES, look_at
from mcpbridge.gateway.specs import ActionSpec

SOURCE = ActionSpec("b", "a")
PNG = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


def said(*texts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts]}


AS_OBJECT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"structuredContent": {"a": 1}, "content": []}, {"a": 1}),
    ({"structuredContent": [1], "content": []}, {"value": [1]}),
    (said('{"a": 1}'), {"a": 1}),
    (said("[1, 2]"), {"items": [1, 2]}),
    (said("plain"), {"text": "plain"}),
    (said("7"), {"text": "7"}),
    (said("one", "two"), {"text": "one\ntwo"}),
    (said(), {"text": ""}),
    ({"content": [PNG]}, {"content": [PNG]}),
    (said("[" * 100_000), {"text": "[" * 100_000}),
]


@pytest.mark.parametrize(("wire", "data"), AS_OBJECT, ids=lambda value: str(value)[:40])
def test_data_is_always_an_object(wire: dict[str, Any], data: dict[str, Any]) -> None:
    assert as_object(wire) == data


GOOD: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("TEXT", said("a", "b"), {"text": "a\nb"}),
    ("TEXT", {"structuredContent": {"a": 1}, "content": []}, {"text": '{"a": 1}'}),
    ("CODE_PY", said("def f():\n    return 1"), {"code": "def f():\n    return 1"}),
    ("CODE_PY", said("```python\nx = 1\n```\n"), {"code": "x = 1"}),
    ("CODE_TS", said("const x: number = 1;"), {"code": "const x: number = 1;"}),
    ("CODE_TS", said("```tsx\nconst x = <p>{y}</p>;\n```"), {"code": "const x = <p>{y}</p>;"}),
    ("BINARY", {"content": [PNG]}, {"base64": "iVBORw0KGgo=", "media_type": "image/png"}),
    (
        "BINARY",
        {"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": "AA=="}}]},
        {"base64": "AA==", "media_type": "application/octet-stream"},
    ),
]


@pytest.mark.parametrize(("artifact", "wire", "data"), GOOD, ids=str)
async def test_what_was_asked_for_is_given(artifact: str, wire: dict[str, Any], data: dict[str, Any]) -> None:
    assert await shaped(wire, artifact, root=None, source=SOURCE) == (data, artifact)


BAD = [
    ("CODE_PY", said("def f(:")),
    ("CODE_PY", said("(" * 5000)),
    ("CODE_TS", said("const = = ;")),
    ("PATCH", said("no diff at all")),
    ("BINARY", said("text")),
]


@pytest.mark.parametrize(("artifact", "wire"), BAD, ids=lambda value: str(value)[:40])
async def test_what_is_not_what_was_asked_for_is_refused(artifact: str, wire: dict[str, Any]) -> None:
    with pytest.raises(DevFlowError) as refused:
        await shaped(wire, artifact, root=None, source=SOURCE)
    assert refused.value.code == "invalid_input"
    assert "not what was asked" in refused.value.message


PATCH = "--- a/x.txt\n+++ b/x.txt\n@@ -1 +1 @@\n-old\n+new\n"


async def test_a_patch_must_apply_where_a_directory_is_given(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("old\n", encoding="utf-8")
    assert await shaped(said(PATCH), "PATCH", root=str(tmp_path), source=SOURCE) == ({"patch": PATCH}, "PATCH")
    assert (tmp_path / "x.txt").read_text(encoding="utf-8") == "old\n", "a dry run"
    (tmp_path / "x.txt").write_text("other\n", encoding="utf-8")
    with pytest.raises(DevFlowError, match="does not apply cleanly"):
        await shaped(said(PATCH), "PATCH", root=str(tmp_path), source=SOURCE)
    assert await shaped(said(PATCH), "PATCH", root=None, source=SOURCE)


CODE = (
    "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n\n\ndef h():\n    return 3\n"
)


@pytest.mark.parametrize("is_repository", [True, False])
async def test_a_look_before_and_after_names_files_and_definitions(tmp_path: Path, is_repository: bool) -> None:
    if is_repository:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "m.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "kept.txt").write_text("kept", encoding="utf-8")
    (tmp_path / "gone.txt").write_text("gone", encoding="utf-8")
    before = await look_at(str(tmp_path))
    (tmp_path / "m.py").write_text(f"# moved down\n{CODE.replace('return 2', 'return 4')}", encoding="utf-8")
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "new.py").write_text("def made():\n    return 1\n", encoding="utf-8")
    look = await before.compared()
    assert look.files == ["gone.txt", "m.py", "sub/new.py"]
    assert look.symbols == ["m.py:A", "m.py:A.g", "sub/new.py:made"]


async def test_what_was_dirty_before_is_told_only_when_it_changes_again(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.txt").write_text("untracked before", encoding="utf-8")
    before = await look_at(str(tmp_path))
    assert (await before.compared()).files == []
    (tmp_path / "a.txt").write_text("untracked, and longer now", encoding="utf-8")
    assert (await before.compared()).files == ["a.txt"]


async def test_ignored_and_foreign_folders_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    before = await look_at(str(tmp_path))
    (tmp_path / "node_modules" / "x.js").write_text("x", encoding="utf-8")
    assert (await before.compared()).files == []


async def test_more_files_than_are_looked_at_tell_of_no_new_ones(tmp_path: Path, monkeypatch: Any) -> None:
    from mcpbridge.gateway import changes

    assert MAX_FILES == 20_000
    monkeypatch.setattr(changes, "MAX_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("x", encoding="utf-8")
    before = await look_at(str(tmp_path))
    (tmp_path / "0.txt").write_text("changed", encoding="utf-8")
    (tmp_path / "00.txt").write_text("new", encoding="utf-8")
    assert (await before.compared()).files == ["0.txt"]


@pytest.mark.parametrize("source", ["def f(:", "\x00", "(" * 5000])
async def test_a_source_that_does_not_parse_names_no_definition(tmp_path: Path, source: str) -> None:
    before = await look_at(str(tmp_path))
    (tmp_path / "m.py").write_text(source, encoding="utf-8")
    look = await before.compared()
    assert (look.files, look.symbols) == (["m.py"], [])
