"""`devflow createkey`."""

import argparse
import json
from datetime import timedelta
from typing import Any

from django.db import OperationalError, ProgrammingError

from devflow.cli import CommandError, provision


def createkey(options: argparse.Namespace) -> int:
    from mcpbridge.tooling import Scope

    scopes = [part.strip() for part in options.scopes.split(",") if part.strip()]
    known = [scope.value for scope in Scope]
    if not scopes or (unknown := sorted(set(scopes) - set(known))):
        raise CommandError(
            f"--scopes: name some of {', '.join(known)}" + (f", not {unknown[0]}." if scopes else "."), 2
        )
    try:
        made = _issue(options, scopes)
    except (OperationalError, ProgrammingError) as exc:
        if "no such table" not in str(exc) and "does not exist" not in str(exc):
            raise
        provision.migrate()  # a data directory without tables yet
        made = _issue(options, scopes)
    if options.json:
        print(json.dumps(made))
    else:
        print(f"{made['name']}: {made['key']}")
        print(f"Scopes {', '.join(made['scopes'])}; project {made['project'] or 'any'}; ", end="")
        print(f"expires {made['expires_at'] or 'never'}. It is not shown again.")
    return 0


def _issue(options: argparse.Namespace, scopes: list[str]) -> dict[str, Any]:
    from mcpbridge.models import ApiKey
    from workflow.models import Project

    project_id: int | None = None
    if options.project is not None:
        project_id = Project.objects.filter(slug=options.project).values_list("pk", flat=True).first()
        if project_id is None:
            slugs = ", ".join(Project.objects.values_list("slug", flat=True)[:20])
            raise CommandError(f"--project: there is no project {options.project}; there are: {slugs or 'none'}.")
    row, raw = ApiKey.objects.issue(
        name=options.name,
        scopes=scopes,
        project_id=project_id,
        expires_in=timedelta(days=options.expires) if options.expires else None,
        rate_per_minute=options.rate,
    )
    return {
        "key": raw,
        "id": row.pk,
        "name": row.name,
        "scopes": row.scopes,
        "project": options.project,
        "expires_at": row.expires_at.isoformat() if row.expires_at else None,
    }
