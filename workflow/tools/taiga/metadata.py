"""What there is to choose from in a project: statuses and members."""

from pydantic import Field

from mcpbridge.tooling import MAX_LIST, Caller
from workflow.taiga.provider import Page
from workflow.tools.taiga import results
from workflow.tools.taiga.declaring import Object, reader, taiga_tool
from workflow.tools.taiga.schemas import EntityType, Id, InProject, Maybe, Paged, Query


class GetStatuses(InProject):
    entity_type: Maybe[EntityType] = Field(None, description="Only the statuses of this kind; default: of all kinds.")


class GetMembers(InProject, Paged):
    query: Maybe[Query] = Field(None, description="Only members with this in their name.")
    role_id: Maybe[Id] = Field(None, description="Only members of this role.")
    include_inactive: bool = Field(False, description="Members whose account is closed, too.")


@taiga_tool("get_statuses", takes=GetStatuses, gives=results.StatusPage)
def get_statuses(caller: Caller, asked: GetStatuses) -> Object:
    """List the project's statuses by kind, with what each means (category) and whether it closes an item."""
    found = reader(caller, asked.project_id).statuses(asked.entity_type)
    return results.paged(Page(found, len(found)), offset=0, limit=MAX_LIST)


@taiga_tool("get_members", takes=GetMembers, gives=results.MemberPage)
def get_members(caller: Caller, asked: GetMembers) -> Object:
    """List the project's members with their roles; their ids are what assignedToId takes."""
    page = reader(caller, asked.project_id).members(
        query=(asked.query or "").strip(),
        role_id=asked.role_id,
        include_inactive=asked.include_inactive,
        offset=asked.offset,
        limit=asked.limit,
    )
    return results.paged(page, offset=asked.offset, limit=asked.limit)
