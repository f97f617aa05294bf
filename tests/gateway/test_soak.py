"""A short run of what `make soak` does for ten minutes."""

import subprocess
import sys

import pytest

from devflow.config import PROJECT_ROOT


@pytest.mark.slow
def test_the_gateway_stays_level_under_load_with_backends_that_fail() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.gateway_soak", "20"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "healthy calls in 20 s" in done.stdout
