"""The statuses, types, roles and points a project starts with. Each project may have its own."""

from dataclasses import dataclass

from django.db import transaction

from workflow.models import AgileRole, Category, IssueType, ItemStatus, Kind, Point, Project, Status


@dataclass(frozen=True, slots=True)
class _State:
    name: str
    category: Category
    color: str
    core: str = ""


_GREY, _BLUE, _ORANGE, _RED, _GREEN, _DARK = "#70728f", "#4da6ff", "#e47c40", "#e44057", "#5da65d", "#4a4a55"

_STORY = (
    _State("New", Category.NEW, _GREY),
    _State("Ready", Category.NEW, _ORANGE),
    _State("In progress", Category.IN_PROGRESS, _BLUE),
    _State("Ready for test", Category.IN_PROGRESS, "#fcc000"),
    _State("Blocked", Category.BLOCKED, _RED),
    _State("Done", Category.DONE, _GREEN),
    _State("Archived", Category.CLOSED, _DARK),
)

STATES: dict[Kind, tuple[_State, ...]] = {
    Kind.EPIC: (_STORY[0], *_STORY[2:4], _STORY[5]),
    Kind.USER_STORY: _STORY,
    Kind.TASK: (
        _State("New", Category.NEW, _GREY),
        _State("In progress", Category.IN_PROGRESS, _BLUE, Status.IN_PROGRESS),
        _State("Ready for test", Category.OTHER, "#fcc000", Status.REVIEW),
        _State("Blocked", Category.BLOCKED, _RED),
        _State("Done", Category.DONE, _GREEN, Status.DONE),
        _State("Failed", Category.OTHER, _RED, Status.FAILED),
        _State("Cancelled", Category.CLOSED, _DARK, Status.CANCELLED),
    ),
    Kind.ISSUE: (
        _State("New", Category.NEW, _GREY),
        _State("In progress", Category.IN_PROGRESS, _BLUE),
        _State("Ready for test", Category.IN_PROGRESS, "#fcc000"),
        _State("Needs info", Category.BLOCKED, _ORANGE),
        _State("Done", Category.DONE, _GREEN),
        _State("Rejected", Category.CLOSED, _DARK),
    ),
}
TYPES = (("Bug", "#e44057"), ("Question", "#5178d3"), ("Enhancement", "#40e4ce"))
ROLES = (
    ("UX", True),
    ("Design", True),
    ("Front", True),
    ("Back", True),
    ("Product Owner", False),
    ("Stakeholder", False),
)
POINTS: tuple[tuple[str, float | None], ...] = (
    *(("?", None), ("0", 0), ("1/2", 0.5), ("1", 1), ("2", 2), ("3", 3), ("5", 5), ("8", 8), ("10", 10)),
    *(("13", 13), ("20", 20), ("40", 40)),
)


def slug_of(name: str) -> str:
    return "-".join("".join(c if c.isalnum() and c.isascii() else " " for c in name.lower()).split()) or "item"


def ensure(project: Project) -> None:
    """Give a project the usual words, unless it has words of its own already. Costs one query when it has."""
    if not ItemStatus.objects.filter(project=project).exists():  # not in a transaction: on SQLite that locks
        _give_words(project)


@transaction.atomic
def _give_words(project: Project) -> None:
    Project.objects.select_for_update(no_key=True).get(pk=project.pk)
    if ItemStatus.objects.filter(project=project).exists():
        return
    ItemStatus.objects.bulk_create(
        ItemStatus(
            project=project,
            kind=kind,
            name=state.name,
            slug=slug_of(state.name),
            order=number,
            category=state.category,
            color=state.color,
            core=state.core,
        )
        for kind, states in STATES.items()
        for number, state in enumerate(states, 1)
    )
    IssueType.objects.bulk_create(
        IssueType(project=project, name=name, slug=slug_of(name), order=number, color=color)
        for number, (name, color) in enumerate(TYPES, 1)
    )
    AgileRole.objects.bulk_create(
        AgileRole(project=project, name=name, slug=slug_of(name), order=number, estimates=estimates)
        for number, (name, estimates) in enumerate(ROLES, 1)
    )
    Point.objects.bulk_create(
        Point(project=project, name=name, value=value, order=number) for number, (name, value) in enumerate(POINTS, 1)
    )
