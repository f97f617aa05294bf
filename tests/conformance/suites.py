"""The two official suites as programs."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.nodetools import program

SUITE_SECONDS = 300

_RESULT = re.compile(r"^[✓✗] (?P<name>[\w-]+): \d+ passed, (?P<failed>\d+) failed$", re.MULTILINE)


@dataclass(frozen=True)
class Report:
    """How each scenario of one run ended, and everything the suite printed."""

    passed: frozenset[str]
    failed: frozenset[str]
    output: str


def run(suite: str, url: str, results: Path, *arguments: str) -> Report:
    """Run `conformance-stable` or `conformance-next` against a server."""
    done = subprocess.run(
        [*program(suite), "server", "--url", f"{url}/mcp", "--suite", "all", "--output-dir", str(results), *arguments],
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS,
        check=False,
    )
    output = done.stdout + done.stderr
    ended = {found["name"]: int(found["failed"]) for found in _RESULT.finditer(output)}
    started = set(re.findall(r"^=== Running scenario: ([\w-]+) ===$", output, re.MULTILINE))
    assert ended and started == ended.keys(), output[-2000:]
    failed = frozenset(name for name, count in ended.items() if count)
    return Report(passed=frozenset(ended.keys() - failed), failed=failed, output=output)
