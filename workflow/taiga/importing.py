"""Writing what a Taiga has into a project here, page by page: from a live one (`importing_live`) or a file of its
export (`importing_file`).

Each page is one transaction, so what was cut short goes on where it stopped. `ImportedItem` remembers what was made of
each object: repeated, an import makes nothing twice, and writes again only what has changed there since. What was
deleted there stays here. People are found by their user names or e-mail addresses among the members of the
project.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from django.db import transaction
from django.db.models import Max

from devflow.actors import Actor
from devflow.errors import conflict
from workflow.models import (
    POSITION_GAP,
    AgileRole,
    Category,
    Comment,
    Epic,
    ImportedItem,
    Issue,
    IssueType,
    ItemStatus,
    Kind,
    Membership,
    Note,
    Phase,
    Point,
    Project,
    Sprint,
    Status,
    Task,
    UserStory,
)
from workflow.models.agile import MAX_REASON, MAX_SUBJECT
from workflow.services import activity
from workflow.services.agile.items import COMMENTED, MAX_TAG, MAX_TAGS
from workflow.services.agile.vocabulary import slug_of
from workflow.services.tasks import MAX_TEXT
from workflow.taiga import mapping
from workflow.taiga.attributes import Attributes
from workflow.taiga.provider import KindName

Json = dict[str, Any]
Report = Callable[[int, int, str], None]
MODELS: Mapping[KindName, Any] = {"epic": Epic, "user_story": UserStory, "task": Task, "issue": Issue}


@dataclass(slots=True)
class Imported:
    """How many items were new, changed since the last time, and as they were; and how many comments came with them."""

    made: int = 0
    changed: int = 0
    same: int = 0
    comments: int = 0


@dataclass(frozen=True)
class Words:
    """The project's own rows for what Taiga's fields point to, by Taiga's ids."""

    statuses: dict[tuple[KindName, int], ItemStatus]
    types: dict[int, IssueType]
    sprints: dict[int, Sprint]
    people: dict[int, int]


@dataclass
class Import:
    """One import at work: where it writes, what Taiga's ids stand for here, and what it found so far."""

    project: Project
    source: str
    actor: Actor
    attributes: Attributes
    words: Words
    phase: Phase
    report: Report
    total: int = 0
    found: Imported = field(default_factory=Imported)

    @property
    def done(self) -> int:
        return self.found.made + self.found.changed + self.found.same


def begin(
    into: Project, *, source: str, attributes: Attributes, actor: Actor, report: Report | None, total: int
) -> Import:
    """Make the words the items need. Raises `conflict` for a project without phases."""
    phase = Phase.objects.filter(project=into).first()
    if phase is None:
        raise conflict("This project has no phases, and a task belongs to one.", suggestion="Add a phase first.")
    return Import(
        project=into,
        source=source,
        actor=actor,
        attributes=attributes,
        words=words(into, attributes),
        phase=phase,
        report=report or (lambda _done, _total, _what: None),
        total=total,
    )


def end(at_work: Import, *, told: Mapping[str, Any]) -> Imported:
    """Log that it happened, where something did."""
    found = at_work.found
    if found.made or found.changed:
        after = {**told, "made": found.made, "changed": found.changed}
        activity.record(
            kind="project.imported",
            project=at_work.project,
            actor=at_work.actor,
            subject_id=at_work.project.slug,
            after=after,
        )
    return found


@transaction.atomic
def words(project: Project, known: Attributes) -> Words:
    statuses: dict[tuple[KindName, int], ItemStatus] = {}
    for kind, rows in known.statuses.items():
        for row in rows.values():
            own, _ = ItemStatus.objects.get_or_create(
                project=project,
                kind=kind,
                slug=row["slug"][:80],
                defaults={
                    "name": row["name"][:80],
                    "order": row["order"],
                    "category": row["category"],
                    "color": row["color"],
                },
            )
            statuses[kind, row["id"]] = own
    types = {
        row["id"]: IssueType.objects.get_or_create(
            project=project, slug=slug_of(row["name"])[:80], defaults={"name": row["name"][:80], "color": row["color"]}
        )[0]
        for row in known.kept["types"]
    }
    for at, row in enumerate(known.kept["roles"], 1):
        AgileRole.objects.get_or_create(
            project=project,
            slug=row["slug"][:80],
            defaults={"name": row["name"][:80], "order": at, "estimates": row["estimates"]},
        )
    for at, row in enumerate(known.kept["points"], 1):
        Point.objects.get_or_create(
            project=project, name=row["name"][:20], defaults={"value": row["value"], "order": at}
        )
    sprints = {}
    for row in known.kept["sprints"]:
        days = sorted((date.fromisoformat(row["starts"]), date.fromisoformat(row["ends"])))
        sprints[row["id"]], _ = Sprint.objects.update_or_create(
            project=project,
            slug=row["slug"][:80],
            defaults={
                "name": row["name"][:80],
                "starts_on": days[0],
                "ends_on": days[1],
                "is_closed": row["isClosed"],
            },
        )
    members = Membership.objects.filter(project=project, user__is_active=True).select_related("user")
    here = {name.lower(): row.user_id for row in members for name in (row.user.email, row.user.get_username()) if name}
    people = {
        row["id"]: here[row["username"].lower()] for row in known.kept["members"] if row["username"].lower() in here
    }
    return Words(statuses, types, sprints, people)


def written(
    at_work: Import,
    kind: KindName,
    rows: Sequence[Json],
    *,
    whole: Callable[[Sequence[Json]], Sequence[tuple[Json, Sequence[Json]]]],
) -> None:
    """Write one page in one transaction. `whole` gives those rows that are new or changed, each with its history."""
    known = {
        item.key: item
        for item in ImportedItem.objects.filter(
            project=at_work.project, source=at_work.source, kind=kind, key__in=[str(row["id"]) for row in rows]
        )
    }
    wanted = [row for row in rows if not _is_known(known.get(str(row["id"])), row)]
    read = whole(wanted)
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=at_work.project.pk)
        for row, history in read:
            item = _written(at_work, kind, row, known.get(str(row["id"])))
            _comments(at_work, kind, item, history)
        _count_on(at_work.project)
    at_work.found.same += len(rows) - len(wanted)
    at_work.report(at_work.done, at_work.total, mapping.SPOKEN[kind])


def _is_known(item: ImportedItem | None, row: Json) -> bool:
    return item is not None and item.version >= row["version"]


def _written(at_work: Import, kind: KindName, row: Json, known: ImportedItem | None) -> Any:
    """The row here. One that was deleted here since is made again."""
    model = MODELS[kind]
    made = mapping.item(kind, row, at_work.attributes, at_work.project.pk)
    values = _common(at_work, kind, row, made) | _OWN[kind](at_work, row, made)
    item = model.objects.filter(project=at_work.project, pk=known.local_id).first() if known else None
    if item is None:
        position = model.objects.filter(project=at_work.project).aggregate(last=Max("position"))["last"] or 0
        item = model.objects.create(
            project=at_work.project,
            ref=_ref(at_work.project, row["ref"]),
            position=position + POSITION_GAP,
            created_by=made["createdBy"]["username"][:150] or "taiga",
            created_at=_moment(made["createdDate"]),
            **values,
        )
        at_work.found.made += 1
    else:
        if kind == "task" and item.lease_token is not None:  # an agent is at it: its state is the board's
            values = {name: value for name, value in values.items() if name not in _STATE}
        for name, value in values.items():
            setattr(item, name, value)
        item.version += 1
        item.save(update_fields=[*values, "version"])
        at_work.found.changed += 1
    ImportedItem.objects.update_or_create(
        project=at_work.project,
        source=at_work.source,
        kind=kind,
        key=str(row["id"]),
        defaults={"local_id": item.pk, "version": row["version"]},
    )
    return item


_STATE = ("status", "manual_block", "completed_at", "started_at", "ready_since")


def _common(at_work: Import, kind: KindName, row: Json, made: Json) -> Json:
    assigned = made["assignedTo"]
    tags = [tag[:MAX_TAG].replace(",", " ").strip() for tag in made["tags"]]
    return {
        "subject": made["subject"][:MAX_SUBJECT] or "?",
        "description": made["description"][:MAX_TEXT],
        "tags": list(dict.fromkeys(tag for tag in tags if tag))[:MAX_TAGS],
        "assigned_to_id": at_work.words.people.get(assigned["id"]) if assigned else None,
        "updated_at": _moment(made["modifiedDate"]),
    }


def _planned(at_work: Import, kind: KindName, row: Json, made: Json) -> Json:
    status = at_work.words.statuses[kind, row["status"]]
    ended = row.get("finish_date") or row.get("finished_date") or row["modified_date"]
    return {
        "status": status,
        "is_blocked": made["isBlocked"],
        "blocked_reason": made["blockedReason"][:MAX_REASON],
        "closed_at": _moment(ended) if status.is_closed else None,
    }


def _epic(at_work: Import, row: Json, made: Json) -> Json:
    return _planned(at_work, "epic", row, made) | {"color": made["color"]}


def _user_story(at_work: Import, row: Json, made: Json) -> Json:
    return _planned(at_work, "user_story", row, made) | {
        "epic_id": _local(at_work, "epic", made["epicId"]),
        "sprint": at_work.words.sprints.get(made["sprintId"]),
        "points": made["points"]["byRole"],
        "due_on": date.fromisoformat(made["dueDate"]) if made["dueDate"] else None,
    }


def _issue(at_work: Import, row: Json, made: Json) -> Json:
    return _planned(at_work, "issue", row, made) | {
        "type": at_work.words.types.get(made["typeId"]),
        "sprint": at_work.words.sprints.get(made["sprintId"]),
        "severity": made["severity"],
        "priority": made["priority"],
    }


def _task(at_work: Import, row: Json, made: Json) -> Json:
    """Where the card goes: done where Taiga closed it, held back where it is blocked there, else where work is."""
    own = at_work.words.statuses["task", row["status"]]
    is_done = own.is_closed
    reason = made["blockedReason"][:MAX_REASON] or "Blocked"
    held = reason if made["isBlocked"] else own.name if own.category == Category.BLOCKED else ""
    held = "" if is_done else held
    is_started = own.category == Category.IN_PROGRESS and not held
    at = _moment(made["modifiedDate"])
    status = Status.DONE if is_done else Status.IN_PROGRESS if is_started else Status.PENDING if held else Status.READY
    return {
        "phase": at_work.phase,
        "status": status,
        "item_status": own,
        "manual_block": held,
        "user_story_id": _local(at_work, "user_story", made["userStoryId"]),
        "completed_at": _moment(row["finished_date"] or row["modified_date"]) if is_done else None,
        "started_at": at if is_started else None,
        "ready_since": at if status == Status.READY else None,
        "description": made["description"][:MAX_TEXT] or made["subject"][:MAX_SUBJECT] or "?",
    }


_OWN: Mapping[KindName, Callable[[Import, Json, Json], Json]] = {
    "epic": _epic,
    "user_story": _user_story,
    "task": _task,
    "issue": _issue,
}


def _local(at_work: Import, kind: KindName, id: int | None) -> int | None:
    """What was made of the item a row belongs to; it was there in an earlier page, or is read the next time."""
    if id is None:
        return None
    items = ImportedItem.objects.filter(project=at_work.project, source=at_work.source, kind=kind, key=str(id))
    pk = items.values_list("local_id", flat=True).first()
    is_there = pk is not None and MODELS[kind].objects.filter(project=at_work.project, pk=pk).exists()
    return pk if is_there else None


def _comments(at_work: Import, kind: KindName, item: Any, history: Sequence[Json]) -> None:
    said = mapping.comments(history)
    known = set(
        ImportedItem.objects.filter(
            project=at_work.project, source=at_work.source, kind="comment", key__in=[one["id"][:40] for one in said]
        ).values_list("key", flat=True)
    )
    for one in said:
        if one["id"][:40] in known:
            continue
        place = {"task": item} if kind == "task" else {COMMENTED[Kind(kind)]: item}
        model: Any = Note if kind == "task" else Comment
        made = model.objects.create(
            body=one["text"][:MAX_TEXT],
            actor_kind="person",
            actor_name=one["createdBy"]["username"][:150] or "taiga",
            created_at=_moment(one["createdDate"]),
            **place,
        )
        ImportedItem.objects.create(
            project=at_work.project, source=at_work.source, kind="comment", key=one["id"][:40], local_id=made.pk
        )
        at_work.found.comments += 1


def _ref(project: Project, wanted: int) -> int:
    """Taiga's own number where it is free here, else the next one."""
    if not any(model.objects.filter(project=project, ref=wanted).exists() for model in MODELS.values()):
        return wanted
    return _last_ref(project) + 1


def _last_ref(project: Project) -> int:
    lasts = [model.objects.filter(project=project).aggregate(last=Max("ref"))["last"] for model in MODELS.values()]
    return max(last or 0 for last in lasts)


def _count_on(project: Project) -> None:
    """The next number is after all there are."""
    last = _last_ref(project)
    Project.objects.filter(pk=project.pk, next_ref__lte=last).update(next_ref=last + 1)


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
