"""`devflow export` and `devflow import`: a project as one JSON file."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from devflow.actors import Actor
from devflow.cli import CommandError, provision

STANDARD = "-"


def export(options: argparse.Namespace) -> int:
    """Write a project, archived or not, to a file or to standard output."""
    from workflow.models import Project
    from workflow.services.transfer import exporting
    from workflow.services.transfer.formats import MOST_TASKS

    provision.migrate()
    project = Project.objects.filter(slug=options.slug).first()
    if project is None:
        slugs = ", ".join(Project.objects.order_by("slug").values_list("slug", flat=True)[:20])
        raise CommandError(f"there is no project {options.slug}; there are: {slugs or 'none'}.")
    content = exporting.project_json(project_id=project.pk, with_events=options.events, with_members=options.members)
    if options.file == STANDARD:
        sys.stdout.write(content)
        return 0
    _replace(Path(options.file), content)
    count = project.tasks.count()
    print(f"{options.file}: {project.name}, {count} tasks.", file=sys.stderr)
    if count > MOST_TASKS:
        print(
            f"A file of more than {MOST_TASKS} tasks cannot be imported again; `devflow backup` moves them.",
            file=sys.stderr,
        )
    return 0


def _replace(path: Path, content: str) -> None:
    """Write a file whole: one that was there stays until the new one is complete."""
    try:
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        Path(beside).replace(path)
    except OSError as exc:
        raise CommandError(f"{path} cannot be written: {exc.strerror}.") from exc


def bring_in(options: argparse.Namespace) -> int:
    """Make a new project from a file, whole or not at all; with `--check` only say what would come of it."""
    from workflow.services.transfer import project_import

    data = _read(options.file)
    provision.migrate()
    reading = project_import.read(data, slug=options.slug or "")
    preview = reading.preview
    for notice in preview.notices:
        print(notice, file=sys.stderr)
    if not preview.is_good:
        for problem in preview.shown:
            print(problem, file=sys.stderr)
        more = f", the first {len(preview.shown)} of them above" if preview.more else ""
        count = len(preview.problems)
        raise CommandError(f"nothing was imported: {count} problem{'s' if count != 1 else ''}{more}.")
    if options.check:
        print(f"It can be imported as {reading.slug}: {preview.said}.")
        return 0
    project = project_import.write(reading, actor=Actor(kind="system", name="command line", tool="import"))
    print(f"{project.slug}: {preview.said}.")
    return 0


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == STANDARD else Path(name).expanduser().read_bytes()
    except OSError as exc:
        raise CommandError(f"{name} cannot be read: {exc.strerror}.") from exc
