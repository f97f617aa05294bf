"""What happened: every change with who made it through what, filtered by the address, newest first."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_safe

from devflow.digits import whole
from workflow.models import Agent, Event, Project, Task
from workflow.selectors import activity
from workflow.views.shell import page, project_of
from workflow.views.trail import SAID, said, trail

ROWS = 50
MOST_NEW = 99
MOST_NAMES = 200
ACTORS = (("agent", "any agent"), ("person", "any person"), ("system", "DevFlow itself"))
FAMILIES = {
    "task": "Tasks",
    "message": "Messages",
    "agent": "Agents",
    "gate": "Gates",
    "phase": "Phases",
    "epic": "Epics",
    "story": "Stories",
    "issue": "Issues",
    "sprint": "Sprints",
    "project": "Project",
}


@dataclass(frozen=True, slots=True)
class EventFilter:
    """`kind`: one kind, or a family of them (`task`); `actor`: agent, person, system or a person's name (`@mia`)."""

    kind: str = ""
    actor: str = ""
    agent: str = ""
    task: int | None = None

    @classmethod
    def of(cls, given: QueryDict) -> "EventFilter":
        """Read an address; what cannot be meant is left out."""
        kind, actor, agent = (given.get(name, "").replace("\0", "")[:150] for name in ("kind", "actor", "agent"))
        return cls(
            kind=kind if kind in SAID or kind in FAMILIES else "",
            actor=actor if actor.startswith("@") or actor in dict(ACTORS) else "",
            agent=agent,
            task=whole(given.get("task", "").removeprefix("task-")),
        )

    def pairs(self) -> list[tuple[str, str]]:
        found = [("kind", self.kind), ("actor", self.actor), ("agent", self.agent)]
        found.append(("task", f"task-{self.task}" if self.task else ""))
        return [pair for pair in found if pair[1]]

    def query(self, **more: object) -> str:
        return urlencode([*self.pairs(), *((name, str(value)) for name, value in more.items())])

    def apply(self, events: QuerySet[Event]) -> QuerySet[Event]:
        if self.kind:
            events = events.filter(Q(kind=self.kind) if "." in self.kind else Q(kind__startswith=f"{self.kind}."))
        if self.actor.startswith("@"):
            events = events.filter(actor_kind="person", actor_name=self.actor[1:])
        elif self.actor:
            events = events.filter(actor_kind=self.actor)
        if self.agent:
            events = events.filter(agent__name=self.agent)
        return events if self.task is None else events.filter(task=self.task)


@page
@require_safe
def happened(request: HttpRequest) -> HttpResponse:
    """The page; for its own script, with `?after=`, how many events there are behind the newest it shows."""
    project, projects = project_of(request)
    if project is None:
        return render(request, "workflow/activity.html", {"project": None, "projects": projects, "here": "activity"})
    wanted = EventFilter.of(request.GET)
    events = wanted.apply(activity.feed(project_id=project.pk))
    after = whole(request.GET.get("after", ""))
    if request.headers.get("HX-Request") and after is not None:
        new = len(events.filter(pk__gt=after).values_list("pk", flat=True)[: MOST_NEW + 1])
        return render(request, "workflow/_activity_news.html", {"new": new, "most": MOST_NEW, "wanted": wanted})
    before = whole(request.GET.get("before", ""))
    seq = activity.newest(project_id=project.pk)
    rows = list((events if before is None else events.filter(pk__lt=before))[: ROWS + 1])
    context = {
        "project": project,
        "projects": projects,
        "seq": seq,
        "wanted": wanted,
        "shows_newest": before is None,
        "newest": max([seq, *(row.pk for row in rows[:1])]),
        "trail": trail(rows[:ROWS]),
        "older": wanted.query(before=rows[ROWS - 1].pk) if len(rows) > ROWS else "",
        "here": "activity",
    }
    return render(request, "workflow/activity.html", context | _choices(project, wanted))


def _choices(project: Project, wanted: EventFilter) -> dict[str, Any]:
    """What the filters offer."""
    families = [
        (name, title, [(kind, said(kind)) for kind in SAID if kind.startswith(f"{name}.")])
        for name, title in FAMILIES.items()
    ]
    people = get_user_model()._default_manager.filter(memberships__project=project).order_by("username")
    names = [f"@{name}" for name in people.values_list("username", flat=True)[:MOST_NAMES]]
    if wanted.actor.startswith("@") and wanted.actor not in names:
        names.append(wanted.actor)
    agents = list(
        Agent.objects.filter(project=project).order_by("-last_seen").values_list("name", flat=True)[:MOST_NAMES]
    )
    if wanted.agent and wanted.agent not in agents:
        agents.append(wanted.agent)
    about = Task.objects.filter(project=project, pk=wanted.task).only("ref", "subject").first() if wanted.task else None
    return {
        "families": families,
        "actors": ACTORS,
        "people": names,
        "agents": sorted(agents, key=str.casefold),
        "about": about,
    }
