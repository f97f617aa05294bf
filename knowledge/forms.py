"""What people can send from the knowledge pages."""

import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile

from devflow import multipart
from devflow.errors import DevFlowError
from knowledge.models import Source

MAX_TEXT = 100_000
MOST_TAGS = 50
TAG_LENGTH = 64
CRAWL = ("max_depth", "max_pages", "same_path", "include", "exclude")
FIELDS_OF: Mapping[str, tuple[str, ...]] = {
    Source.Type.UPLOAD: ("upload",),
    Source.Type.WEB: ("url", *CRAWL),
    Source.Type.DIRECTORY: ("path",),
    Source.Type.GIT: ("path",),
    Source.Type.MANUAL: ("content",),
}
"""The fields each type of source takes beside those all have."""

_WHAT = {"upload": "Choose a file.", "url": "Give an address.", "path": "Give a path.", "content": "Paste some text."}


class Tags(forms.CharField):
    """Tags with commas between them, as a list."""

    def to_python(self, value: Any) -> Any:
        return list(dict.fromkeys(tag.strip() for tag in (value or "").split(",") if tag.strip()))

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(value) if isinstance(value, list) else value

    def validate(self, value: list[str]) -> None:
        if len(value) > MOST_TAGS:
            raise forms.ValidationError(f"At most {MOST_TAGS} tags.")
        if any(len(tag) > TAG_LENGTH for tag in value):
            raise forms.ValidationError(f"A tag may have {TAG_LENGTH} characters at most.")

    def run_validators(self, value: Any) -> None:
        super().run_validators(",".join(value))


class Patterns(forms.CharField):
    """One pattern a line, as a list."""

    widget = forms.Textarea

    def to_python(self, value: Any) -> Any:
        return [line.strip() for line in (value or "").splitlines() if line.strip()]

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def run_validators(self, value: Any) -> None:
        super().run_validators("\n".join(value))


class FilesInput(forms.FileInput):
    allow_multiple_selected = True


class Files(forms.FileField):
    """Several files; each one that cannot be taken is named."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> Any:
        files: list[UploadedFile[Any]] = [file for file in data or [] if file]
        if not files:
            if self.required:
                raise forms.ValidationError(_WHAT["upload"])
            return []
        if len(files) > multipart.FILES_AT_ONCE:
            raise forms.ValidationError(
                f"{len(files)} files are too many at once; send {multipart.FILES_AT_ONCE}, then the others, "
                "or all of them in one .zip."
            )
        faults = [fault for file in files if (fault := _fault(file))]
        if faults:
            raise forms.ValidationError(faults)
        return files


def _fault(file: "UploadedFile[Any]") -> str:
    size = file.size or 0
    if size > multipart.most_bytes():
        return multipart.too_large(file.name or "The file", size).message
    return "" if size else f"{(file.name or 'The file')[:200]} is empty."


def _short(rows: int = 2) -> forms.Textarea:
    return forms.Textarea(attrs={"rows": rows, "class": "field"})


def _input(**more: str) -> forms.TextInput:
    return forms.TextInput(attrs={"class": "field", **more})


class Refusing(forms.Form):
    """A form whose service may refuse what it was given."""

    def refuse(self, error: DevFlowError) -> None:
        """Put a refusal of the service beside the field it is about."""
        named = ["upload" if name == "file" else name for name in error.details]
        field = next((name for name in named if name in self.fields), None)
        self.add_error(field, error.message if field else f"{error.message} {error.suggestion}")


class About(Refusing):
    """What every source has: where answers will say they come from, and how it ranks."""

    title = forms.CharField(max_length=255, widget=_input())
    description = forms.CharField(max_length=10_000, required=False, widget=_short())
    tags = Tags(max_length=4000, required=False, widget=_input(placeholder="api, payments"))
    priority = forms.IntegerField(
        min_value=1,
        max_value=10,
        initial=5,
        widget=forms.NumberInput(attrs={"class": "field"}),
        error_messages={"required": "From 1 to 10."},
    )


class Crawl(forms.Form):
    """How a site is followed. What is left empty stays the server's own."""

    max_depth = forms.IntegerField(
        min_value=0, max_value=10_000, required=False, widget=forms.NumberInput(attrs={"class": "field"})
    )
    max_pages = forms.IntegerField(
        min_value=1, max_value=10_000, required=False, widget=forms.NumberInput(attrs={"class": "field"})
    )
    same_path = forms.BooleanField(required=False, initial=True)
    include = Patterns(max_length=10_050, required=False, widget=_short())
    exclude = Patterns(max_length=10_050, required=False, widget=_short())

    def options(self) -> dict[str, Any]:
        """The options as a source keeps them."""
        given = {name: self.cleaned_data.get(name) for name in CRAWL}
        kept = {name: value for name, value in given.items() if name != "same_path" and value not in (None, [])}
        return kept if given["same_path"] else {**kept, "same_path": False}


class AddSource(About, Crawl):
    """One form for the five types; only the fields of the chosen one count."""

    type = forms.ChoiceField(choices=Source.Type.choices)
    upload = Files(required=False, widget=FilesInput(attrs={"class": "drop"}))
    url = forms.CharField(
        max_length=2000, required=False, widget=_input(placeholder="https://docs.example.org/guide/", inputmode="url")
    )
    path = forms.CharField(max_length=2000, required=False, widget=_input(placeholder="/srv/docs"))
    content = forms.CharField(max_length=MAX_TEXT, required=False, strip=False, widget=_short(12))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["title"].required = False

    @property
    def chosen(self) -> str:
        """The type whose fields are shown."""
        value = self["type"].value()
        return str(value) if value in FIELDS_OF else Source.Type.UPLOAD.value

    def clean(self) -> dict[str, Any]:
        for name in {name for names in FIELDS_OF.values() for name in names} - set(FIELDS_OF[self.chosen]):
            self.errors.pop(name, None)  # typed for another type: kept, and not complained about
        if "type" in self.errors:
            return self.cleaned_data
        wanted = next(name for name in FIELDS_OF[self.chosen] if name in _WHAT)
        value = self.cleaned_data.get(wanted)
        if wanted not in self.errors and not (value.strip() if isinstance(value, str) else value):
            self.add_error(wanted, _WHAT[wanted])
        return self.cleaned_data

    def given(self) -> dict[str, Any]:
        """What `services.sources.create` takes."""
        data, kind = self.cleaned_data, self.chosen
        made: dict[str, Any] = {name: data[name] for name in ("description", "tags", "priority")}
        made |= {name: data[name] for name in ("url", "path", "content") if name in FIELDS_OF[kind]}
        if kind == Source.Type.UPLOAD:
            made["files"] = [(file.name, file.chunks()) for file in data["upload"]]
        if kind == Source.Type.WEB:
            made["options"] = self.options()
        return {**made, "type": kind, "title": data["title"] or self.named()}

    def named(self) -> str:
        """A title made from what is added."""
        data = self.cleaned_data
        match self.chosen:
            case Source.Type.UPLOAD:
                files = data["upload"]
                more = f" and {len(files) - 1} more" if len(files) > 1 else ""
                return f"{files[0].name[:200]}{more}"
            case Source.Type.WEB:
                return re.sub(r"^https?://|/+$", "", data["url"].strip())[:255] or data["url"]
            case Source.Type.MANUAL:
                line = next(line for line in data["content"].splitlines() if line.strip())
                return line.strip("# \t")[:100] or "Note"
            case _:
                return str(data["path"].rstrip("/").rpartition("/")[2] or data["path"])[:255]


class EditSource(About):
    """A source's title, description, tags and priority."""


class EditSite(EditSource, Crawl):
    """The same with how the site is followed."""


class EditText(EditSource):
    """The same with the text itself."""

    content = forms.CharField(max_length=MAX_TEXT, strip=False, widget=_short(16))


class AddFiles(Refusing):
    upload = Files(widget=FilesInput(attrs={"class": "drop"}))
