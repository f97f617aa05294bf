"""The `devflow` command. Each subcommand is a function in this package; Django loads only where one needs it.

This package is the composition root: the one place in the kernel that may import apps, inside functions.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from devflow import __version__
from devflow.config import ConfigError

Command = Callable[[argparse.Namespace], int]


class CommandError(Exception):
    """A command failed for a reason that one line can say. `code` 1: it failed; 2: it was called wrongly."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def setup() -> None:
    """Load Django with the configured settings."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings")
    import django

    django.setup()


def _up(options: argparse.Namespace) -> int:
    from devflow.cli import up

    return up.run(options)


def _worker(_options: argparse.Namespace) -> int:
    setup()
    from devflow import jobs
    from devflow.cli import provision

    if jobs.is_embedded():
        raise CommandError(
            "the server runs the jobs itself in this configuration; set DEVFLOW_REDIS_URL or DEVFLOW_QUEUE_URL "
            "to run them here.",
            2,
        )
    provision.migrate()  # or wait until the server that starts beside this has done so
    jobs.run_worker()
    return 0


def _mcp(_options: argparse.Namespace) -> int:
    from mcpbridge.transports import stdio

    return stdio.main(_prepare_home)


def _agentify(_options: argparse.Namespace) -> int:
    from devflow.cli import agentify

    return agentify.run(_prepare_home)


def _prepare_home() -> str:
    """Make the data directory ready to be served by `devflow mcp`; gives the key of this user's own processes."""
    setup()
    from django.db import connections

    from devflow.cli import provision

    try:
        provision.migrate()
        provision.first_project()
        return provision.local_key()
    finally:
        connections.close_all()


def _createkey(options: argparse.Namespace) -> int:
    setup()
    from devflow.cli import keys

    return keys.createkey(options)


def _doctor(options: argparse.Namespace) -> int:
    from devflow.cli import doctor

    return doctor.run(options)


def _demo(options: argparse.Namespace) -> int:
    setup()
    from devflow.cli import provision

    provision.migrate()
    provision.seed_demo(reset=options.reset)
    print("The demo project is ready." if not options.reset else "The demo project was made anew.")
    return 0


def _backup(options: argparse.Namespace) -> int:
    setup()
    from devflow import backup

    try:
        manifest = backup.create(options.path)
    except backup.BackupError as exc:
        raise CommandError(str(exc)) from exc
    print(f"{options.path}: {sum(manifest.rows.values())} rows, {len(manifest.files)} files.")
    return 0


def _restore(options: argparse.Namespace) -> int:
    from devflow import backup

    try:
        manifest = backup.restore(options.path, force=options.force)
    except backup.BackupError as exc:
        raise CommandError(str(exc)) from exc
    print(f"Restored {sum(manifest.rows.values())} rows and {len(manifest.files)} files of {manifest.created_at}.")
    return 0


def _ingest(options: argparse.Namespace) -> int:
    setup()
    from devflow.cli import knowledge

    return knowledge.ingest(options)


def _reindex(options: argparse.Namespace) -> int:
    setup()
    from devflow.cli import knowledge

    return knowledge.reindex(options)


def _eval(options: argparse.Namespace) -> int:
    setup()
    from devflow.cli import knowledge

    return knowledge.evaluate(options)


def _export(options: argparse.Namespace) -> int:
    setup()
    from devflow.cli import transfer

    return transfer.export(options)


def _import(options: argparse.Namespace) -> int:
    setup()
    from devflow.cli import transfer

    return transfer.bring_in(options)


def _backend(options: argparse.Namespace) -> int:
    setup()
    from devflow.cli import backends

    return backends.run(options)


def _taiga(options: argparse.Namespace) -> int:
    setup()
    from devflow.cli import taiga

    return taiga.run(options)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def _not_negative(text: str) -> int:
    if (number := int(text)) < 0:
        raise ValueError(text)
    return number


_positive.__name__, _not_negative.__name__ = "positive number", "number"  # argparse shows them in its messages


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="devflow", description="A shared workbench for coding agents and the people who steer them."
    )
    top.add_argument("--version", action="version", version=f"devflow {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, function: Command, summary: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=summary, description=summary)
        made.set_defaults(function=function)
        return made

    up = add("up", _up, "Start the server; the first start prepares the data directory.")
    up.add_argument("--host", help="address to listen on (DEVFLOW_HOST)")
    up.add_argument("--port", type=_not_negative, help="port to listen on, 0 for a free one (DEVFLOW_PORT)")
    up.add_argument("--workers", type=_positive, help="server processes (DEVFLOW_WORKERS)")
    up.add_argument("--server", choices=["uvicorn", "daphne"], help="ASGI server (DEVFLOW_SERVER)")
    up.add_argument("--no-demo", action="store_true", help="do not seed the demo project on the first start")

    add("worker", _worker, "Run background jobs (with Redis or PostgreSQL as the queue).")
    add("mcp", _mcp, "Serve MCP on standard input and output.")
    add("agentify", _agentify, "Serve the orchestrator on standard input and output, for editors that speak JSON-RPC.")

    key = add("createkey", _createkey, "Make an API key and print it, this once.")
    key.add_argument("name")
    key.add_argument("--scopes", default="read,write,execute", help="of read, write, execute, admin")
    key.add_argument("--project", metavar="SLUG", help="the only project the key may see")
    key.add_argument("--expires", type=_positive, metavar="DAYS")
    key.add_argument("--rate", type=_not_negative, metavar="PER_MINUTE", help="calls a minute, 0 for no limit")
    key.add_argument("--json", action="store_true")

    doctor = add("doctor", _doctor, "Look for what is wrong with this installation, and name the fix.")
    doctor.add_argument("--json", action="store_true")

    demo = add("demo", _demo, "Seed the demo project.")
    demo.add_argument("--reset", action="store_true", help="make it anew")

    ingest = add("ingest", _ingest, "Add a file, a directory or a site to a project's knowledge.")
    ingest.add_argument("source", metavar="PATH_OR_URL")
    ingest.add_argument("--title", help="what answers will name as their source")
    ingest.add_argument("--tags", help="separated by commas")
    ingest.add_argument("--type", choices=["upload", "directory", "git", "web"], help="where it cannot be told")
    ingest.add_argument("--priority", type=_positive, default=5, help="1 to 10")
    ingest.add_argument("--project", metavar="SLUG")
    ingest.add_argument("--wait", action="store_true", help="until it is read and its vectors are made")
    ingest.add_argument("--json", action="store_true")

    reindex = add("reindex", _reindex, "Make the vectors of knowledge and memories anew from the database.")
    reindex.add_argument("--no-wait", action="store_true", help="leave the work to the running server")

    evaluate = add("eval", _eval, "Measure how well search finds, on the Python FAQ or on questions of your own.")
    evaluate.add_argument("questions", nargs="?", metavar="FILE", help="YAML or JSON: question and relevant")
    evaluate.add_argument("--project", metavar="SLUG")
    evaluate.add_argument("--mode", choices=["semantic", "hybrid", "reranked"], default="hybrid")
    evaluate.add_argument("--json", action="store_true")

    export = add("export", _export, "Write a project to one JSON file.")
    export.add_argument("slug", metavar="SLUG")
    export.add_argument("file", nargs="?", default="-", metavar="FILE", help="standard output where it is left out")
    export.add_argument("--events", action="store_true", help="with its history")
    export.add_argument("--members", action="store_true", help="with the names and roles of its members")
    bring_in = add("import", _import, "Make a new project from such a file, whole or not at all.")
    bring_in.add_argument("file", metavar="FILE", help="- for standard input")
    bring_in.add_argument("--slug", help="another than the one in the file")
    bring_in.add_argument("--check", action="store_true", help="say what would come of it, and write nothing")

    from devflow.cli import backends, taiga

    backends.register(add("backend", _backend, "Register other MCP servers behind the gateway, test and remove them."))
    taiga.register(add("taiga", _taiga, "Have a project worked on in a real Taiga."))

    backup = add("backup", _backup, "Write database, uploads and secret key to one file, while serving goes on.")
    backup.add_argument("path", metavar="PATH", help="a .tar.gz to make")
    restore = add("restore", _restore, "Bring a backup into an empty data directory.")
    restore.add_argument("path", metavar="PATH")
    restore.add_argument("--force", action="store_true", help="replace what the data directory holds")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, 1 when it failed, 2 when it was called or configured wrongly."""
    options = parser().parse_args(argv)
    try:
        code: int = options.function(options)
    except (ConfigError, CommandError) as exc:
        return _complain(str(exc), getattr(exc, "code", 2))
    except KeyboardInterrupt:
        return 130
    except Exception as exc:
        if (line := _one_line(exc)) is None:
            raise
        return _complain(*line)
    return code


def _one_line(exc: Exception) -> tuple[str, int] | None:
    """What to say instead of a traceback, for failures that are no bug."""
    from django.core.exceptions import ImproperlyConfigured
    from django.db import Error

    from devflow.errors import DevFlowError

    if isinstance(exc, DevFlowError):
        return f"{exc.message} {exc.suggestion}", 1
    if isinstance(exc, ImproperlyConfigured):
        return str(exc), 2
    if isinstance(exc, Error):
        return f"the database cannot be used: {' '.join(str(exc).split())}; `devflow doctor` tells more.", 1
    return None


def _complain(message: str, code: int) -> int:
    print(f"devflow: {message}", file=sys.stderr)
    return code
