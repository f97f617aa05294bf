"""Model fields the rooms share."""

import json
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.sql.compiler import SQLCompiler

if TYPE_CHECKING:
    TextLookup = models.Lookup[str]
else:
    TextLookup = models.Lookup  # not subscriptable at run time


class TagsField(models.JSONField):
    """A list of tags; `field__has="tag"` finds the rows that carry one."""


@TagsField.register_lookup
class HasTag(TextLookup):
    lookup_name = "has"
    prepare_rhs = False

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, list[Any]]:
        column, params = self.process_lhs(compiler, connection)
        return f"EXISTS (SELECT 1 FROM json_each({column}) WHERE value = %s)", [*params, self.rhs]  # noqa: S608  # a column, not input

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, list[Any]]:
        column, params = self.process_lhs(compiler, connection)
        return f"{column} @> %s::jsonb", [*params, json.dumps([self.rhs])]
