"""The form of a result: `data` is always an object, and what was asked for is checked before it is given out."""

import ast
import asyncio
import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.gateway.specs import ActionSpec

CHECK_SECONDS = 10.0
LEAST_SECONDS = 0.5
MAX_PARSED_HERE = 16 * 1024
"""Characters: Python's parser lets nothing else run, so more is parsed in a process of its own."""
_PARSE = ("-I", "-S", "-W", "ignore", "-c", "import ast, sys; ast.parse(sys.stdin.buffer.read())")
_FENCE = re.compile(r"\A\s*```[\w+-]*[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_HUNK = re.compile(r"^@@ -\d+(,\d+)? \+\d+(,\d+)? @@", re.MULTILINE)


async def shaped(
    wire: Mapping[str, Any], artifact: str, *, root: str | None, source: ActionSpec, seconds: float = CHECK_SECONDS
) -> tuple[dict[str, Any], str]:
    """The result's data and the artifact's type, looked at for `seconds`, at least a half and at most ten.

    Raises `invalid_input` for a result that is not what was asked.
    """
    seconds = min(max(seconds, LEAST_SECONDS), CHECK_SECONDS)
    if artifact == "JSON":
        return as_object(wire), "JSON"
    if artifact == "BINARY":
        return _binary(wire, source), "BINARY"
    text = text_of(wire)
    if artifact == "TEXT":
        return {"text": text}, "TEXT"
    if artifact == "PATCH":
        await _check_patch(text, root, source, seconds)
        return {"patch": text}, "PATCH"
    code = match[1] if (match := _FENCE.match(text)) else text
    if artifact == "CODE_PY":
        await _check_python(code, source, seconds)
    else:
        await asyncio.to_thread(_check_typescript, code, source)
    return {"code": code}, artifact


def text_of(wire: Mapping[str, Any]) -> str:
    """The text of a result; a structured one without text as JSON."""
    parts = []
    for item in wire.get("content", ()):
        if item.get("type") == "text":
            parts.append(item.get("text", ""))
        elif item.get("type") == "resource" and "text" in (resource := item.get("resource") or {}):
            parts.append(resource["text"])
    if not parts and wire.get("structuredContent") is not None:
        return json.dumps(wire["structuredContent"], ensure_ascii=False)
    return "\n".join(parts)


def as_object(wire: Mapping[str, Any]) -> dict[str, Any]:
    """A result as an object: its structured content, else JSON in its text, else its text, else its blocks."""
    structured = wire.get("structuredContent")
    if isinstance(structured, Mapping):
        return dict(structured)
    if structured is not None:
        return {"value": structured}
    content = list(wire.get("content", ()))
    if all(item.get("type") == "text" for item in content):
        text = "\n".join(item.get("text", "") for item in content)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return {"text": text}
        if isinstance(value, dict):
            return value
        return {"items": value} if isinstance(value, list) else {"text": text}
    return {"content": content}


def _wrong(source: ActionSpec, what: str) -> DevFlowError:
    return DevFlowError(
        ErrorCode.INVALID_INPUT,
        f"{source.full_name} ran, but its result is not what was asked: {what}",
        details={"artifact": what},
        suggestion="Ask for the artifact it makes (JSON and TEXT always fit), or correct the parameters.",
    )


def _binary(wire: Mapping[str, Any], source: ActionSpec) -> dict[str, Any]:
    for item in wire.get("content", ()):
        if item.get("type") in ("image", "audio"):
            return {"base64": item["data"], "media_type": item["mimeType"]}
        if item.get("type") == "resource" and "blob" in (resource := item.get("resource") or {}):
            return {"base64": resource["blob"], "media_type": resource.get("mimeType", "application/octet-stream")}
    raise _wrong(source, "it has no image, audio or binary resource.")


async def _check_python(code: str, source: ActionSpec, seconds: float) -> None:
    if len(code) > MAX_PARSED_HERE:
        failed, complaint = await _told((sys.executable, *_PARSE), code, None, seconds, source)
        if failed:
            raise _wrong(source, f"it is no Python ({complaint.rpartition(chr(10))[2][:300]}).")
        return
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise _wrong(source, f"it is no Python ({exc}).") from None


@lru_cache(maxsize=1)
def _typescript() -> Any:
    import tree_sitter_typescript
    from tree_sitter import Language

    return Language(tree_sitter_typescript.language_tsx())


def _check_typescript(code: str, source: ActionSpec) -> None:
    from tree_sitter import Parser

    tree = Parser(_typescript()).parse(code.encode())
    if tree.root_node.has_error:
        raise _wrong(source, "it is no TypeScript.")


async def _told(
    command: Sequence[str], text: str, root: str | None, seconds: float, source: ActionSpec
) -> tuple[bool, str]:
    """Whether a program that is given a text fails, and what it says of it."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=root,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            _, complaint = await process.communicate(text.encode(errors="replace"))
    except TimeoutError:
        raise _wrong(source, "whether it is could not be found out in time.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return bool(process.returncode), complaint.decode(errors="replace").strip()


async def _check_patch(text: str, root: str | None, source: ActionSpec, seconds: float) -> None:
    """Must be a unified diff and, where a directory is given, apply there cleanly."""
    if not _HUNK.search(text) and "GIT binary patch" not in text:
        raise _wrong(source, "it is no unified diff.")
    if root is None:
        return
    whole = text if text.endswith("\n") else f"{text}\n"
    failed, complaint = await _told(("git", "apply", "--check", "-"), whole, root, seconds, source)
    if failed:
        raise _wrong(source, f"it does not apply cleanly ({complaint[:500]}).")
