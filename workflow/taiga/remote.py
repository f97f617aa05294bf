"""A real Taiga as the provider of a project's items. Nothing is copied here: what it says now is what is shown.

The rules are Taiga's: stories and tasks have no priority, a stale version is refused only where the same field changed
meanwhile, and a story may belong to several epics, of which the first one counts.
"""

import functools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from django.utils import timezone

from devflow.actors import Actor
from devflow.errors import DevFlowError, ErrorCode, conflict, invalid, not_found
from workflow.models import Project, RemoteProject
from workflow.selectors.agile import Progress
from workflow.services import activity
from workflow.taiga import asking, mapping, shapes
from workflow.taiga.attributes import Attributes
from workflow.taiga.client import PAGE_SIZE, TaigaClient, odd
from workflow.taiga.mapping import HISTORY, PATHS
from workflow.taiga.provider import KINDS, Filters, KindName, Page, Which

MOST_READ = 5_000
"""Rows that are read for one list where Taiga cannot narrow it itself."""
MOST_MEMBERS = 50
KEPT_FOR = timedelta(minutes=10)
JUST_READ = timedelta(seconds=5)
FEW = 4

_WORDS: Mapping[KindName, str] = {"epic": "epic", "user_story": "story", "task": "task", "issue": "issue"}
_log = logging.getLogger(__name__)

Json = dict[str, Any]
Made = TypeVar("Made")


def _believing(method: Callable[..., Made]) -> Callable[..., Made]:
    """What Taiga gives in a shape that no Taiga has is its fault, and one error of the table. Each call from outside
    has all the time anew."""

    @functools.wraps(method)
    def believing(self: "RemoteProvider", *args: Any, **kwargs: Any) -> Made:
        if not self.depth:
            self.client.begin()
        self.depth += 1
        try:
            return method(self, *args, **kwargs)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            _log.warning("an answer of Taiga in another shape", exc_info=exc)
            raise odd("in another shape than Taiga 6 has") from exc
        finally:
            self.depth -= 1

    return believing


class RemoteProvider:
    """One project's items in its Taiga, as `actor` sees and changes them with the login stored for the project.

    Raises `not_found` for a project that is not connected, `unauthenticated` where its login cannot be read.
    """

    def __init__(
        self, project: Project, actor: Actor, *, client: Callable[[RemoteProject], TaigaClient] = TaigaClient
    ) -> None:
        remote = RemoteProject.objects.filter(project=project).first()
        if remote is None:
            raise not_found("Taiga of project", project.slug, suggestion="Connect it first: `devflow taiga connect`.")
        self.remote = remote
        self._project = project
        self._actor = actor
        self.client = client(remote)
        self.depth = 0

    # What there is to choose from

    @_believing
    def attributes(self, *, newer_than: timedelta = KEPT_FOR) -> Attributes:
        """What fields may point to, read again where what is kept is older."""
        remote = self.remote
        if remote.attributes_at is not None and timezone.now() - remote.attributes_at < newer_than:
            return self._kept
        id = remote.remote_id
        found = Attributes.read(
            self.client.get(f"/projects/{id}"),
            self.client.every("/memberships", {"project": id}, most=MOST_READ),
            self.client.every("/milestones", {"project": id}, most=MOST_READ),
        )
        remote.attributes, remote.attributes_at = found.kept, timezone.now()
        remote.remote_slug = found.kept["slug"][:250]
        remote.save(update_fields=["attributes", "attributes_at", "remote_slug"])
        self.__dict__.pop("_kept", None)
        return self._kept

    @functools.cached_property
    def _kept(self) -> Attributes:
        return Attributes(self.remote.attributes)

    def known_statuses(self, kind: KindName) -> list[Json]:
        """The statuses last read, without asking: none before the first time."""
        return list(self._kept.kept["statuses"][kind]) if self.remote.attributes else []

    def statuses(self, kind: KindName | None) -> list[Json]:
        found = self.attributes().kept["statuses"]
        return [row | {"entityType": name} for name in KINDS if kind in (None, name) for row in found[name]]

    def members(self, *, query: str, role_id: int | None, include_inactive: bool, offset: int, limit: int) -> Page:
        wanted = query.lower()
        found = [
            row
            for row in self.attributes().kept["members"]
            if (include_inactive or row["isActive"])
            and role_id in (None, row["roleId"])
            and (wanted in row["username"].lower() or wanted in row["fullName"].lower())
        ]
        return Page(found[offset : offset + limit], len(found))

    def project(self) -> Json:
        known = self.attributes().kept
        return shapes.project_line(self._project) | {
            "description": known["description"],
            "isPrivate": known["isPrivate"],
            "owner": known["owner"],
            "members": known["members"][:MOST_MEMBERS],
            "tags": known["tags"],
            "color": None,
        }

    # Reading

    @_believing
    def find(self, kind: KindName, filters: Filters, *, offset: int, limit: int) -> Page:
        asked = asking.asked(kind, filters, self.attributes(), self.remote.remote_id)
        if asked is None:
            return Page()
        if asked.tests:
            kept = [row for row in self._every(kind, asked.params) if all(test(row) for test in asked.tests)]
            rows, total = kept[offset : offset + limit], len(kept)
        else:
            rows, total = asking.window(self.client, PATHS[kind], asked.params, offset=offset, limit=limit)
        if filters.include_details:
            rows = [body for body, _ in self.client.together([(f"{PATHS[kind]}/{row['id']}", {}) for row in rows])]
            rows = [row for row in rows if row]  # deleted meanwhile
        return Page(self._shown(kind, rows), total)

    def _every(self, kind: KindName, params: Mapping[str, Any]) -> list[Json]:
        return self.client.every(PATHS[kind], params, most=MOST_READ)

    @_believing
    def get(self, kind: KindName, which: Which, *, comments: bool = False) -> Json:
        row = self._row(kind, which)
        made = self._whole(kind, row)
        if comments:
            history = self.client.every(f"{HISTORY[kind]}/{row['id']}", {}, most=MOST_READ)
            made["comments"] = mapping.comments(history)
        return made

    def _row(self, kind: KindName, which: Which) -> Json:
        """Raises `not_found`, the same for an unknown id and another project's."""
        try:
            if which.id is not None:
                row: Json = self.client.get(f"{PATHS[kind]}/{which.id}")
            else:
                row = self.client.get(f"{PATHS[kind]}/by_ref", project=self.remote.remote_id, ref=which.ref)
            if row["project"] == self.remote.remote_id:
                return row
        except DevFlowError as exc:
            if exc.code is not ErrorCode.NOT_FOUND:
                raise
        named = which.id if which.id is not None else f"#{which.ref}"
        raise not_found(kind.replace("_", " ").capitalize(), named)

    def _whole(self, kind: KindName, row: Json) -> Json:
        return self._shown(kind, [row])[0]

    def _shown(self, kind: KindName, rows: Sequence[Json]) -> list[Json]:
        made = self._items(kind, rows)
        if kind == "user_story":
            tasks = self._tasks_of([row["id"] for row in made])
            for row in made:
                own = tasks[row["id"]]
                row["taskIds"] = [task["id"] for task in own]
                row["progress"] = shapes.progress(_progress(own) or Progress(1, int(row["status"]["isClosed"])))
        elif kind == "epic":
            self._add_stories(made)
        return made

    def _items(self, kind: KindName, rows: Sequence[Json]) -> list[Json]:
        known = self.attributes()
        if any(row["status"] not in known.statuses[kind] for row in rows):
            known = self.attributes(newer_than=JUST_READ)
        return [mapping.item(kind, row, known, self._project.pk) for row in rows]

    def _add_stories(self, epics: Sequence[Json]) -> None:
        stories = self._below("/userstories", "epic", [row["id"] for row in epics], mapping.epics)
        tasks = self._tasks_of({story["id"] for own in stories.values() for story in own})
        for row in epics:
            parts = [_progress(tasks[story["id"]]) or _alone(story) for story in stories[row["id"]]]
            row["userStoryIds"] = [story["id"] for story in stories[row["id"]]]
            row["progress"] = shapes.progress(
                Progress(sum(part.total for part in parts), sum(part.completed for part in parts))
            )

    def _tasks_of(self, stories: Iterable[int]) -> defaultdict[int, list[Json]]:
        return self._below("/tasks", "user_story", list(stories), lambda task: [task["user_story"]])

    def _below(
        self, path: str, name: str, ids: Sequence[int], parents: Callable[[Json], list[int]]
    ) -> defaultdict[int, list[Json]]:
        """The rows below each of some items: asked item by item where these are few, else out of all there are."""
        made: defaultdict[int, list[Json]] = defaultdict(list)
        base = {"project": self.remote.remote_id}
        pages = 0
        if len(ids) > FEW:
            pages = -(-self.client.page(path, base, number=1, size=1).total // PAGE_SIZE)
        if len(ids) > FEW and pages <= min(len(ids), MOST_READ // PAGE_SIZE):
            for row in self.client.every(path, base, most=MOST_READ):
                for parent in parents(row):
                    made[parent].append(row)
            return made
        asked = [(path, {**base, name: id, "page": 1, "page_size": PAGE_SIZE}) for id in ids]
        for id, (rows, headers) in zip(ids, self.client.together(asked), strict=True):
            is_all = headers.get("x-pagination-count", "0") == str(len(rows))
            made[id] = rows if is_all else self.client.every(path, {**base, name: id}, most=MOST_READ)
        return made

    def board_rows(self, kind: KindName, *, most: int) -> tuple[list[Json], int]:
        """The first `most` items as a board shows them (tasks with `storyRef`), and how many there are."""
        base = {"project": self.remote.remote_id}
        rows, total = asking.window(self.client, PATHS[kind], base, offset=0, limit=most)
        return self._board_items(kind, rows), total

    @_believing
    def _board_items(self, kind: KindName, rows: Sequence[Json]) -> list[Json]:
        if kind != "task":
            return self._items(kind, rows)
        refs = [(row["user_story_extra_info"] or {}).get("ref") for row in rows]
        return [made | {"storyRef": ref} for made, ref in zip(self._items(kind, rows), refs, strict=True)]

    # Writing

    @_believing
    def create(self, kind: KindName, fields: Mapping[str, Any]) -> Json:
        body = self._written(kind, fields)
        epic, story = fields.get("epicId"), fields.get("userStoryId")
        if epic is not None:
            self._must_exist("epic", epic, "epicId")
        if story is not None:
            self._must_exist("user_story", story, "userStoryId")
        row = self.client.post(PATHS[kind], {"project": self.remote.remote_id, **body})
        self._record(kind, "created", row, fields)
        if epic is not None:
            with _half_done(f"The user story was made: it is #{row['ref']}; it is not in its epic."):
                self._link(row["id"], epic)
            row = self._row(kind, Which(id=row["id"]))
        return self._whole(kind, row)

    @_believing
    def update(
        self,
        kind: KindName,
        which: Which,
        fields: Mapping[str, Any],
        *,
        version: int | None = None,
        comment: str = "",
    ) -> Json:
        row = self._row(kind, which)
        body = self._written(kind, fields)
        is_moved = kind == "user_story" and "epicId" in fields and self._may_move(row, fields["epicId"])
        if version is not None and (version > row["version"] or (version < row["version"] and not body)):
            raise self._stale(kind, row, version)
        if body or comment:
            told = {**body, "comment": comment} if comment else body
            row = self._patched(kind, row, told, version)
            self._record(kind, "changed", row, fields)
        if is_moved:
            with _half_done("The other fields were changed; the epic was not." if body else ""):
                self._move(row, fields["epicId"])
            row = self._row(kind, Which(id=row["id"]))
            self._record(kind, "changed", row, {"epicId": fields["epicId"]})
        return self._whole(kind, row)

    def _patched(self, kind: KindName, row: Json, body: Json, version: int | None) -> Json:
        """The row after a change. Without a version, the change is put on what the row is by then."""
        place = f"{PATHS[kind]}/{row['id']}"
        try:
            made: Json = self.client.patch(place, {**body, "version": version or row["version"]})
        except DevFlowError as exc:
            if exc.code is not ErrorCode.CONFLICT:
                raise
            now = self._row(kind, Which(id=row["id"]))
            if version is not None:
                raise self._stale(kind, now, version) from exc
            made = self.client.patch(place, {**body, "version": now["version"]})
        return made

    def _stale(self, kind: KindName, row: Json, version: int) -> DevFlowError:
        return conflict(
            f"It changed meanwhile (version {row['version']}, yours is {version}).",
            suggestion="Read it again, then repeat your change on what it is now.",
            version=row["version"],
            yours=version,
            current=self._whole(kind, row),
        )

    @_believing
    def delete(self, kind: KindName, id: int) -> None:
        row = self._row(kind, Which(id=id))
        self.client.delete(f"{PATHS[kind]}/{id}")
        self._record(kind, "deleted", row, {})

    def place(self, status_id: int, ids: Sequence[int]) -> None:
        """Order the stories of a status from the top; those that are elsewhere by now stay there."""
        project = self.remote.remote_id
        here = {row["id"] for row in self._every("user_story", {"project": project, "status": status_id})}
        if order := [id for id in ids if id in here]:
            self.client.post(
                "/userstories/bulk_update_kanban_order",
                {"project_id": project, "status_id": status_id, "bulk_userstories": order},
            )

    def _written(self, kind: KindName, fields: Mapping[str, Any]) -> Json:
        """The body of a write; what is unknown is looked for once more."""
        try:
            return mapping.written(kind, fields, self.attributes())
        except DevFlowError:
            return mapping.written(kind, fields, self.attributes(newer_than=JUST_READ))

    def _must_exist(self, kind: KindName, id: int, name: str) -> None:
        try:
            self._row(kind, Which(id=id))
        except DevFlowError as exc:
            if exc.code is not ErrorCode.NOT_FOUND:
                raise
            raise invalid(f"Invalid {name}", **{name: "not of this project"}) from None

    def _may_move(self, story: Json, epic: int | None) -> bool:
        """Whether a story has to change its epic. Raises `conflict` for one in several, `invalid_input`."""
        now = mapping.epics(story)
        if next(iter(now), None) == epic:
            return False
        if len(now) > 1:
            listed = ", ".join(map(str, now))
            raise conflict(f"It is in several epics of Taiga ({listed}).", suggestion="Change its epics in Taiga.")
        if epic is not None:
            self._must_exist("epic", epic, "epicId")
        return True

    def _move(self, story: Json, epic: int | None) -> None:
        if epic is not None:
            self._link(story["id"], epic)
        for before in mapping.epics(story):
            self.client.delete(f"/epics/{before}/related_userstories/{story['id']}")

    def _link(self, story: int, epic: int) -> None:
        self.client.post(f"/epics/{epic}/related_userstories", {"epic": epic, "user_story": story})

    def _record(self, kind: KindName, what: str, row: Json, fields: Mapping[str, Any]) -> None:
        word = _WORDS[kind]
        if kind == "task" and what == "changed":
            what = "edited"
        activity.record(
            kind=f"{word}.{what}",
            project=self._project,
            actor=self._actor,
            subject_id=f"taiga-{word}-{row['id']}",
            after={
                "taiga": self.remote.remote_slug,
                "ref": row["ref"],
                "subject": row["subject"][:200],
                "fields": sorted(fields),
            },
        )


class _half_done:  # noqa: N801  # reads as a statement
    """What fails inside says that something was written before it."""

    def __init__(self, done: str) -> None:
        self._done = done

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, exc: BaseException | None, _trace: object) -> None:
        if isinstance(exc, DevFlowError) and self._done:
            exc.details = {**exc.details, "done": self._done}


def _progress(tasks: Sequence[Json]) -> Progress | None:
    return Progress(len(tasks), sum(bool(task["is_closed"]) for task in tasks)) if tasks else None


def _alone(story: Json) -> Progress:
    return Progress(1, int(bool((story["status_extra_info"] or {}).get("is_closed"))))
