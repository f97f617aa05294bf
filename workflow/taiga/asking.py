"""How a list is asked of Taiga: what it narrows itself, what is left to us, and exactly the rows from `offset` on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

from devflow.errors import invalid
from workflow.taiga import mapping
from workflow.taiga.attributes import Attributes
from workflow.taiga.client import TaigaClient
from workflow.taiga.provider import Filters, KindName

Json = dict[str, Any]
Test = Callable[[Json], bool]
MOST_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """Parameters for Taiga, and what every row has to pass besides."""

    params: dict[str, Any]
    tests: list[Test] = field(default_factory=list)

    def among(self, name: str, values: Sequence[int], *, field: str = "") -> None:
        """Only rows whose `name` is one of some values: Taiga narrows to one, several are looked for here."""
        if len(values) == 1:
            self.params[name] = values[0]
        else:
            wanted, column = set(values), field or name
            self.tests.append(lambda row: row[column] in wanted)


def asked(kind: KindName, wanted: Filters, known: Attributes, project: int) -> Asked | None:
    """None where nothing can be found. Raises `invalid_input`, `Invalid statusId`, for another kind's or project's."""
    made = Asked({"project": project})
    if wanted.query:
        made.params["q"] = wanted.query.removeprefix("#")
    if wanted.modified_since is not None:
        since = wanted.modified_since.astimezone(UTC)
        made.params["modified_date__gte"] = since.isoformat(timespec="microseconds").replace("+00:00", "Z")
    for name, value in (
        ("epic", wanted.epic_id),
        ("milestone", wanted.sprint_id),
        ("user_story", wanted.user_story_id),
    ):
        if value is not None:
            made.params[name] = value
    if wanted.is_blocked is not None:
        made.tests.append(lambda row: bool(row["is_blocked"]) == wanted.is_blocked)
    _tags(made, wanted)
    _people(made, wanted)
    for name, chosen in _chosen(kind, wanted, known).items():
        if not chosen:
            return None
        made.among(name, sorted(chosen))
    return made


def _tags(made: Asked, wanted: Filters) -> None:
    tags = list(dict.fromkeys(wanted.tags))
    if len(tags) == 1 or (tags and wanted.match == "all"):
        made.params["tags"] = tags[0]
        tags = tags[1:]
    if tags:
        every = all if wanted.match == "all" else any
        made.tests.append(lambda row: every(tag in mapping.tags(row["tags"]) for tag in tags))


def _people(made: Asked, wanted: Filters) -> None:
    if wanted.assignee_ids and wanted.unassigned:
        people = {*wanted.assignee_ids, None}
        made.tests.append(lambda row: row["assigned_to"] in people)
    elif wanted.assignee_ids:
        made.among("assigned_to", wanted.assignee_ids)
    elif wanted.unassigned:
        made.params["assigned_to"] = "null"


def _chosen(kind: KindName, wanted: Filters, known: Attributes) -> Mapping[str, set[int]]:
    """The ids each of Taiga's fields may have, for the fields that are narrowed."""
    made: dict[str, set[int]] = {}
    if wanted.status_ids or wanted.status_category:
        statuses = known.statuses[kind]
        if unknown := sorted(set(wanted.status_ids) - statuses.keys()):
            raise invalid("Invalid statusId", statusIds=f"{unknown[0]} is no {kind} status of this project")
        made["status"] = {
            id
            for id, status in statuses.items()
            if (not wanted.status_ids or id in wanted.status_ids) and wanted.status_category in ("", status["category"])
        }
    for name, plural, words in (
        ("severity", "severities", wanted.severity),
        ("priority", "priorities", wanted.priority),
    ):
        if words:
            made[name] = {id for word in words for id in known.theirs(plural, word)}
    if wanted.type_ids:
        made["type"] = set(wanted.type_ids)
    return made


def window(
    client: TaigaClient, path: str, params: Mapping[str, Any], *, offset: int, limit: int
) -> tuple[list[Json], int]:
    """The rows `offset` to `offset + limit` of a list Taiga gives in pages, and how many there are in all."""
    size = min(limit, MOST_AT_ONCE)
    first = client.page(path, params, number=offset // size + 1, size=size)
    if first.size < size:  # it gives fewer to a page than were asked for
        size = first.size
        first = client.page(path, params, number=offset // size + 1, size=size)
    total, rows = first.total, list(first.rows)
    if not rows and offset:
        return [], client.page(path, params, number=1, size=1).total
    start = offset // size * size
    while start + len(rows) < min(offset + limit, total):
        more = client.page(path, params, number=(start + len(rows)) // size + 1, size=size)
        if not more.rows:
            break
        rows += more.rows
    return rows[offset - start : offset - start + limit], total
