"""What people can send from the memories' pages."""

from datetime import date, datetime, timedelta
from typing import Any

from django import forms

from memory.models import MAX_CONTENT, Category, Memory
from memory.selectors import moments


class TagsInput(forms.CharField):
    """Tags with commas between them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, max_length=4000, **options)

    def clean(self, value: Any) -> Any:
        text: str = super().clean(value)
        return [tag for part in text.split(",") if (tag := part.strip())]

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(value) if isinstance(value, list) else value


class MemoryForm(forms.Form):
    content = forms.CharField(
        label="What should be remembered?",
        max_length=MAX_CONTENT,
        strip=False,
        widget=forms.Textarea(
            attrs={"rows": 5, "placeholder": "One fact, in sentences that make sense to somebody who was not there."}
        ),
    )
    category = forms.ChoiceField(choices=Category.choices, initial=Category.DECISION)
    tags = TagsInput(widget=forms.TextInput(attrs={"class": "field", "placeholder": "auth, caching"}))
    expires_on = forms.DateField(
        label="Forget after",
        required=False,
        widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date", "class": "field"}),
    )

    def values(self) -> dict[str, Any]:
        """The cleaned data as the services take it."""
        given = dict(self.cleaned_data)
        day = given.pop("expires_on", None)
        return {**given, "expires_at": moments.end_of(day) if day else None}

    def clean_content(self) -> str:
        return str(self.cleaned_data["content"]).replace("\r\n", "\n")

    def clean_expires_on(self) -> date | None:
        day: date | None = self.cleaned_data["expires_on"]
        if day == date.max:
            raise forms.ValidationError("There is no day after that.")
        return day


class EditForm(MemoryForm):
    version = forms.IntegerField(widget=forms.HiddenInput, min_value=1, max_value=2**31 - 1)

    @classmethod
    def of(cls, memory: Memory) -> "EditForm":
        """The form as it stands before anybody changed anything."""
        return cls(
            initial={
                "content": memory.content,
                "category": memory.category,
                "tags": memory.tags,
                "expires_on": last_day(memory.expires_at),
                "version": memory.version,
            }
        )


def last_day(expires_at: datetime | None) -> date | None:
    """The last day, in UTC, on which something is in force."""
    return (expires_at - timedelta(microseconds=1)).date() if expires_at else None
