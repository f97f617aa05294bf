"""Tasks of user stories: the same cards the board shows."""

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
    Listing,
    Making,
    Maybe,
    Priority,
    Tags,
    Wanted,
)


class ListTasks(Listing):
    user_story_id: Maybe[Id] = Field(None, description="Only those of this user story.")
    is_blocked: Maybe[bool] = Field(None, description="Only those that are held back, or are not.")


class SearchTasks(ListTasks):
    query: Wanted = Field(description="Words that subject or description have, or a number such as #12.")


class TaskFields(Asked):
    description: Maybe[Description] = Field(None, description="What has to be done, as Markdown.")
    assigned_to_id: Id | None = Field(None, description="The member it is assigned to; null: nobody.")
    tags: Maybe[Tags] = Field(None, description="Its tags, all of them.")
    priority: Maybe[Priority] = Field(None, description="How soon it is claimed among the ready ones of its phase.")


class CreateTask(TaskFields, Making):
    user_story_id: Id = Field(description="The user story it belongs to.")


class UpdateTask(TaskFields, Changing):
    status_id: Maybe[Id] = Field(
        None, description="One of the statuses of tasks (taiga.get_statuses). Moves the card, by the board's rules."
    )


@taiga_tool("list_tasks", takes=ListTasks, gives=results.TaskPage)
def list_tasks(caller: Caller, asked: ListTasks) -> Object:
    """List the project's tasks, of one user story or of all. To get work use claim_task: looking reserves nothing."""
    return items.listed(caller, "task", asked, user_story_id=asked.user_story_id, is_blocked=asked.is_blocked)


@taiga_tool("search_tasks", takes=SearchTasks, gives=results.TaskPage)
def search_tasks(caller: Caller, asked: SearchTasks) -> Object:
    """Find tasks by words in subject and description."""
    return items.listed(caller, "task", asked, user_story_id=asked.user_story_id, is_blocked=asked.is_blocked)


@taiga_tool("get_task", takes=GetEntity, gives=results.Task)
def get_task(caller: Caller, asked: GetEntity) -> Object:
    """Read one task in full, by id or ref: description, story, status, and who holds it on the board."""
    return items.got(caller, "task", asked)


@taiga_tool("create_task", takes=CreateTask, gives=results.Task, effect=Effect.MUTATING)
def create_task(caller: Caller, asked: CreateTask) -> Object:
    """Create a task under a user story. It is a card on the board, in the story's phase or the project's first."""
    return items.made(caller, "task", asked)


@taiga_tool("update_task", takes=UpdateTask, gives=results.Task, effect=Effect.MUTATING)
def update_task(caller: Caller, asked: UpdateTask) -> Object:
    """Change a task, by id or ref. Only what you give changes; send the version you read to overwrite nobody.

    A statusId moves the card under the board's rules: in progress claims it for you, done finishes your claim.
    """
    return items.changed(caller, "task", asked)


@taiga_tool("delete_task", takes=DeleteEntity, gives=results.Deleted, effect=Effect.MUTATING, destructive=True)
def delete_task(caller: Caller, asked: DeleteEntity) -> Object:
    """Delete a task for good, if nobody holds it. Tasks that waited for it no longer do."""
    return items.deleted(caller, "task", asked)
