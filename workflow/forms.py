"""What people can send from the pages."""

from typing import Any

from django import forms

from workflow.models import Phase, Priority


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


class Words(forms.Form):
    """A note, a reason, or the feedback of a review."""

    text = forms.CharField(max_length=10_000, required=False, widget=forms.Textarea(attrs={"rows": 3}))
