"""Gates round a change, where the project turned them on: `analysis-done` is taken, `execution-done` is left."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from devflow import ports
from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Effect, Intent

if TYPE_CHECKING:
    from mcpbridge.gateway.calling import Work


_undoing: "set[asyncio.Task[None]]" = set()


def _keep(task: "asyncio.Task[None]") -> None:
    _undoing.add(task)
    task.add_done_callback(_undoing.discard)


class Gated:
    """Round one call. What was refused before it reached the backend gives the marker back."""

    def __init__(self, work: "Work") -> None:
        self._work = work
        self._taken = False

    async def __aenter__(self) -> Self:
        if self._work.is_change:
            with self._work.step("pre-gate"):
                taking = asyncio.create_task(run_blocking(self._take))
                try:
                    self._taken = await asyncio.shield(taking)
                except asyncio.CancelledError:
                    _keep(asyncio.create_task(self._undo(taking)))
                    raise
        return self

    async def _undo(self, taking: "asyncio.Task[bool]") -> None:
        """Whoever gave up cannot stop the thread that takes the marker: what it takes is given back."""
        with suppress(DevFlowError):
            if await taking:
                await run_blocking(self._give_back)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            may_leave = self._work.caller.allows(Effect.MUTATING)  # a marker is a change
            if self._taken or (self._work.request.intent is Intent.ANALYZE and may_leave):
                with self._work.step("post-gate"):
                    await run_blocking(self._leave)
        elif self._taken and not self._work.is_sent:
            await run_blocking(self._give_back)

    def _take(self) -> bool:
        caller = self._work.caller
        writer = caller.writer(self._work.action.full_name)
        gates = ports.gates()
        if not gates.are_on(caller.project.id):
            return False
        gates.take(caller.project.id, writer, session=caller.kept_session, project_root=self._work.root)
        return True

    def _leave(self) -> None:
        caller = self._work.caller
        try:
            project = caller.project
        except DevFlowError as exc:
            if exc.code is not ErrorCode.INVALID_INPUT:
                raise
            return  # an analysis that belongs to no project leaves no marker
        if not self._taken and not ports.gates().are_on(project.id):
            return
        try:
            writer = caller.writer(self._work.action.full_name)
        except DevFlowError as exc:
            if exc.code is not ErrorCode.FORBIDDEN:
                raise
            return  # who may only read analyses for themselves
        ports.gates().leave(
            project.id,
            writer,
            analysed=not self._taken,
            session=caller.kept_session,
            project_root=self._work.root,
            reason=self._work.action.full_name,
        )

    def _give_back(self) -> None:
        caller = self._work.caller
        ports.gates().leave(
            caller.project.id,
            caller.writer(self._work.action.full_name),
            analysed=True,
            session=caller.kept_session,
            project_root=self._work.root,
            reason=f"{self._work.action.full_name} was refused before it ran",
        )
