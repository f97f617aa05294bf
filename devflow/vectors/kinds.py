"""What the rooms have indexed: kinds of rows, and how the index reads them. Light, for `ready()` to import."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """A row as it is indexed: `text` is embedded, `words` weigh for BM25, `symbols` are found whole.

    `hash` identifies what was embedded (and whatever of the payload may change with it).
    """

    id: uuid.UUID
    hash: str
    text: str
    words: str
    symbols: Sequence[str]
    payload: Mapping[str, str | int | bool | Sequence[str]]


class Rows(Protocol):
    """What a room gives of its rows. Both methods block on the database."""

    def entries(self, points: Sequence[uuid.UUID]) -> Sequence[Entry]:
        """The rows that still exist among `points`."""

    def hashes(self) -> Iterator[tuple[uuid.UUID, str]]:
        """Every row's point and hash."""


kinds: dict[str, Rows] = {}
"""Kind ("knowledge", "memory") to its rows; rooms register in `ready()`."""
