"""What people can send from the pages."""

from dataclasses import asdict
from typing import Any

from django import forms

from workflow.models import Evidence, Phase, Priority
from workflow.services.editing import Draft


class NewTask(forms.Form):
    description = forms.CharField(
        label="What has to be done?",
        max_length=100_000,
        widget=forms.Textarea(attrs={"rows": 3, "placeholder": "The first line becomes the title."}),
    )
    phase = forms.TypedChoiceField(coerce=int)
    priority = forms.ChoiceField(choices=[(item.label, item.label) for item in Priority], initial="medium")

    def __init__(self, *args: Any, phases: list[Phase], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["phase"].choices = [(phase.number, str(phase)) for phase in phases]  # type: ignore[attr-defined]  # a choice field


class ViewName(forms.Form):
    """A name for the filters of a board."""

    name = forms.CharField(max_length=60)
    forget = forms.BooleanField(required=False)


MAX_WORDS = 100_000


def _ref(said: str) -> str:
    """`#12` of `12`, `#12` and `#12 Pay by card`, as the form offers stories."""
    first = said.split(maxsplit=1)[0] if said.strip() else ""
    return f"#{first.removeprefix('#')}" if first else ""


class Act(forms.Form):
    """What goes with a person's decision on a task; each action takes what it needs."""

    text = forms.CharField(max_length=MAX_WORDS, required=False)
    version = forms.IntegerField(required=False, min_value=1)
    definition = forms.IntegerField(required=False, min_value=1, max_value=1000)
    kind = forms.ChoiceField(required=False, choices=[(kind.value, kind.value) for kind in Evidence.Kind])
    to = forms.CharField(max_length=120, required=False)
    blocker = forms.CharField(max_length=400, required=False)

    def clean_text(self) -> str:
        """Browsers end lines with a carriage return, too."""
        return str(self.cleaned_data["text"]).replace("\r\n", "\n")


class ToAgents(forms.Form):
    """A message to one agent by name, `*` for all, or `phase:2`."""

    to = forms.CharField(max_length=120)
    text = forms.CharField(max_length=MAX_WORDS)


class EditTask(forms.Form):
    """All a person can say of a task. `version` and `marks` tell what the edit began with."""

    subject = forms.CharField(label="Title", max_length=255)
    description = forms.CharField(
        max_length=MAX_WORDS,
        widget=forms.Textarea(attrs={"rows": 14}),
        help_text="Markdown. Agents read all of it; its first line is usually the title.",
    )
    phase = forms.TypedChoiceField(coerce=int)
    priority = forms.ChoiceField(choices=[(item.label, item.label) for item in Priority])
    boosted = forms.BooleanField(required=False, label="Boosted", help_text="Claimed before everything else.")
    tags = forms.CharField(max_length=2000, required=False, help_text="Separated by commas.")
    reserved_for = forms.ChoiceField(
        required=False, label="Reserved for", help_text="Only this agent may claim it. Not while somebody holds it."
    )
    story = forms.CharField(max_length=300, required=False, help_text="Its number, such as #12.")
    manual_block = forms.CharField(
        max_length=500, required=False, label="On hold because", help_text="It waits while this says why."
    )
    version = forms.IntegerField(widget=forms.HiddenInput)
    marks = forms.CharField(max_length=600, required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, phases: list[Phase], agents: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["phase"].choices = [(phase.number, str(phase)) for phase in phases]  # type: ignore[attr-defined]  # a choice field
        self.fields["reserved_for"].choices = [("", "everybody"), *((name, name) for name in agents)]  # type: ignore[attr-defined]  # a choice field
        for name in ("subject", "description", "tags", "story", "manual_block"):
            self.fields[name].widget.attrs["dir"] = "auto"
        self.fields["story"].widget.attrs |= {"list": "stories", "autocomplete": "off"}
        for bound in self.fields.values():
            if not isinstance(bound, forms.BooleanField):
                bound.widget.attrs["class"] = "field"

    def clean_marks(self) -> dict[str, str]:
        return dict(one.split(":", 1) for one in self.cleaned_data["marks"].split() if ":" in one)

    def draft(self) -> Draft:
        """What a valid form says."""
        said = self.cleaned_data
        return Draft(
            subject=said["subject"],
            description=said["description"].replace("\r\n", "\n"),
            priority=said["priority"],
            tags=tuple(dict.fromkeys(tag for one in said["tags"].split(",") if (tag := one.strip()))),
            phase=said["phase"],
            boosted=said["boosted"],
            manual_block=said["manual_block"],
            reserved_for=said["reserved_for"],
            story=_ref(said["story"]),
        )

    @staticmethod
    def initial_of(draft: Draft, version: int) -> dict[str, Any]:
        """The form of a draft."""
        marks = " ".join(f"{name}:{mark}" for name, mark in draft.marks().items())
        return {**asdict(draft), "tags": ", ".join(draft.tags), "version": version, "marks": marks}
