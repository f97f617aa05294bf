"""What the agile tools ask of whoever keeps a project's items: DevFlow's own tables, or a real Taiga.

All methods block. Objects are the tools' own: camelCase, ISO 8601 UTC, integer ids (`shapes`). Failures are
`DevFlowError`s; a message of the document's failure table is used word for word.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

KindName = Literal["epic", "user_story", "task", "issue"]
KINDS: tuple[KindName, ...] = ("epic", "user_story", "task", "issue")


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to; empty means not at all. Those a kind does not have are never given."""

    query: str = ""
    tags: tuple[str, ...] = ()
    match: Literal["any", "all"] = "any"
    status_ids: tuple[int, ...] = ()
    assignee_ids: tuple[int, ...] = ()
    unassigned: bool = False
    modified_since: datetime | None = None
    include_details: bool = False
    is_blocked: bool | None = None
    epic_id: int | None = None
    sprint_id: int | None = None
    status_category: str = ""
    user_story_id: int | None = None
    severity: tuple[str, ...] = ()
    priority: tuple[str, ...] = ()
    type_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, and how many there are in all."""

    items: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0


@dataclass(frozen=True, slots=True)
class Which:
    """One item: by id, or by its number in the project."""

    id: int | None = None
    ref: int | None = None


class Provider(Protocol):
    """One project's items."""

    def project(self) -> dict[str, Any]: ...

    def find(self, kind: KindName, filters: Filters, *, offset: int, limit: int) -> Page:
        """The lite shape, or whole objects with `filters.include_details`; newest first where nothing else is said."""

    def get(self, kind: KindName, which: Which, *, comments: bool = False) -> dict[str, Any]:
        """Raises `not_found`, the same for an unknown id and another project's."""

    def create(self, kind: KindName, fields: Mapping[str, Any]) -> dict[str, Any]:
        """`fields` are the tool's own (camelCase), checked against its schema. Raises `invalid_input` for ids that
        name nothing in this project, with the document's words (`Invalid statusId`)."""

    def update(
        self,
        kind: KindName,
        which: Which,
        fields: Mapping[str, Any],
        *,
        version: int | None = None,
        comment: str = "",
    ) -> dict[str, Any]:
        """Only what `fields` names. Raises `conflict` with `details.current` (the whole object) for a stale version."""

    def delete(self, kind: KindName, id: int) -> None: ...

    def statuses(self, kind: KindName | None) -> list[dict[str, Any]]: ...

    def members(self, *, query: str, role_id: int | None, include_inactive: bool, offset: int, limit: int) -> Page: ...
