"""Arguments the agile tools share. Names on the wire are camelCase; ids are whole numbers, texts are bounded.

What a JSON Schema says is checked before a tool runs (`declaring`); rules between properties are `settle`, so that
the published schema needs no `oneOf`.
"""

from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

from devflow.errors import invalid
from mcpbridge.tooling import MAX_INT, MAX_LIST, MAX_TEXT
from workflow.taiga.provider import Filters, Which

MAX_SUBJECT, MAX_TAG, MAX_TAGS, MAX_REASON, MAX_QUERY = 200, 40, 32, 500, 200
DEFAULT_LIMIT = 50
_SAYS_SOMETHING = r"^[^\x00]*[^\s\x00][^\x00]*$"
_NO_NUL = r"^[^\x00]*$"

T = TypeVar("T")


class _NotNull:
    """A property that may be left out but is not nullable; left out it is None."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return handler.generate_schema(next(part for part in source.__args__ if part is not type(None)))


Maybe = Annotated[T | None, _NotNull()]

Id = Annotated[int, Field(ge=1, le=MAX_INT)]
Ids = Annotated[list[Id], Field(max_length=MAX_LIST)]
Ref = Annotated[int, Field(ge=1, le=2**31 - 1)]
Version = Annotated[int, Field(ge=1, le=2**31 - 1)]
Offset = Annotated[int, Field(ge=0, le=1_000_000)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIST)]
Subject = Annotated[str, Field(min_length=1, max_length=MAX_SUBJECT, pattern=_SAYS_SOMETHING)]
Description = Annotated[str, Field(max_length=MAX_TEXT, pattern=_NO_NUL)]
Prose = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=_SAYS_SOMETHING)]
Reason = Annotated[str, Field(max_length=MAX_REASON, pattern=_NO_NUL)]
Query = Annotated[str, Field(max_length=MAX_QUERY, pattern=_NO_NUL)]
Wanted = Annotated[str, Field(min_length=1, max_length=MAX_QUERY, pattern=_SAYS_SOMETHING)]
Slug = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9_-]+$")]
Tag = Annotated[str, Field(min_length=1, max_length=MAX_TAG, pattern=r"^[^\x00,]*[^\s\x00,][^\x00,]*$")]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
Color = Annotated[str, Field(pattern=r"^#[0-9A-Fa-f]{6}$", max_length=7)]
Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", max_length=10)]
Moment = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}", max_length=40)]
Estimate = Annotated[float, Field(ge=0, le=1000)]
Points = Annotated[dict[str, Estimate | None], Field(max_length=50)]

Priority = Literal["lowest", "low", "normal", "high", "highest"]
Severity = Literal["trivial", "minor", "normal", "major", "critical", "blocker"]
Category = Literal["new", "in_progress", "blocked", "done", "closed", "other"]
EntityType = Literal["epic", "user_story", "task", "issue"]


class Asked(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)

    def settle(self) -> None:
        """Check what the schema cannot say. Raises `invalid_input`."""

    def given(self, *but: str) -> dict[str, Any]:
        """What was given, by its names on the wire, without the attributes `but`."""
        return self.model_dump(by_alias=True, exclude_unset=True, exclude=set(but))


class InProject(Asked):
    project_id: Maybe[Id] = Field(None, description="The project; default: the active one.")


class Paged(Asked):
    offset: Offset = Field(0, description="How many to skip, to read on.")
    limit: Limit = Field(DEFAULT_LIMIT, description="How many at most.")


class Listing(InProject, Paged):
    """A list of items, narrowed."""

    query: Maybe[Query] = Field(None, description="Only items with each of these words in subject or description.")
    tags: Maybe[Tags] = Field(None, description="Only items with these tags.")
    match: Literal["any", "all"] = Field("any", description="Whether one of the tags is enough, or all are needed.")
    status_ids: Maybe[Ids] = Field(None, description="Only in one of these statuses (taiga.get_statuses).")
    assignee_ids: Maybe[Ids] = Field(None, description="Only assigned to one of these members (taiga.get_members).")
    unassigned: bool = Field(False, description="Only (or, with assigneeIds, also) those assigned to nobody.")
    modified_since: Maybe[Moment] = Field(None, description="Only changed since then, ISO 8601; without a zone: UTC.")
    include_details: bool = Field(False, description="Give the descriptions too.")

    def settle(self) -> None:
        if self.modified_since is not None:
            moment("modifiedSince", self.modified_since)

    def filters(self, **more: Any) -> Filters:
        since = None if self.modified_since is None else moment("modifiedSince", self.modified_since)
        return Filters(
            query=(self.query or "").strip(),
            tags=tuple(self.tags or ()),
            match=self.match,
            status_ids=tuple(self.status_ids or ()),
            assignee_ids=tuple(self.assignee_ids or ()),
            unassigned=self.unassigned,
            modified_since=since,
            include_details=self.include_details,
            **more,
        )


class One(InProject):
    """One item, by id or by its number in the project."""

    id: Maybe[Id] = Field(None, description="Its id; or give ref.")
    ref: Maybe[Ref] = Field(None, description="Its number in the project, as in #12; or give id.")

    def settle(self) -> None:
        exactly_one(self, "id", "ref")

    @property
    def which(self) -> Which:
        return Which(id=self.id, ref=self.ref)


class GetEntity(One):
    include_comments: bool = Field(False, description="Give its comments too, oldest first.")


class DeleteEntity(InProject):
    id: Id = Field(description="Its id.")


class Blocked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)

    is_blocked: bool = Field(description="Whether it is blocked.")
    reason: Maybe[Reason] = Field(None, description="Why.")


class Changing(One):
    """A change of one item: only what is given changes."""

    subject: Maybe[Subject] = Field(None, description="Its title.")
    blocked: Maybe[Blocked] = Field(None, description="Block it with a reason, or let it go on.")
    version: Maybe[Version] = Field(
        None, description="The version you read; a newer one is a conflict, not overwritten."
    )
    comment: Maybe[Prose] = Field(None, description="A comment to leave on it.")

    def settle(self) -> None:
        super().settle()
        if not self.model_fields_set - {"id", "ref", "project_id", "version"}:
            raise invalid(
                "arguments: Nothing to change", arguments="give at least one field beside id, ref and version"
            )
        check_day(self)

    def changes(self) -> dict[str, Any]:
        """The fields to change, by their names on the wire."""
        return self.given("id", "ref", "project_id", "version", "comment")


class Making(InProject):
    """A new item."""

    subject: Subject = Field(description="Its title.")

    def settle(self) -> None:
        check_day(self)

    def fields(self) -> dict[str, Any]:
        return self.given("project_id")


def exactly_one(asked: Asked, first: str, second: str) -> None:
    """Raises `invalid_input` unless exactly one of two attributes was given."""
    count = len(asked.model_fields_set & {first, second})
    one, other = to_camel(first), to_camel(second)
    if count == 0:
        raise invalid(f"{one}: Required", **{one: "Required", other: f"or this instead of {one}"})
    if count == 2:
        raise invalid(f"{other}: Give {one} or {other}, not both", **{other: f"give {one} or {other}, not both"})


def moment(name: str, text: str) -> datetime:
    """A point in time; without a zone it is UTC. Raises `invalid_input`."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise invalid(
            f"{name}: No such date", **{name: "a date that exists, as 2026-01-31 or 2026-01-31T12:00:00Z"}
        ) from None


def check_day(asked: Asked) -> None:
    """Raises `invalid_input` for a due date that does not exist."""
    day = getattr(asked, "due_date", None)
    if day is None:
        return
    try:
        date.fromisoformat(day)
    except ValueError:
        raise invalid("dueDate: No such date", dueDate="a day that exists, as 2026-01-31") from None
