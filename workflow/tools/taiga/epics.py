"""Epics: large pieces of work whose user stories belong together."""

from typing import Any

from pydantic import Field, model_validator

from mcpbridge.tooling import Caller, Effect
from workflow.tools.taiga import items, results
from workflow.tools.taiga.declaring import Object, taiga_tool
from workflow.tools.taiga.schemas import (
    Asked,
    Changing,
    Color,
    DeleteEntity,
    Description,
    GetEntity,
    Id,
    Listing,
    Making,
    Maybe,
    Tags,
    Wanted,
)


class ListEpics(Listing):
    pass


class SearchEpics(Listing):
    query: Wanted = Field(description="Words that subject or description have, or a number such as #12.")


class EpicFields(Asked):
    description: Maybe[Description] = Field(None, description="What it is about, as Markdown.")
    color: Maybe[Color] = Field(None, description="As #4da6ff.")
    status_id: Maybe[Id] = Field(None, description="One of the statuses of epics (taiga.get_statuses).")
    assigned_to_id: Id | None = Field(None, description="The member it is assigned to; null: nobody.")
    tags: Maybe[Tags] = Field(None, description="Its tags, all of them.")

    @model_validator(mode="before")
    @classmethod
    def _title_is_a_subject(cls, given: Any) -> Any:
        if isinstance(given, dict) and "title" in given and "subject" not in given:
            return {**{name: value for name, value in given.items() if name != "title"}, "subject": given["title"]}
        return given


class CreateEpic(EpicFields, Making):
    pass


class UpdateEpic(EpicFields, Changing):
    pass


@taiga_tool("list_epics", takes=ListEpics, gives=results.EpicPage)
def list_epics(caller: Caller, asked: ListEpics) -> Object:
    """List the project's epics with their stories' ids and progress."""
    return items.listed(caller, "epic", asked)


@taiga_tool("search_epics", takes=SearchEpics, gives=results.EpicPage)
def search_epics(caller: Caller, asked: SearchEpics) -> Object:
    """Find epics by words in subject and description."""
    return items.listed(caller, "epic", asked)


@taiga_tool("get_epic", takes=GetEntity, gives=results.Epic)
def get_epic(caller: Caller, asked: GetEntity) -> Object:
    """Read one epic in full, by id or ref: description, its stories' ids, how much of their tasks is done."""
    return items.got(caller, "epic", asked)


@taiga_tool("create_epic", takes=CreateEpic, gives=results.Epic, effect=Effect.MUTATING)
def create_epic(caller: Caller, asked: CreateEpic) -> Object:
    """Create an epic. Put user stories under it with taiga.create_user_story."""
    return items.made(caller, "epic", asked)


@taiga_tool("update_epic", takes=UpdateEpic, gives=results.Epic, effect=Effect.MUTATING)
def update_epic(caller: Caller, asked: UpdateEpic) -> Object:
    """Change an epic, by id or ref. Only what you give changes; send the version you read to overwrite nobody."""
    return items.changed(caller, "epic", asked)


@taiga_tool("delete_epic", takes=DeleteEntity, gives=results.Deleted, effect=Effect.MUTATING, destructive=True)
def delete_epic(caller: Caller, asked: DeleteEntity) -> Object:
    """Delete an epic for good. Its stories stay, under no epic."""
    return items.deleted(caller, "epic", asked)
