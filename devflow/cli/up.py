"""`devflow up`: prepare the data directory, say where everything is, serve."""

import argparse
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from types import FrameType

from devflow import config, owner
from devflow.cli import CommandError, banner, setup

_OPTIONS = ("host", "port", "workers", "server")


def run(options: argparse.Namespace) -> int:
    # The options reach the settings, and the worker processes, the way every other setting does.
    for name in _OPTIONS:
        if (value := getattr(options, name)) is not None:
            os.environ[f"{config.ENV_PREFIX}{name.upper()}"] = str(value)
    config.current.cache_clear()
    conf = config.current()
    if conf.server == "daphne" and conf.workers > 1:
        raise CommandError("daphne serves one process: use --workers 1, or --server uvicorn.", 2)
    home = config.home()
    signal.signal(signal.SIGTERM, _end)
    owned = owner.try_acquire(home)
    if owned is None:
        raise CommandError(_already_served(home))
    with owned:
        return _serve(conf, owned, demo=not options.no_demo)


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _already_served(home: Path) -> str:
    if published := owner.read_published(home):
        return f"{home} is already served at {published.url} (process {published.pid}); stop it, or set DEVFLOW_HOME."
    return f"{home} is already being served by a process that is starting; set DEVFLOW_HOME for a second instance."


def _serve(conf: config.Config, owned: owner.Owner, *, demo: bool) -> int:
    from devflow import serving

    try:
        sock = serving.listen(conf.mcp_gateway.host, conf.mcp_gateway.port)
    except serving.PortInUseError as exc:
        raise CommandError(str(exc)) from exc
    os.environ["DEVFLOW_PORT"] = str(sock.getsockname()[1])
    config.current.cache_clear()
    _metrics_directory(conf.workers)
    setup()
    _refuse_wrong_settings()

    from devflow import jobs
    from devflow.cli import provision

    provision.migrate()
    first = provision.first_start(demo=demo)
    key = provision.local_key()
    url = serving.url_of(sock)
    print(banner.render(conf.public_url.rstrip("/") or url, first, config.home()), flush=True)
    if conf.workers > 1:
        _let_go_of_the_database()
    elif jobs.is_embedded():
        jobs.start_embedded()
    with suppress(KeyboardInterrupt):  # Ctrl-C is how a server is meant to end
        try:
            serving.serve(sock, on_listening=lambda: owned.publish(url, key))
        finally:
            jobs.stop_embedded()
    return 0


def _let_go_of_the_database() -> None:
    """A supervisor serves nothing itself; its worker processes open their own connections."""
    from django.db import connection

    connection.close()
    if connection.vendor == "postgresql":
        connection.close_pool()  # type: ignore[attr-defined]  # PostgreSQL's connections have one


def _metrics_directory(workers: int) -> None:
    """Several processes share their counters through files; prometheus_client reads this when it is imported."""
    if workers > 1:
        path = config.home() / "metrics"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(path)


def _refuse_wrong_settings() -> None:
    from devflow import checks

    if found := checks.problems(config.current()):
        lines = [f"{problem.msg} {problem.hint} ({problem.id})" for problem in found]
        raise CommandError("\ndevflow: ".join(lines), 2)
