"""The log of calls as other rooms read it, through `devflow.ports.CallLog`."""

from collections.abc import Sequence

from django.db.models import Q

from devflow.ports import CallMade, Span
from mcpbridge.models import ToolCall


class LoggedCalls:
    def made(self, project_id: int, spans: Sequence[Span], *, limit: int) -> Sequence[CallMade]:
        """The newest calls of a project within any of `spans`, newest first. One query."""
        if not spans:
            return ()
        wanted = Q()
        for span in spans:
            one = Q(agent_name=span.agent)
            if span.since is not None:
                one &= Q(at__gte=span.since)
            if span.until is not None:
                one &= Q(at__lte=span.until)
            wanted |= one
        rows = ToolCall.objects.filter(wanted, project=project_id).order_by("-at", "-pk")[:limit]
        return [
            CallMade(row.at, row.agent_name, row.tool, row.outcome, row.duration_ms, row.arguments, row.error)
            for row in rows.only("at", "agent_name", "tool", "outcome", "duration_ms", "arguments", "error")
        ]
