"""A figure: a chart, and the table it is drawn from."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

Unit = Literal["", "s", "%"]
Value = int | float | None
Row = tuple[date | str, Sequence[Value]]


def lasting(seconds: float) -> str:
    """`340 ms`, `12 s`, `4 min 10 s`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.2g} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    whole = round(seconds)
    for size, name, part, part_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {name}{f' {rest} {part_name}' if rest else ''}"
    return f"{seconds:.3g} s"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of figures. `hue` names the colour token the chart draws it in; empty: it stands in the table alone."""

    label: str
    unit: Unit = ""
    hue: str = ""
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    value: Value
    unit: Unit

    @property
    def raw(self) -> str:
        return "" if self.value is None else str(self.value)

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        if self.unit == "s":
            return lasting(self.value)
        return f"{self.value:.1f} %" if self.unit == "%" else f"{self.value:,}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its table. A row is its head (a day or a name) and one value for each column.

    `says`: what it shows; `found`: what came out of it; `until`: what has to happen first, where there are no rows.
    """

    name: str
    title: str
    says: str
    chart: Literal["area", "line", "bars", "ranks"]
    head: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    until: str
    found: str = ""

    @property
    def cells(self) -> list[tuple[date | str, list[Cell]]]:
        units = [column.unit for column in self.columns]
        return [(head, [Cell(*one) for one in zip(values, units, strict=True)]) for head, values in self.rows]

    @property
    def unit(self) -> Unit:
        """The unit of what the chart draws."""
        return next((column.unit for column in self.columns if column.hue), "")

    @property
    def lines(self) -> list[list[str | int | float]]:
        """The table as a file has it: plain numbers, durations in seconds, days as 2025-12-31."""
        names = {"": "", "s": " (seconds)", "%": " (%)"}
        titles = [self.head, *(f"{column.label}{names[column.unit]}" for column in self.columns)]
        rows = [[str(head), *("" if value is None else value for value in values)] for head, values in self.rows]
        return [list(titles), *rows]
