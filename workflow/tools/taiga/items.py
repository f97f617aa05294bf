"""What the tools of every kind of item share: list, read, make, change, delete."""

from typing import Any

from mcpbridge.tooling import Caller
from workflow.taiga.provider import Filters, KindName
from workflow.tools.taiga.declaring import Object, reader, writer
from workflow.tools.taiga.results import paged
from workflow.tools.taiga.schemas import DEFAULT_LIMIT, Changing, DeleteEntity, GetEntity, Listing, Making

TOLD_AT_ONCE = 50


def listed(caller: Caller, kind: KindName, asked: Listing, **filters: Any) -> Object:
    """One page of a list; a large one is told of in parts while it is made."""
    wanted: Filters = asked.filters(**filters)
    is_large = asked.limit > DEFAULT_LIMIT
    if is_large:
        caller.report(0, None, f"Reading: {kind.replace('_', ' ')}")
    page = reader(caller, asked.project_id).find(kind, wanted, offset=asked.offset, limit=asked.limit)
    if is_large:
        for start in range(0, len(page.items), TOLD_AT_ONCE):
            caller.check_cancelled()
            part = page.items[start : start + TOLD_AT_ONCE]
            refs = ", ".join(f"#{item['ref']}" for item in part)
            caller.report(start + len(part), len(page.items), refs)
    return paged(page, offset=asked.offset, limit=asked.limit)


def got(caller: Caller, kind: KindName, asked: GetEntity) -> Object:
    return reader(caller, asked.project_id).get(kind, asked.which, comments=asked.include_comments)


def made(caller: Caller, kind: KindName, asked: Making) -> Object:
    return writer(caller, asked.project_id, f"create_{kind}").create(kind, asked.fields())


def changed(caller: Caller, kind: KindName, asked: Changing) -> Object:
    provider = writer(caller, asked.project_id, f"update_{kind}")
    return provider.update(kind, asked.which, asked.changes(), version=asked.version, comment=asked.comment or "")


def deleted(caller: Caller, kind: KindName, asked: DeleteEntity) -> Object:
    writer(caller, asked.project_id, f"delete_{kind}").delete(kind, asked.id)
    return {"id": asked.id, "deleted": True}
