"""Many user stories in one call."""

from typing import Annotated, Any, NotRequired

from pydantic import Field

from devflow.errors import DevFlowError, invalid, taiga_error
from mcpbridge.tooling import MAX_LIST, Caller, Effect
from workflow.taiga.provider import Provider, Which
from workflow.tools.taiga import results
from workflow.tools.taiga.declaring import ERROR, Object, taiga_tool, writer
from workflow.tools.taiga.schemas import (
    Asked,
    Blocked,
    Id,
    InProject,
    Maybe,
    Prose,
    Ref,
    Subject,
    Version,
    check_day,
    exactly_one,
)
from workflow.tools.taiga.stories import StoryFields


class Fields(StoryFields):
    subject: Maybe[Subject] = Field(None, description="Its title.")
    blocked: Maybe[Blocked] = Field(None, description="Block it with a reason, or let it go on.")
    comment: Maybe[Prose] = Field(None, description="A comment to leave on it.")

    def settle(self) -> None:
        if not self.model_fields_set:
            raise invalid("fields: Nothing to change", fields="give at least one field")
        check_day(self)


class Change(Asked):
    id: Maybe[Id] = Field(None, description="The story's id; or give ref.")
    ref: Maybe[Ref] = Field(None, description="Its number in the project; or give id.")
    version: Maybe[Version] = Field(None, description="The version you read; a newer one is a conflict.")
    fields: Fields = Field(description="What to change, as in taiga.update_user_story.")

    def settle(self) -> None:
        exactly_one(self, "id", "ref")
        self.fields.settle()


class BatchUpdate(InProject):
    items: Annotated[list[Change], Field(min_length=1, max_length=MAX_LIST)] = Field(
        description="The changes, made in this order."
    )


class Done(results.Exact):
    """`{ok: true, data}` or `{ok: false, error}`."""

    ok: bool
    data: NotRequired[results.UserStory]
    error: NotRequired[Annotated[dict[str, Any], Field(json_schema_extra=ERROR)]]


class BatchDone(results.Exact):
    items: Annotated[list[Done], Field(description="One for each change, in the same order.")]
    succeeded: int
    failed: int


@taiga_tool("batch_update_user_stories", takes=BatchUpdate, gives=BatchDone, effect=Effect.MUTATING, deadline=120.0)
def batch_update_user_stories(caller: Caller, asked: BatchUpdate) -> Object:
    """Change up to 200 user stories in one call. Each change succeeds or fails by itself: look at each item's ok."""
    provider = writer(caller, asked.project_id, "batch_update_user_stories")
    answers: list[Object] = []
    for change in asked.items:
        caller.check_cancelled()
        answers.append(_done(provider, change))
        caller.report(len(answers), len(asked.items), None if answers[-1]["ok"] else answers[-1]["error"]["message"])
    succeeded = sum(answer["ok"] for answer in answers)
    return {"items": answers, "succeeded": succeeded, "failed": len(answers) - succeeded}


def _done(provider: Provider, change: Change) -> Object:
    """One change; a provider's update either happens whole or not at all."""
    try:
        change.settle()
        fields = change.fields.given("comment")
        which = Which(id=change.id, ref=change.ref)
        comment = change.fields.comment or ""
        return {
            "ok": True,
            "data": provider.update("user_story", which, fields, version=change.version, comment=comment),
        }
    except DevFlowError as exc:
        return {"ok": False, "error": taiga_error(exc)}
