"""User stories: what somebody gets, made of tasks."""

from pydantic import Field

from mcpbridge.tooling import Caller, Effect
from workflow.tools.taiga import items, results
from workflow.tools.taiga.declaring import Object, taiga_tool
from workflow.tools.taiga.schemas import (
    Asked,
    Category,
    Changing,
    Day,
    DeleteEntity,
    Description,
    GetEntity,
    Id,
    Listing,
    Making,
    Maybe,
    Points,
    Priority,
    Tags,
    Wanted,
)


class ListUserStories(Listing):
    epic_id: Maybe[Id] = Field(None, description="Only those of this epic.")
    sprint_id: Maybe[Id] = Field(None, description="Only those planned into this sprint.")
    status_category: Maybe[Category] = Field(None, description="Only those whose status means this.")
    is_blocked: Maybe[bool] = Field(None, description="Only those that are blocked, or are not.")


class SearchUserStories(ListUserStories):
    query: Wanted = Field(description="Words that subject or description have, or a number such as #12.")


class StoryFields(Asked):
    description: Maybe[Description] = Field(None, description="What it is about, as Markdown.")
    epic_id: Id | None = Field(None, description="The epic it belongs to; null: none.")
    sprint_id: Id | None = Field(None, description="The sprint it is planned into; null: none.")
    status_id: Maybe[Id] = Field(None, description="One of the statuses of user stories (taiga.get_statuses).")
    assigned_to_id: Id | None = Field(None, description="The member it is assigned to; null: nobody.")
    tags: Maybe[Tags] = Field(None, description="Its tags, all of them.")
    priority: Maybe[Priority] = Field(None, description="How much it matters.")
    points: Maybe[Points] = Field(None, description='Estimates by role, such as {"back": 3}; null: not known.')
    due_date: Day | None = Field(None, description="The day it is due, as 2026-01-31; null: none.")


class CreateUserStory(StoryFields, Making):
    pass


class UpdateUserStory(StoryFields, Changing):
    pass


@taiga_tool("list_user_stories", takes=ListUserStories, gives=results.UserStoryPage)
def list_user_stories(caller: Caller, asked: ListUserStories) -> Object:
    """List the project's user stories in the order of the backlog, with their tasks' ids and progress."""
    return items.listed(caller, "user_story", asked, **_narrowed(asked))


@taiga_tool("search_user_stories", takes=SearchUserStories, gives=results.UserStoryPage)
def search_user_stories(caller: Caller, asked: SearchUserStories) -> Object:
    """Find user stories by words in subject and description."""
    return items.listed(caller, "user_story", asked, **_narrowed(asked))


def _narrowed(asked: ListUserStories) -> Object:
    return {
        "epic_id": asked.epic_id,
        "sprint_id": asked.sprint_id,
        "status_category": asked.status_category or "",
        "is_blocked": asked.is_blocked,
    }


@taiga_tool("get_user_story", takes=GetEntity, gives=results.UserStory)
def get_user_story(caller: Caller, asked: GetEntity) -> Object:
    """Read one user story in full, by id or ref: description, points, its tasks' ids, how many are done."""
    return items.got(caller, "user_story", asked)


@taiga_tool("create_user_story", takes=CreateUserStory, gives=results.UserStory, effect=Effect.MUTATING)
def create_user_story(caller: Caller, asked: CreateUserStory) -> Object:
    """Create a user story, under an epic if you name one. Give it tasks with taiga.create_task."""
    return items.made(caller, "user_story", asked)


@taiga_tool("update_user_story", takes=UpdateUserStory, gives=results.UserStory, effect=Effect.MUTATING)
def update_user_story(caller: Caller, asked: UpdateUserStory) -> Object:
    """Change a user story, by id or ref. Only what you give changes; send the version you read to overwrite nobody."""
    return items.changed(caller, "user_story", asked)


@taiga_tool("delete_user_story", takes=DeleteEntity, gives=results.Deleted, effect=Effect.MUTATING, destructive=True)
def delete_user_story(caller: Caller, asked: DeleteEntity) -> Object:
    """Delete a user story for good. Its tasks stay on the board, under no story."""
    return items.deleted(caller, "user_story", asked)
