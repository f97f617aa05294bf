"""What people can send from the projects' pages."""

from typing import Any

from django import forms

from workflow.models import Membership, Phase, Project
from workflow.services import phases, projects

COLUMN_WORDS = {"backlog": "Backlog", "ready": "Ready", "in_progress": "In progress", "review": "Review"}


def _text(rows: int) -> forms.Textarea:
    return forms.Textarea(attrs={"rows": rows, "class": "field", "dir": "auto"})


def _line(**more: str) -> forms.TextInput:
    return forms.TextInput(attrs={"class": "field", **more})


class NewProject(forms.Form):
    name = forms.CharField(max_length=projects.MAX_NAME, widget=_line(dir="auto", placeholder="Checkout service"))
    slug = forms.SlugField(
        max_length=50, required=False, widget=_line(placeholder="told from the name", autocapitalize="off")
    )
    description = forms.CharField(required=False, max_length=100_000, widget=_text(3))
    template = forms.ChoiceField(
        required=False, choices=[*((name, name) for name in phases.templates()), ("", "none")], initial="analysis"
    )


class Settings(forms.Form):
    """A project's settings. Each field carries what it showed, so that only what a person changed is written."""

    name = forms.CharField(max_length=projects.MAX_NAME, show_hidden_initial=True, widget=_line(dir="auto"))
    description = forms.CharField(required=False, max_length=100_000, show_hidden_initial=True, widget=_text(4))
    require_review = forms.BooleanField(required=False, show_hidden_initial=True)
    gates_enabled = forms.BooleanField(required=False, show_hidden_initial=True)

    def __init__(self, data: Any = None, *, project: Project) -> None:
        shown = {name: getattr(project, name) for name in ("name", "description", "require_review", "gates_enabled")}
        limits = {f"limit_{column}": project.limit_of(column) for column in COLUMN_WORDS}
        super().__init__(data, initial=shown | limits)
        for column, words in COLUMN_WORDS.items():
            self.fields[f"limit_{column}"] = forms.IntegerField(
                label=words,
                required=False,
                min_value=1,
                max_value=100_000,
                show_hidden_initial=True,
                widget=forms.NumberInput(attrs={"class": "field", "placeholder": "none"}),
            )

    def limits(self) -> list[forms.BoundField]:
        return [self[f"limit_{column}"] for column in COLUMN_WORDS]

    def changes(self, project: Project) -> dict[str, Any]:
        """What was changed, as `services.projects.configure` takes it."""
        changed = {name: self.cleaned_data[name] for name in self.changed_data}
        limits = {name.removeprefix("limit_"): changed.pop(name) for name in list(changed) if name.startswith("limit_")}
        return changed | ({"column_limits": {**project.column_limits, **limits}} if limits else {})


class NewMember(forms.Form):
    user = forms.CharField(max_length=150, widget=_line(autocapitalize="off", autocomplete="off"))
    role = forms.ChoiceField(
        choices=Membership.Role.choices, initial=Membership.Role.MEMBER, widget=forms.Select(attrs={"class": "field"})
    )


class FileChosen(forms.Form):
    """A file to bring in. `only` says that it shall be looked at, no more."""

    file = forms.FileField(
        error_messages={"required": "Choose a file first.", "empty": "The file is empty."},
        widget=forms.FileInput(attrs={"class": "drop"}),
    )
    only = forms.ChoiceField(required=False, choices=[("check", "check")])


class ProjectFileChosen(FileChosen):
    slug = forms.SlugField(
        max_length=50, required=False, widget=_line(placeholder="as in the file", autocapitalize="off")
    )


class TableChosen(FileChosen):
    phase = forms.TypedChoiceField(required=False, coerce=int, empty_value=None)

    def __init__(self, *args: Any, phases: list[Phase], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["phase"].choices = [(phase.number, str(phase)) for phase in phases]  # type: ignore[attr-defined]  # a choice field


class FirstTask(forms.Form):
    project = forms.SlugField()
    text = forms.CharField(max_length=10_000)
