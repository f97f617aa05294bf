"""The orchestrator as tools: say what you want in words, and confirm what would change something."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.agentify import orchestrator
from mcpbridge.agentify.extraction import Surroundings, path_of
from mcpbridge.agentify.tasks import Task
from mcpbridge.gateway.policy import MAX_TIMEOUT_MS
from mcpbridge.tooling import Caller, Effect, Intent, LongText, OptionalText, tool
from mcpbridge.tools.gateway import SECONDS_OVER, Envelope

CHOOSING_SECONDS = 2 * 300.0
"""The longest two questions to a model may take (llm.timeout_seconds is at most 300)."""

EffectName = Literal["READ_ONLY", "MUTATING", "EXTERNAL_EXEC"]
Place = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]


class TaskContext(BaseModel):
    """What the client has open."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    activeDocumentURI: Place | None = Field(None, description="URI of the open document.")  # noqa: N815  # its name
    currentWorkingDirectory: Place | None = Field(  # noqa: N815  # its name
        None, description="Directory the client works in; where it is allowed, the action works there too."
    )
    selectionText: OptionalText | None = Field(None, description="The selected text.")  # noqa: N815  # its name

    def surroundings(self) -> Surroundings:
        return Surroundings(
            document=path_of(self.activeDocumentURI or ""),
            directory=path_of(self.currentWorkingDirectory or ""),
            selection=self.selectionText or "",
        )


@tool(
    intent=Intent.EXECUTE,
    effect=Effect.EXTERNAL_EXEC,
    admits=Effect.READ_ONLY,
    toolset="gateway",
    needs_project=False,
    destructive=True,
    dialect="gateway",
    deadline=MAX_TIMEOUT_MS / 1000 + SECONDS_OVER + CHOOSING_SECONDS,
)
async def orchestrate_task(
    caller: Caller,
    *,
    query: LongText,
    context: TaskContext | None = None,
    allow_effects: Annotated[list[EffectName], Field(max_length=3)] | None = None,
) -> Envelope:
    """Say what you want in words; one action of one backend is chosen and run. Answers the gateway's envelope.

    What only reads runs at once. What changes something comes back as result.data.plan, to be run with confirm_plan
    within ten minutes, unless allow_effects names its effect. meta.orchestration says how the action was chosen and
    what else was near. A task that is an action's name (with {"its": "parameters"}) needs no model.

    Args:
        query: The task, such as "which files match *.test.ts below /srv/app?".
        context: activeDocumentURI, currentWorkingDirectory, selectionText: what you have open.
        allow_effects: Effects that may happen at once, such as ["MUTATING"]; nothing beyond them is considered.
    """
    task = Task(
        query=query,
        around=context.surroundings() if context else Surroundings(),
        allow_effects=None if allow_effects is None else frozenset(map(Effect, allow_effects)),
    )
    return _envelope(await orchestrator.orchestrate(caller, task))


@tool(
    intent=Intent.EXECUTE,
    effect=Effect.EXTERNAL_EXEC,
    admits=Effect.READ_ONLY,
    toolset="gateway",
    needs_project=False,
    destructive=True,
    dialect="gateway",
    deadline=MAX_TIMEOUT_MS / 1000 + SECONDS_OVER,
)
async def confirm_plan(
    caller: Caller,
    *,
    plan_id: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00]*$")],
    signature: Annotated[OptionalText, Field(max_length=64)] = "",
) -> Envelope:
    """Run a plan that orchestrate_task gave you. It runs once, within ten minutes, with the key that asked for it.

    Args:
        plan_id: The plan's plan_id.
        signature: The plan's signature, to be sure that it is the plan you saw.
    """
    return _envelope(await orchestrator.confirm(caller, plan_id, signature=signature))


def _envelope(made: dict[str, Any]) -> Envelope:
    return Envelope.model_validate(made)
