"""Programming languages: by file name, by the tag of a fence, and guessed from a snippet."""

import ast
import json
import re
import textwrap
import warnings
from functools import lru_cache
from pathlib import PurePosixPath

# Snippets are often fragments with odd escapes; what the compiler thinks of them is nobody's warning.
SNIPPET = "<code example>"
warnings.filterwarnings("ignore", module=re.escape(SNIPPET))

LANGUAGE_NAMES: dict[str, str] = {
    "": "",
    "ascii": "",
    "bash": "bash",
    "bash session": "bash",
    "c++": "cpp",
    "c#": "csharp",
    "cjs": "javascript",
    "console": "bash",
    "cplusplus": "cpp",
    "cs": "csharp",
    "cxx": "cpp",
    "default": "python",
    "docker": "dockerfile",
    "doctest": "python",
    "golang": "go",
    "h": "c",
    "html+django": "django",
    "html+jinja": "jinja",
    "htmldjango": "django",
    "ipython": "python",
    "ipython2": "python",
    "ipython3": "python",
    "javascript": "javascript",
    "js": "javascript",
    "json5": "json",
    "jsonc": "json",
    "jsx": "javascript",
    "kt": "kotlin",
    "ksh": "bash",
    "log": "",
    "make": "makefile",
    "math": "latex",
    "md": "markdown",
    "mjs": "javascript",
    "none": "",
    "node": "javascript",
    "objective-c": "objectivec",
    "output": "",
    "patch": "diff",
    "plain": "",
    "plaintext": "",
    "pot": "gettext",
    "ps1": "powershell",
    "pwsh": "powershell",
    "py": "python",
    "py3": "python",
    "pycon": "python",
    "pycon3": "python",
    "pytb": "",
    "python console session": "python",
    "python3": "python",
    "pytraceback": "",
    "rb": "ruby",
    "restructuredtext": "rst",
    "rs": "rust",
    "sh": "bash",
    "shell": "bash",
    "shell-session": "bash",
    "shellsession": "bash",
    "terminal": "bash",
    "tex": "latex",
    "text": "",
    "ts": "typescript",
    "tsx": "typescript",
    "txt": "",
    "yml": "yaml",
    "zsh": "bash",
}
"""Tags of fences to canonical names; "" is a fence that holds no code. A tag that is not here is its own name."""

SUFFIXES: dict[str, str] = {
    ".bash": "bash",
    ".bat": "batch",
    ".c": "c",
    ".cc": "cpp",
    ".cfg": "ini",
    ".cjs": "javascript",
    ".clj": "clojure",
    ".cmake": "cmake",
    ".cpp": "cpp",
    ".cs": "csharp",
    ".css": "css",
    ".cts": "typescript",
    ".cxx": "cpp",
    ".dart": "dart",
    ".erl": "erlang",
    ".ex": "elixir",
    ".exs": "elixir",
    ".fs": "fsharp",
    ".go": "go",
    ".gradle": "groovy",
    ".graphql": "graphql",
    ".groovy": "groovy",
    ".h": "c",
    ".hpp": "cpp",
    ".hs": "haskell",
    ".ini": "ini",
    ".java": "java",
    ".jl": "julia",
    ".js": "javascript",
    ".json": "json",
    ".jsx": "javascript",
    ".kt": "kotlin",
    ".kts": "kotlin",
    ".less": "less",
    ".lua": "lua",
    ".m": "objectivec",
    ".mjs": "javascript",
    ".ml": "ocaml",
    ".mts": "typescript",
    ".nim": "nim",
    ".nix": "nix",
    ".php": "php",
    ".pl": "perl",
    ".pm": "perl",
    ".proto": "protobuf",
    ".ps1": "powershell",
    ".py": "python",
    ".pyi": "python",
    ".r": "r",
    ".rb": "ruby",
    ".rs": "rust",
    ".sass": "sass",
    ".scala": "scala",
    ".scss": "scss",
    ".sh": "bash",
    ".sql": "sql",
    ".svelte": "svelte",
    ".swift": "swift",
    ".tf": "terraform",
    ".toml": "toml",
    ".ts": "typescript",
    ".tsx": "typescript",
    ".vue": "vue",
    ".xml": "xml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".zig": "zig",
    ".zsh": "bash",
}

FILE_NAMES: dict[str, str] = {
    "cmakelists.txt": "cmake",
    "dockerfile": "dockerfile",
    "jenkinsfile": "groovy",
    "justfile": "just",
    "makefile": "makefile",
    "rakefile": "ruby",
}

_SHELL = re.compile(r"^\$ \S", re.MULTILINE)
_SQL = re.compile(
    r"\s*(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE (?:TABLE|INDEX|VIEW)|ALTER TABLE|DROP TABLE)\s", re.I
)
_SCRIPT = re.compile(
    r"(?:\b(?:const|let|var)\s+[\w${\[]|=>|\bfunction\b\s*\w*\(|\brequire\(|^import\b.*\bfrom\s+['\"])", re.MULTILINE
)
_OTHER = re.compile(r"(?:;|\)\s?\{)$", re.MULTILINE)  # what ends lines of C and its children
_PYTHON_LINE = re.compile(
    r"^\s*(?:(?:async )?def \w+\s*\(|class \w+.*:$|from [\w.]+ import \w|import [\w.]+(?: as \w+)?$|"
    r"(?:elif|except|with|for|while)\b.*:$)",
    re.MULTILINE,
)
_SHEBANG = re.compile(r"#!\S*?(?:/env\s+)?(bash|sh|zsh|python|node|ruby|perl)[\d.]*\b")
_GUESSED_LENGTH = 20_000


@lru_cache(maxsize=1024)
def canonical(tag: str) -> str:
    """Answer the language a fence's tag means, lower case; "" for plain text. `{.python}` and `python:a.py` count."""
    words = tag.strip().lower().replace("{", " ").replace("}", " ").replace(",", " ").split()
    if not words:
        return ""
    name = words[0].lstrip(".").removeprefix("language-").removeprefix("lang-").partition(":")[0]
    return LANGUAGE_NAMES.get(name, name if re.fullmatch(r"[a-z0-9_+#.-]{1,30}", name) else "")


@lru_cache(maxsize=1024)
def of_file(name: str) -> str:
    """Answer the language of a code file by its name, "" when it is none. Pygments knows the rarer ones."""
    path = PurePosixPath(name.lower())
    known = FILE_NAMES.get(path.name) or SUFFIXES.get(path.suffix)
    if known is not None or not path.suffix:
        return known or ""
    from pygments.lexers import find_lexer_class_for_filename

    lexer = find_lexer_class_for_filename(path.name)
    if lexer is None or not lexer.aliases:
        return ""
    return canonical(lexer.aliases[0])


def guess(code: str) -> str:
    """Answer the language of an untagged snippet, "" unless it is clear: prompts, what parses, telling words."""
    text = textwrap.dedent(code[:_GUESSED_LENGTH]).strip()
    if not text:
        return ""
    if text.startswith(">>> ") or "\n>>> " in text:
        return "python"
    if shebang := _SHEBANG.match(text):
        return canonical(shebang[1])
    if _SHELL.search(text):
        return "bash"
    if text[0] in "{[" and is_json(text):
        return "json"
    if text[0] == "<":
        return _markup(text)
    if _SQL.match(text):
        return "sql"
    if text.startswith(("diff --git ", "--- a/", "@@ -")):
        return "diff"
    if _looks_python(text):
        return "python"
    return "javascript" if _SCRIPT.search(text) and parses(text, "javascript") else ""


def parses(code: str, language: str) -> bool | None:
    """Tell whether code is free of syntax errors; None for a language without a parser here."""
    if language == "python":
        return _python(code) is not None
    if language == "json":
        return is_json(code)
    from knowledge.indexing.parsers import trees

    return trees.is_clean(code, language)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _markup(text: str) -> str:
    start = text[:200].lower()
    if start.startswith("<?php"):
        return "php"
    if start.startswith("<?xml"):
        return "xml"
    if re.match(r"<(?:!doctype html|html|head|body|div|p|a|ul|form|script|span|h\d|input|table)\b", start):
        return "html"
    return ""


def _python(code: str) -> ast.Module | None:
    try:
        return ast.parse(textwrap.dedent(code), SNIPPET)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _looks_python(text: str) -> bool:
    if _OTHER.search(text):
        return False
    module = _python(text)
    if module is None:  # a part of a program, or one of Python 2
        return _PYTHON_LINE.search(text) is not None
    return any(_is_telling(node) for node in module.body)


def _is_telling(node: ast.stmt) -> bool:
    """Tell a statement from what only parses as one: a word, or `key: value`."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await | ast.Compare | ast.Subscript)
    return not (isinstance(node, ast.AnnAssign) and node.value is None)
