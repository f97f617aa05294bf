"""The demo's plan: two epics with their stories over the demo's tasks, a sprint, issues."""

from collections.abc import Mapping
from datetime import timedelta

from django.utils import timezone

from devflow.actors import Actor
from workflow.models import ItemStatus, Kind, Project, Sprint, Task
from workflow.services.agile import items

EPICS = (
    (
        "Sign in with tokens",
        "#4da6ff",
        (
            (
                "As a customer I stay signed in on my phone",
                {"back": 5, "front": 3},
                ("map", "tokens", "login", "refresh"),
            ),
            ("As an operator I see who may call what", {"back": 3}, ("middleware",)),
        ),
    ),
    (
        "Payments that never charge twice",
        "#40e4ce",
        (
            ("As a customer I am charged once, whatever the network does", {"back": 8}, ("limits", "retry", "e2e")),
            ("As an accountant I trust every message of the provider", {"back": 3}, ("webhook", "invoice")),
        ),
    ),
)
LOOSE = ("As an accountant I take all orders home", {"back": 2, "ux": 1}, ("export", "load"))
ISSUES = (
    ("The order list forgets its filter", "minor", "normal"),
    ("Refunds above 1,000 are rounded", "critical", "highest"),
)


def plan(project: Project, *, tasks: Mapping[str, Task], actor: Actor) -> None:
    """Lay the plan over the tasks of the demo."""
    today = timezone.localdate()
    sprint: Sprint | None = None
    for subject, color, stories in EPICS:
        epic = items.create(Kind.EPIC, project=project, actor=actor, fields={"subject": subject, "color": color})
        sprint = sprint or Sprint.objects.create(
            project=project,
            name="Sprint 1",
            slug="sprint-1",
            starts_on=today - timedelta(days=9),
            ends_on=today + timedelta(days=5),
        )
        for story in stories:
            _story(project, story, tasks=tasks, actor=actor, epic_id=epic.pk, sprint_id=sprint.pk)
    _story(project, LOOSE, tasks=tasks, actor=actor)
    for subject, severity, priority in ISSUES:
        fields = {"subject": subject, "severity": severity, "priority": priority}
        items.create(Kind.ISSUE, project=project, actor=actor, fields=fields)


def _story(
    project: Project,
    story: tuple[str, Mapping[str, int], tuple[str, ...]],
    *,
    tasks: Mapping[str, Task],
    actor: Actor,
    **place: int,
) -> None:
    subject, points, keys = story
    made = items.create(
        Kind.USER_STORY, project=project, actor=actor, fields={"subject": subject, "points": dict(points), **place}
    )
    under = Task.objects.filter(pk__in=[tasks[key].pk for key in keys])
    under.update(user_story=made.pk)
    if under.filter(status__in=("in_progress", "done", "review")).exists():
        status = ItemStatus.objects.get(project=project, kind=Kind.USER_STORY, slug="in-progress")
        items.update(Kind.USER_STORY, project=project, pk=made.pk, actor=actor, fields={"status_id": status.pk})
