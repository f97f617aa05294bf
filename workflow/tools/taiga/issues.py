"""Issues: bugs, questions and wishes."""

from typing import Annotated

from pydantic import Field

from mcpbridge.tooling import Caller, Effect
from workflow.tools.taiga import items, results
from workflow.tools.taiga.declaring import Object, taiga_tool
from workflow.tools.taiga.schemas import (
    Asked,
    Changing,
    DeleteEntity,
    Description,
    GetEntity,
    Id,
    Ids,
    Listing,
    Making,
    Maybe,
    Priority,
    Severity,
    Tags,
    Wanted,
)


class ListIssues(Listing):
    severity: Maybe[Annotated[list[Severity], Field(max_length=6)]] = Field(
        None, description="Only of these severities."
    )
    priority: Maybe[Annotated[list[Priority], Field(max_length=5)]] = Field(
        None, description="Only of these priorities."
    )
    type_ids: Maybe[Ids] = Field(None, description="Only of these types.")


class SearchIssues(ListIssues):
    query: Wanted = Field(description="Words that subject or description have, or a number such as #12.")


class IssueFields(Asked):
    description: Maybe[Description] = Field(None, description="What is wrong or wanted, as Markdown.")
    type_id: Maybe[Id] = Field(None, description="One of the project's types of issues; default: the first.")
    severity: Maybe[Severity] = Field(None, description="How bad it is; default: normal.")
    priority: Maybe[Priority] = Field(None, description="How soon it should be dealt with; default: normal.")
    status_id: Maybe[Id] = Field(None, description="One of the statuses of issues (taiga.get_statuses).")
    assigned_to_id: Id | None = Field(None, description="The member it is assigned to; null: nobody.")
    tags: Maybe[Tags] = Field(None, description="Its tags, all of them.")


class CreateIssue(IssueFields, Making):
    pass


class UpdateIssue(IssueFields, Changing):
    pass


@taiga_tool("list_issues", takes=ListIssues, gives=results.IssuePage)
def list_issues(caller: Caller, asked: ListIssues) -> Object:
    """List the project's issues."""
    return items.listed(caller, "issue", asked, **_narrowed(asked))


@taiga_tool("search_issues", takes=SearchIssues, gives=results.IssuePage)
def search_issues(caller: Caller, asked: SearchIssues) -> Object:
    """Find issues by words in subject and description."""
    return items.listed(caller, "issue", asked, **_narrowed(asked))


def _narrowed(asked: ListIssues) -> Object:
    return {
        "severity": tuple(asked.severity or ()),
        "priority": tuple(asked.priority or ()),
        "type_ids": tuple(asked.type_ids or ()),
    }


@taiga_tool("get_issue", takes=GetEntity, gives=results.Issue)
def get_issue(caller: Caller, asked: GetEntity) -> Object:
    """Read one issue in full, by id or ref."""
    return items.got(caller, "issue", asked)


@taiga_tool("create_issue", takes=CreateIssue, gives=results.Issue, effect=Effect.MUTATING)
def create_issue(caller: Caller, asked: CreateIssue) -> Object:
    """Create an issue: a bug, a question or a wish."""
    return items.made(caller, "issue", asked)


@taiga_tool("update_issue", takes=UpdateIssue, gives=results.Issue, effect=Effect.MUTATING)
def update_issue(caller: Caller, asked: UpdateIssue) -> Object:
    """Change an issue, by id or ref. Only what you give changes; send the version you read to overwrite nobody."""
    return items.changed(caller, "issue", asked)


@taiga_tool("delete_issue", takes=DeleteEntity, gives=results.Deleted, effect=Effect.MUTATING, destructive=True)
def delete_issue(caller: Caller, asked: DeleteEntity) -> Object:
    """Delete an issue for good."""
    return items.deleted(caller, "issue", asked)
