"""The official Node programs the tests drive, as `make test` installs them under .tools/."""

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
}


def program(name: str) -> list[str]:
    """The command line of `inspector`, `conformance-stable` or `conformance-next`; skips where it is not installed."""
    script = _MODULES / _PROGRAMS[name]
    node = shutil.which("node", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if node is None or not script.is_file():
        message = f"{name} is not installed: run `make .tools/node.stamp`"
        if os.environ.get("DEVFLOW_TEST_REQUIRE_SERVERS"):
            raise AssertionError(message)
        pytest.skip(message)
    return [node, str(script)]
