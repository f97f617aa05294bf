"""Importing from a live Taiga: reading its pages."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from devflow.actors import Actor
from devflow.errors import not_found
from workflow.models import Project, RemoteProject
from workflow.taiga import importing
from workflow.taiga.attributes import Attributes
from workflow.taiga.client import PAGE_SIZE, TaigaClient, odd
from workflow.taiga.importing import Imported, Report
from workflow.taiga.mapping import HISTORY, PATHS
from workflow.taiga.provider import KINDS, KindName

Json = dict[str, Any]

PER_PAGE = 50
MOST_COMMENTS = 5_000


def bring(source: Project, *, into: Project, actor: Actor, report: Report | None = None) -> Imported:
    """Copy epics, stories, tasks, issues and comments, with the statuses, types, points, roles and sprints they use.

    `report(done, total, what)` is called after each page, and may raise to stop. Raises `not_found` for a source that
    is not connected, `conflict` for a project without phases, and what a Taiga that is away raises; what was copied
    before stays, and is not copied again.
    """
    remote = RemoteProject.objects.filter(project=source).first()
    if remote is None:
        raise not_found("Taiga of project", source.slug, suggestion="Connect it first: `devflow taiga connect`.")
    client = TaigaClient(remote, each=True)
    try:
        attributes = _attributes(client, remote.remote_id)
        base = {"project": remote.remote_id}
        counts = {kind: client.page(PATHS[kind], base, number=1, size=1).total for kind in KINDS}
        at_work = importing.begin(
            into,
            source=f"{remote.url}#{remote.remote_id}",
            attributes=attributes,
            actor=actor,
            report=report,
            total=sum(counts.values()),
        )
        for kind in KINDS:
            for number in range(1, -(-counts[kind] // PER_PAGE) + 1):
                rows = client.page(PATHS[kind], base, number=number, size=PER_PAGE).rows
                importing.written(at_work, kind, rows, whole=partial(_whole, client, kind))
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise odd("in another shape than Taiga 6 has") from exc
    return importing.end(at_work, told={"taiga": remote.remote_slug})


def _attributes(client: TaigaClient, id: int) -> Attributes:
    return Attributes.read(
        client.get(f"/projects/{id}"),
        client.every("/memberships", {"project": id}, most=MOST_COMMENTS),
        client.every("/milestones", {"project": id}, most=MOST_COMMENTS),
    )


def _whole(client: TaigaClient, kind: KindName, wanted: Sequence[Json]) -> list[tuple[Json, list[Json]]]:
    """The rows read one by one, which alone have descriptions, with their histories; none for what was deleted."""
    read = [body for body, _ in client.together([(f"{PATHS[kind]}/{row['id']}", {}) for row in wanted])]
    whole = [row for row in read if row]
    asked = [
        (f"{HISTORY[kind]}/{row['id']}", {"page": 1, "page_size": PAGE_SIZE})
        for row in whole
        if row.get("total_comments", 1)
    ]
    told = [body for body, _ in client.together(asked)]
    histories = dict(zip([path for path, _ in asked], told, strict=True))
    return [(row, histories.get(f"{HISTORY[kind]}/{row['id']}") or []) for row in whole]
