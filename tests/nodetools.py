"""The programs of others that the tests drive, as `make test` installs them under .tools/: the official conformance
suites and inspector, and real MCP servers."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from devflow.config import PROJECT_ROOT

_MODULES = PROJECT_ROOT / ".tools" / "node" / "node_modules"
_PROGRAMS = {
    "inspector": "@modelcontextprotocol/inspector/cli/build/cli.js",
    "conformance-stable": "conformance-stable/dist/index.js",
    "conformance-next": "conformance-next/dist/index.js",
    "server-everything": "@modelcontextprotocol/server-everything/dist/index.js",
    "server-filesystem": "@modelcontextprotocol/server-filesystem/dist/index.js",
    "server-memory": "@modelcontextprotocol/server-memory/dist/index.js",
}


def program(name: str) -> list[str]:
    """The command line of one of `_PROGRAMS`; skips where it is not installed."""
    script = _MODULES / _PROGRAMS[name]
    node = shutil.which("node", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if node is None or not script.is_file():
        raise _missing(name, "node")
    return [node, str(script)]


def python_server(name: str) -> list[str]:
    """The command line of a server of tests/python/servers.in; skips where it is not installed."""
    script = PROJECT_ROOT / ".tools" / "servers" / "bin" / name
    if not script.is_file():
        raise _missing(name, "servers")
    return [str(script)]


def _missing(name: str, stamp: str) -> BaseException:
    message = f"{name} is not installed: run `make .tools/{stamp}.stamp`"
    if os.environ.get("DEVFLOW_TEST_REQUIRE_SERVERS"):
        return AssertionError(message)
    return pytest.skip.Exception(message)
