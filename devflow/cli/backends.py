"""`devflow backend add | list | test | remove | import`."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devflow.actors import Actor
from devflow.cli import CommandError

if TYPE_CHECKING:
    from mcpbridge.gateway.looking import Looked

BY = Actor(kind="system", name="command line", tool="cli")


def register(add: argparse.ArgumentParser) -> None:
    """The subcommands of `devflow backend`."""
    acts = add.add_subparsers(title="what to do", metavar="ACTION", required=True)

    def act(name: str, function: Any, summary: str) -> argparse.ArgumentParser:
        made = acts.add_parser(name, help=summary, description=summary)
        made.set_defaults(act=function)
        made.add_argument("--json", action="store_true")
        return made

    new = act("add", _add, "Register a backend and ask it for its tools.")
    new.add_argument("id", metavar="ID", help="how requests name it, such as serena")
    new.add_argument("--transport", choices=["stdio", "http", "sse", "agent_cli"], default="stdio")
    new.add_argument("--command", metavar="PROGRAM", help="for a process, such as npx")
    new.add_argument("--args", nargs=argparse.REMAINDER, default=[], metavar="ARG", help="all that follows; comes last")
    new.add_argument("--url", help="for http and sse")
    new.add_argument("--wraps", metavar="ID", help="for agent_cli: the backend whose server the agent is given")
    new.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="kept sealed; ${VAR} is filled in"
    )
    new.add_argument("--inherit-env", action="append", default=[], metavar="NAME", help="of this server's environment")
    new.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="kept sealed")
    new.add_argument("--name", help="what people see")
    new.add_argument("--isolation", choices=["agent", "subprocess"])
    new.add_argument("--root", action="append", default=[], metavar="DIR", help="where a project_root may lie")
    new.add_argument("--no-test", action="store_true", help="do not ask it now")
    act("list", _list, "List the backends with their state.")
    for name, function, summary in (
        ("test", _test, "Ask a backend for its tools, now."),
        ("remove", _remove, "Remove a backend with what was said of its actions."),
    ):
        act(name, function, summary).add_argument("id", metavar="ID")
    bring_in = act("import", _import, "Register what .mcp.json, VS Code's mcp.json or agentify's backends name.")
    bring_in.add_argument("file", metavar="FILE", help="- for standard input")
    bring_in.add_argument("--check", action="store_true", help="say what would come of it, and write nothing")


def run(options: argparse.Namespace) -> int:
    from devflow.cli import provision

    provision.migrate()
    code: int = options.act(options)
    return code


def _pairs(items: list[str], option: str) -> dict[str, str]:
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise CommandError(f"{option} takes NAME=VALUE.", 2)  # never shown: it may be a secret
        found[name] = value
    return found


def _add(options: argparse.Namespace) -> int:
    from devflow.errors import DevFlowError
    from mcpbridge.gateway import backends, looking

    given: dict[str, Any] = {
        "transport": options.transport,
        "command": options.command,
        "args": options.args,
        "url": options.url,
        "wraps": options.wraps,
        "env": _pairs(options.env, "--env"),
        "inherit_env": options.inherit_env,
        "headers": _pairs(options.header, "--header"),
        "display_name": options.name,
        "isolation": options.isolation,
        "allowed_roots": options.root,
    }
    try:
        kept = backends.create(by=BY, id=options.id, **{name: value for name, value in given.items() if value})
    except DevFlowError as exc:
        raise CommandError(_said(exc), 2) from exc
    looked = None if options.no_test else looking.look(options.id)
    if options.json:
        found = {"id": options.id, "warnings": kept.warnings, "test": asdict(looked) if looked else None}
        print(json.dumps(found))
    else:
        print(f"{options.id} is registered.")
        for words in kept.warnings:
            print(f"  Note: {words}")
        if looked:
            _show(options.id, looked)
    return 0 if looked is None or looked.ok else 1


def _said(exc: Any) -> str:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in exc.details.items())
    return f"{reasons}." if reasons else f"{exc.message} {exc.suggestion}"


def _show(backend: str, looked: "Looked") -> None:
    if not looked.ok:
        print(f"{backend} does not answer: {looked.error}", file=sys.stderr)
        return
    named = " ".join(str(part) for part in (looked.server.get("name"), looked.server.get("version")) if part)
    print(f"{backend} answers ({named or 'no name'}, {looked.duration_ms:.0f} ms): {looked.tools} tools.")
    for title, names in (("New", looked.new), ("Gone", looked.gone), ("Held back, approve them", looked.held)):
        if names:
            print(f"  {title}: {', '.join(names)}")
    for name, problem in looked.problems.items():
        print(f"  {name} cannot be called. {problem}")


def _list(options: argparse.Namespace) -> int:
    from django.db.models import Count, Q

    from mcpbridge.models import Backend

    rows = Backend.objects.annotate(tools=Count("actions", Q(actions__is_gone=False)))
    if options.json:
        names = ("backend_id", "display_name", "transport", "is_enabled", "status", "status_detail", "tools")
        print(json.dumps([dict(zip(("id", *names[1:]), values, strict=True)) for values in rows.values_list(*names)]))
        return 0
    for row in rows:
        state = row.status if row.is_enabled else "off"
        print(f"{state:<5} {row.backend_id:<24} {row.transport:<10} {row.tools:>4} tools", end="")
        print(f"  {' '.join(row.status_detail.split())[:120]}" if row.status_detail else "")
    if not rows:
        print("No backend is registered. `devflow backend add ID --command PROGRAM --args ...` registers one.")
    return 0


def _test(options: argparse.Namespace) -> int:
    from mcpbridge.gateway import looking

    looked = looking.look(options.id)
    if options.json:
        print(json.dumps({"id": options.id, **asdict(looked)}))
    else:
        _show(options.id, looked)
    return 0 if looked.ok else 1


def _remove(options: argparse.Namespace) -> int:
    from mcpbridge.gateway import backends

    backends.remove(options.id, by=BY)
    print(json.dumps({"id": options.id, "removed": True}) if options.json else f"{options.id} was removed.")
    return 0


def _import(options: argparse.Namespace) -> int:
    from mcpbridge.gateway import importing

    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise CommandError(f"{options.file}: {getattr(exc, 'strerror', None) or 'is no text'}.") from exc
    entries = importing.bring_in(text, by=None if options.check else BY)
    if options.json:
        print(json.dumps([asdict(entry) for entry in entries]))
    else:
        done = {"create": "new", "change": "changed", "same": "the same", "skip": "skipped"}
        for entry in entries:
            more = entry.why or ", ".join(entry.changes)
            print(f"{done[entry.what]:<9} {entry.id}{f': {more}' if more else ''}")
            for words in entry.warnings:
                print(f"          Note: {words}")
        if options.check:
            print("Nothing was written.")
    return 1 if any(entry.what == "skip" for entry in entries) else 0
