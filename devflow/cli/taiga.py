"""`devflow taiga`: projects that are worked on in a real Taiga, and the export files of one."""

import argparse
import getpass
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devflow.actors import Actor
from devflow.cli import CommandError

if TYPE_CHECKING:
    from workflow.models import Project
    from workflow.taiga.importing import Imported

BY = Actor(kind="system", name="command line", tool="cli")


def register(add: argparse.ArgumentParser) -> None:
    """The subcommands of `devflow taiga`."""
    acts = add.add_subparsers(title="what to do", metavar="ACTION", required=True)

    def act(name: str, function: Any, summary: str) -> argparse.ArgumentParser:
        made = acts.add_parser(name, help=summary, description=summary)
        made.set_defaults(act=function)
        made.add_argument("project", metavar="PROJECT", help="the project here, by its slug")
        made.add_argument("--json", action="store_true")
        return made

    new = act("connect", _connect, "Have a project worked on in a Taiga. The password is asked for, or read.")
    new.add_argument("url", metavar="URL", help="Taiga's address, such as https://taiga.example.com")
    new.add_argument("--username", metavar="NAME", help="the password comes from the terminal or standard input")
    new.add_argument("--token-stdin", action="store_true", help="read a token from standard input instead")
    new.add_argument("--remote", metavar="SLUG", default="", help="which of its projects, by slug or id")
    act("test", _test, "Ask a project's Taiga, now.")
    act("disconnect", _disconnect, "Have a project kept here again. Nothing changes in Taiga.")
    bring = act("import", _import, "Copy what a project's Taiga has into another project here. Can be repeated.")
    bring.add_argument("--into", metavar="SLUG", required=True, help="the project here that it is copied into")
    load = act("load", _load, "Import the export file of a Taiga project; the project is made where there is none.")
    load.add_argument("file", metavar="FILE", help="the JSON file that Taiga exported")
    dump = act("dump", _dump, "Write a project as a Taiga export file has it.")
    dump.add_argument("--to", metavar="FILE", default="", help="where to; standard output otherwise")


def run(options: argparse.Namespace) -> int:
    from devflow.cli import provision
    from devflow.errors import DevFlowError

    provision.migrate()
    try:
        code: int = options.act(options)
    except DevFlowError as exc:
        reason = exc.details.get("reason")
        raise CommandError(f"{exc.message}{f' ({reason})' if reason else ''} {exc.suggestion}") from exc
    return code


def _project(slug: str) -> "Project":
    from workflow.models import Project

    found = Project.objects.filter(slug=slug).first()
    if found is None:
        slugs = ", ".join(Project.objects.order_by("slug").values_list("slug", flat=True)[:20])
        raise CommandError(f"there is no project {slug}; there are: {slugs or 'none'}.")
    return found


def _secret(prompt: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(prompt)
    return sys.stdin.readline().rstrip("\r\n")


def _connect(options: argparse.Namespace) -> int:
    from workflow.taiga import remotes

    if bool(options.username) == options.token_stdin:
        raise CommandError("give --username NAME, or --token-stdin.", 2)
    login = (
        {"token": sys.stdin.readline().strip()}
        if options.token_stdin
        else {"username": options.username, "password": _secret(f"Password of {options.username}: ")}
    )
    made = remotes.connect(
        _project(options.project), url=options.url, actor=BY, remote=options.remote, is_trusted=True, **login
    )
    if options.json:
        print(json.dumps({"project": options.project, "url": made.url, "remote": made.remote_slug}))
    else:
        print(f"{options.project} is worked on in {made.remote_slug} at {made.url} from now on.")
    return 0


def _test(options: argparse.Namespace) -> int:
    from workflow.taiga import remotes

    tested = remotes.test(_project(options.project))
    if options.json:
        print(json.dumps({"project": options.project, **asdict(tested)}))
    elif tested.ok:
        print(f"{options.project}: Taiga answers; the project is {tested.name} there.")
    else:
        print(f"{options.project}: {tested.detail}", file=sys.stderr)
    return 0 if tested.ok else 1


def _disconnect(options: argparse.Namespace) -> int:
    from workflow.taiga import remotes

    remotes.disconnect(_project(options.project), actor=BY)
    said = {"project": options.project, "disconnected": True}
    print(json.dumps(said) if options.json else f"{options.project} is kept here again.")
    return 0


def _import(options: argparse.Namespace) -> int:
    from workflow.taiga import importing_live

    source, into = _project(options.project), _project(options.into)
    return _said(options, options.into, importing_live.bring(source, into=into, actor=BY, report=_progress(options)))


def _load(options: argparse.Namespace) -> int:
    from workflow.models import Project
    from workflow.services import projects
    from workflow.taiga import dump, importing_file

    try:
        with Path(options.file).open("rb") as file:
            found = dump.read(file)
    except OSError as exc:
        raise CommandError(f"{options.file} cannot be read: {exc.strerror}.") from exc
    into = Project.objects.filter(slug=options.project).first()
    if into is None:
        into = projects.create(slug=options.project, name=found.name, description=found.description, actor=BY)
    code = _said(options, into.slug, importing_file.bring(found, into=into, actor=BY, report=_progress(options)))
    if found.left_out and not options.json:
        print(f"Left out: {', '.join(f'{count} {name}' for name, count in found.left_out.items())}.")
    return code


def _dump(options: argparse.Namespace) -> int:
    from workflow.taiga import dump

    text = json.dumps(dump.write(_project(options.project)), ensure_ascii=False, indent=1)
    if not options.to:
        print(text)
        return 0
    Path(options.to).write_text(text, encoding="utf-8")
    print(f"{options.project} was written to {options.to}.")
    return 0


def _progress(options: argparse.Namespace) -> "Callable[[int, int, str], None]":
    def told(done: int, total: int, what: str) -> None:
        if not options.json and sys.stderr.isatty():
            print(f"\r{done} of {total}: {what:<20}", end="", file=sys.stderr, flush=True)

    return told


def _said(options: argparse.Namespace, into: str, found: "Imported") -> int:
    if options.json:
        print(json.dumps({"into": into, **asdict(found)}))
    else:
        print(f"{into}: {found.made} new, {found.changed} changed, {found.same} as they were.")
    return 0
