"""Servers under measurement: started on a free loopback port, ended by their process id."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.running import environment

ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def asgi(application: str, home: Path, extra: Mapping[str, str] | None = None) -> Iterator[tuple[int, int]]:
    """`application` on uvicorn with uvloop and httptools; gives port and process id."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", application, "--port", str(port), "--no-access-log", "--log-level", "error"],
        cwd=ROOT,
        env=environment(home, extra),
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(20)


def wait_for(port: int, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


def seeded(home: Path, *arguments: object, extra: Mapping[str, str] | None = None) -> str:
    """Run `bench.seed` in the data directory; gives the key it made."""
    return seeded_by("bench.seed", home, *arguments, extra=extra)


def seeded_by(module: str, home: Path, *arguments: object, extra: Mapping[str, str] | None = None) -> str:
    """Run a seeding module in the data directory; gives the key it made."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env=environment(home, extra),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()[-1]


def django_at(home: Path) -> None:
    """Use Django in this process, with a data directory of its own."""
    home.mkdir(parents=True, exist_ok=True)
    os.environ["DEVFLOW_HOME"] = str(home)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings")
    import django

    django.setup()


def migrated(home: Path, extra: Mapping[str, str] | None = None) -> None:
    home.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
        cwd=ROOT,
        env=environment(home, extra),
        check=True,
        stderr=subprocess.DEVNULL,
    )


def resident_mib(pid: int) -> float:
    """Resident memory of a process and its children, MiB (Linux)."""
    total = 0
    for process in [pid, *children(pid)]:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return round(total / 1024, 1)


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found


def machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "unknown processor",
    )
    return f"{os.cpu_count()} cores ({model}), Python {sys.version.split()[0]}"
