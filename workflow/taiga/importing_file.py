"""Importing the export file of a Taiga project."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from devflow.actors import Actor
from devflow.errors import invalid
from workflow.models import Project
from workflow.taiga import importing
from workflow.taiga.dump import Dump
from workflow.taiga.importing import Imported, Report
from workflow.taiga.provider import KINDS, KindName

PER_PAGE = 100


def bring(dump: Dump, *, into: Project, actor: Actor, report: Report | None = None) -> Imported:
    """Copy what an export holds. Repeated, or gone on with after it was cut short, it makes nothing twice: items are
    known by the project's slug in the file and their number.

    Raises `conflict` for a project without phases, `invalid_input` for an export that contradicts itself.
    """
    try:
        at_work = importing.begin(
            into,
            source=f"file:{dump.slug}",
            attributes=dump.attributes,
            actor=actor,
            report=report,
            total=dump.total,
        )
        for kind in KINDS:
            rows = dump.rows[kind]
            for first in range(0, len(rows), PER_PAGE):
                importing.written(
                    at_work,
                    kind,
                    rows[first : first + PER_PAGE],
                    whole=partial(_whole, dump, kind),
                )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise invalid(
            "The export contradicts itself; what came before this item was imported.",
            file=f"{type(exc).__name__}: {str(exc)[:200]}",
        ) from exc
    return importing.end(at_work, told={"file": dump.slug})


def _whole(dump: Dump, kind: KindName, wanted: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], list[Any]]]:
    return [(row, dump.histories[kind, row["ref"]]) for row in wanted]
