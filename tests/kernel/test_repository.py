import re
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

from devflow.config import PROJECT_ROOT

# Put together here, so that this file passes its own test.
REGISTRIES = [
    ".".join(parts) for parts in (("pypi", "org"), ("files", "pythonhosted", "org"), ("registry", "npmjs", "org"))
]
MACHINE_PATHS = ["/" + name + "/" for name in ("work", "root")]


@lru_cache(maxsize=1)
def tracked() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this copy is no git repository")
    return tuple(path for name in listed.stdout.split("\0") if name and (path := PROJECT_ROOT / name).is_file())


def holding(*needles: str) -> list[str]:
    pattern = re.compile("|".join(map(re.escape, needles)).encode())
    return [str(path.relative_to(PROJECT_ROOT)) for path in tracked() if pattern.search(path.read_bytes())]


def test_no_file_names_a_path_of_one_machine() -> None:
    assert holding(*MACHINE_PATHS) == []


def test_no_file_names_where_packages_are_downloaded_from() -> None:
    assert holding(*REGISTRIES) == []


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock", "requirements-bench.lock"])
def test_locks_have_a_hash_for_everything_and_no_address(name: str) -> None:
    text = (PROJECT_ROOT / name).read_text()
    packages = [line for line in text.splitlines() if line and line[0].isalnum()]
    assert len(packages) > 50
    assert [line for line in packages if "==" not in line or not line.endswith("\\")] == []
    assert "://" not in text
    assert "--index-url" not in text


def test_the_lock_of_the_test_clients_has_no_download_addresses() -> None:
    assert '"resolved"' not in (PROJECT_ROOT / "tests" / "node" / "package-lock.json").read_text()


def test_the_development_lock_agrees_with_the_one_for_running() -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (PROJECT_ROOT / name).read_text().splitlines()
        return dict(line.split(" ")[0].split("==") for line in lines if line and line[0].isalnum())

    run, development, bench = map(pins, ("requirements.lock", "requirements-dev.lock", "requirements-bench.lock"))
    assert {name: version for name, version in run.items() if development.get(name) != version} == {}
    assert {name: version for name, version in development.items() if bench.get(name) != version} == {}
