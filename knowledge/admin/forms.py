"""A source as the admin adds and changes it; files are added on the source's page."""

from typing import Any, ClassVar

from django import forms

from devflow.administration import ModelForm
from devflow.errors import DevFlowError
from knowledge.forms import MAX_TEXT, Tags
from knowledge.models import Source
from knowledge.services import sources

EDITABLE = ("title", "description", "tags", "priority", "options")
TYPES = (Source.Type.WEB, Source.Type.DIRECTORY, Source.Type.GIT, Source.Type.MANUAL)


class Options(forms.JSONField):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, "initial": dict, **options})

    def clean(self, value: Any) -> Any:
        given = super().clean(value)
        if given is not None and not isinstance(given, dict):
            raise forms.ValidationError("Give a JSON object, such as {}.")
        return given or {}


class SourceChange(ModelForm):
    description = forms.CharField(max_length=10_000, required=False, widget=forms.Textarea(attrs={"rows": 3}))
    tags = Tags(max_length=4000, required=False, help_text="With commas between them.")
    options = Options(help_text="For web: max_depth, max_pages, same_path, include, exclude.")

    class Meta:
        model = Source
        fields: ClassVar = [*EDITABLE]

    def clean(self) -> dict[str, Any]:
        self._check(sources.checked_options, self._type(), self.cleaned_data.get("options") or {})
        return self.cleaned_data

    def _type(self) -> str:
        return str(self.instance.type)

    def _check(self, rule: Any, *values: Any, **named: Any) -> None:
        """Put what a rule of the services refuses beside the field it is about."""
        try:
            rule(*values, **named)
        except DevFlowError as exc:
            about = next(iter(exc.details), "")
            field = "url" if about == "path" else about if about in self.fields else None
            self.add_error(field, f"{exc.message} {exc.suggestion}")


class SourceAdd(SourceChange):
    type = forms.ChoiceField(choices=[(kind.value, kind.label) for kind in TYPES])
    url = forms.CharField(
        max_length=2000,
        required=False,
        label="Address or path",
        help_text="The http(s) address of a site or page; the path of a directory or checkout on the server.",
    )
    content = forms.CharField(
        max_length=MAX_TEXT,
        required=False,
        strip=False,
        widget=forms.Textarea,
        help_text="The text of a manual source.",
    )

    class Meta:
        model = Source
        fields: ClassVar = ["project", "type", "url", *EDITABLE]

    def _type(self) -> str:
        return str(self.cleaned_data.get("type", ""))

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        if "type" in data:
            self._check(sources.checked_place, data["type"], has_files=False, **self.place())
        return data

    def place(self) -> dict[str, str]:
        """Where it is read from, as `sources.create` takes it."""
        given = self.cleaned_data.get("url", "")
        place = {"url": "", "path": "", "content": self.cleaned_data.get("content", "")}
        return place | ({"path": given} if self._type() in (Source.Type.DIRECTORY, Source.Type.GIT) else {"url": given})
