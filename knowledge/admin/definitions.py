"""What a source is, without what was read from it: carried from one installation to another as CSV or JSON."""

import json
from typing import Any

from django.apps import apps
from import_export.fields import Field
from import_export.resources import ModelResource
from import_export.widgets import ForeignKeyWidget, IntegerWidget, Widget

from devflow.actors import Actor
from knowledge.forms import Tags
from knowledge.models import Source
from knowledge.services import sources

ELSEWHERE = (Source.Type.WEB, Source.Type.DIRECTORY, Source.Type.GIT)
"""Types whose definition is all there is to them; the files and texts of the others do not travel with it."""


class TagsWidget(Widget):
    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> list[str]:
        tags: list[str] = Tags(max_length=4000, required=False).clean(
            ",".join(map(str, value)) if isinstance(value, list) else value
        )
        return tags

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> str:
        return ", ".join(value or ())


class OptionsWidget(Widget):
    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> dict[str, Any]:
        given = json.loads(value) if isinstance(value, str) else value
        if not isinstance(given, dict):
            raise ValueError("options must be a JSON object.")
        return given

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> str:
        return json.dumps(value or {})


class SourceDefinitions(ModelResource):
    """A row is the source of its project, type and address; where there is none yet, one is made and read."""

    project = Field("project", "project", ForeignKeyWidget(apps.get_model("workflow", "Project"), "slug"))
    tags = Field("tags", "tags", TagsWidget(), default=list)
    priority = Field("priority", "priority", IntegerWidget(), default=5)
    options = Field("options", "options", OptionsWidget(), default=dict)

    class Meta:
        model = Source
        import_id_fields = ("project", "type", "url")
        fields = ("project", "title", "description", "type", "url", "tags", "priority", "options")
        clean_model_instances = True
        skip_unchanged = True

    def __init__(self, actor: Actor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.actor = actor

    def before_import_row(self, row: Any, **kwargs: Any) -> None:
        kind, place = row.get("type"), str(row.get("url") or "")
        if kind in ELSEWHERE:
            is_web = kind == Source.Type.WEB
            row["url"] = sources.checked_place(
                kind, url=place if is_web else "", path="" if is_web else place, content=""
            )

    def get_instance(self, instance_loader: Any, row: Any) -> Any:
        return super().get_instance(instance_loader, row) if row.get("type") in ELSEWHERE else None

    def skip_row(self, instance: Source, original: Any, row: Any, import_validation_errors: Any = None) -> bool:
        if instance.type in (Source.Type.UPLOAD, Source.Type.MANUAL):
            return True
        return bool(super().skip_row(instance, original, row, import_validation_errors))

    def do_instance_save(self, instance: Source, is_create: bool) -> None:
        if self.actor is None:
            raise TypeError("Somebody has to import.")
        said: dict[str, Any] = {name: getattr(instance, name) for name in sources.CHANGEABLE}
        if not is_create:
            sources.configure(source=instance, actor=self.actor, **said)
            return
        said["url" if instance.type == Source.Type.WEB else "path"] = instance.url
        made = sources.create(project_id=instance.project_id, actor=self.actor, type=instance.type, **said)
        instance.pk, instance._state.adding = made.pk, False
