"""Rows brought in and out of the admin as CSV or JSON."""

from typing import TYPE_CHECKING, Any, ClassVar

from django.http import HttpRequest
from import_export.admin import ImportExportMixin
from import_export.formats.base_formats import CSV, JSON
from tablib import Dataset

from devflow.administration import ModelAdmin, person_of

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")


def guarded(cell: Any) -> Any:
    """A cell no spreadsheet takes for a formula: an apostrophe stands before text that looks like one."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def unguarded(cell: str) -> str:
    """What a guarded cell says."""
    return cell[1:] if cell[:1] == "'" and cell[1:].startswith(_FORMULA) else cell


class SafeCsv(CSV):
    """CSV whose cells are guarded against being taken for formulas, and are as they were when they are read again."""

    def export_data(self, dataset: Dataset, **kwargs: Any) -> Any:
        safe = Dataset(headers=dataset.headers)
        for row in dataset:
            safe.append([guarded(cell) for cell in row])
        return super().export_data(safe, **kwargs)

    def create_dataset(self, in_stream: Any, **kwargs: Any) -> Dataset:
        read = super().create_dataset(in_stream, **kwargs)
        plain = Dataset(headers=read.headers)
        for row in read:
            plain.append([unguarded(cell) for cell in row])
        return plain


if TYPE_CHECKING:
    Base = ModelAdmin
else:
    Base = object


class Portable(ImportExportMixin, Base):
    """Import and export by those who may add and see the rows. Resources are given the `actor` who imports.

    An import is one step and undone whole where a row is refused: nothing waits in a temporary file for a second one.
    """

    formats: ClassVar = [SafeCsv, JSON]
    skip_import_confirm = True

    def has_import_permission(self, request: HttpRequest) -> bool:
        return self.has_add_permission(request) and self.has_change_permission(request)

    def has_export_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_import_resource_kwargs(self, request: HttpRequest, **kwargs: Any) -> dict[str, Any]:
        return {"actor": person_of(request)}
