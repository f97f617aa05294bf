"""What people can send from the planning pages."""

from collections.abc import Mapping
from typing import Any

from django import forms

from workflow.models import Kind, Severity, Urgency
from workflow.models.agile import MAX_REASON, MAX_SUBJECT, Epic, Issue, UserStory, WorkItem
from workflow.selectors.planning import Words
from workflow.services.agile.sprints import MAX_NAME

MAX_WORDS = 100_000
URGENCIES = Urgency.choices
SEVERITIES = Severity.choices
POINTS = "points_"


def _line(**more: str) -> forms.TextInput:
    return forms.TextInput(attrs={"class": "field", "dir": "auto", **more})


def _text(rows: int, **more: str) -> forms.Textarea:
    return forms.Textarea(attrs={"class": "field", "dir": "auto", "rows": str(rows), **more})


def _select() -> forms.Select:
    return forms.Select(attrs={"class": "field"})


def _lf(text: str) -> str:
    """Browsers end lines with a carriage return, too."""
    return text.replace("\r\n", "\n")


class QuickEpic(forms.Form):
    subject = forms.CharField(max_length=MAX_SUBJECT)


class QuickStory(forms.Form):
    subject = forms.CharField(max_length=MAX_SUBJECT)
    epic = forms.IntegerField(required=False, min_value=1)
    sprint = forms.IntegerField(required=False, min_value=1)


class QuickTask(forms.Form):
    subject = forms.CharField(max_length=MAX_SUBJECT)


class Say(forms.Form):
    text = forms.CharField(max_length=MAX_WORDS)

    def clean_text(self) -> str:
        return _lf(str(self.cleaned_data["text"]))


class Plan(forms.Form):
    """A change to one or several stories of the backlog; what is empty stays as it is, `-` takes it away."""

    status = forms.IntegerField(required=False, min_value=1)
    epic = forms.RegexField(r"^(-|[0-9]{1,9})$", required=False)
    sprint = forms.RegexField(r"^(-|[0-9]{1,9})$", required=False)
    assignee = forms.RegexField(r"^(-|[0-9]{1,9})$", required=False)

    def fields_said(self) -> dict[str, Any]:
        """As `items.update` takes them."""
        said: dict[str, Any] = {}
        if self.cleaned_data["status"] is not None:
            said["status_id"] = self.cleaned_data["status"]
        for name, field in (("epic", "epic_id"), ("sprint", "sprint_id"), ("assignee", "assigned_to_id")):
            if value := self.cleaned_data[name]:
                said[field] = None if value == "-" else int(value)
        return said


class Place(forms.Form):
    """Where a story was dropped: behind or before another one, in an epic (0: in none)."""

    after = forms.IntegerField(required=False, min_value=1)
    before = forms.IntegerField(required=False, min_value=1)
    epic = forms.IntegerField(required=False, min_value=0)


class SprintForm(forms.Form):
    """Days are both part of the sprint."""

    name = forms.CharField(max_length=MAX_NAME, widget=_line(placeholder="Sprint 1"))
    starts_on = forms.DateField(
        label="First day", widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date", "class": "field"})
    )
    ends_on = forms.DateField(
        label="Last day", widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date", "class": "field"})
    )


class MoveTask(forms.Form):
    task = forms.IntegerField(min_value=1)
    column = forms.CharField(max_length=20)
    version = forms.IntegerField(required=False, min_value=1)


class ItemForm(forms.Form):
    """An epic, a story or an issue. Each field carries what it showed, so that only what a person changed is written
    and only what somebody else changed, too, is a conflict.
    """

    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)
    subject = forms.CharField(label="Title", max_length=MAX_SUBJECT, widget=_line())
    description = forms.CharField(required=False, max_length=MAX_WORDS, widget=_text(10))
    status = forms.TypedChoiceField(coerce=int, widget=_select())
    assignee = forms.TypedChoiceField(
        label="Assigned to", required=False, coerce=int, empty_value=None, widget=_select()
    )
    tags = forms.CharField(required=False, max_length=2000, widget=_line())
    is_blocked = forms.BooleanField(label="Blocked", required=False)
    blocked_reason = forms.CharField(label="Because", required=False, max_length=MAX_REASON, widget=_line())

    def __init__(self, data: Any = None, *, kind: Kind, words: Words, item: WorkItem | None = None) -> None:
        self.kind, self.words = kind, words
        super().__init__(data, initial=self.initial_of(item) if item else None)
        own = self.fields
        own["status"].choices = [(one.pk, one.name) for one in words.statuses[kind]]  # type: ignore[attr-defined]  # a choice field
        people = [(one.pk, one.get_username()) for one in words.people]
        assigned = getattr(item, "assigned_to", None)
        if assigned is not None and assigned.pk not in dict(people):
            people.append((assigned.pk, assigned.get_username()))
        own["assignee"].choices = [("", "nobody"), *people]  # type: ignore[attr-defined]  # a choice field
        if kind is Kind.USER_STORY:
            self._choice("epic", "Epic", [(one.pk, str(one)) for one in words.epics], "none")
            for role in words.roles:
                own[f"{POINTS}{role.slug}"] = forms.FloatField(
                    label=role.name,
                    required=False,
                    min_value=0,
                    max_value=1000,
                    widget=forms.NumberInput(attrs={"class": "field", "step": "any", "list": "scale"}),
                )
            own["due_on"] = forms.DateField(
                label="Due",
                required=False,
                widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date", "class": "field"}),
            )
        if kind in (Kind.USER_STORY, Kind.ISSUE):
            self._choice("sprint", "Sprint", [(one.pk, one.name) for one in words.sprints], "none")
            own["priority"] = forms.ChoiceField(choices=URGENCIES, initial=Urgency.NORMAL, widget=_select())
        if kind is Kind.ISSUE:
            self._choice("type", "Type", [(one.pk, one.name) for one in words.types], "none")
            own["severity"] = forms.ChoiceField(choices=SEVERITIES, initial=Severity.NORMAL, widget=_select())
        if kind is Kind.EPIC:
            own["color"] = forms.RegexField(
                r"^#[0-9A-Fa-f]{6}$",
                label="Colour",
                required=False,
                widget=forms.TextInput(attrs={"type": "color", "class": "field"}),
            )
        if item is not None:
            for name, one in own.items():
                one.show_hidden_initial = name != "version"

    def _choice(self, name: str, label: str, choices: list[tuple[int, str]], none: str) -> None:
        self.fields[name] = forms.TypedChoiceField(
            label=label,
            required=False,
            coerce=int,
            empty_value=None,
            choices=[("", none), *choices],
            widget=_select(),
        )

    @property
    def estimates(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name.startswith(POINTS)]

    @property
    def choosers(self) -> list[forms.BoundField]:
        names = ("status", "assignee", "type", "severity", "priority", "epic", "sprint", "due_on", "color")
        return [self[name] for name in names if name in self.fields]

    @staticmethod
    def initial_of(item: WorkItem) -> dict[str, Any]:
        """What the form of an item shows."""
        if not isinstance(item, Epic | UserStory | Issue):
            raise TypeError(type(item).__name__)
        shown: dict[str, Any] = {
            "version": item.version,
            "subject": item.subject,
            "description": item.description,
            "status": item.status_id,
            "assignee": item.assigned_to_id or "",
            "tags": ", ".join(item.tags),
            "is_blocked": item.is_blocked,
            "blocked_reason": item.blocked_reason,
        }
        if isinstance(item, UserStory):
            shown |= {f"{POINTS}{role}": value for role, value in item.points.items()}
            shown |= {"epic": item.epic_id or "", "due_on": item.due_on}
        if isinstance(item, UserStory | Issue):
            shown |= {"sprint": item.sprint_id or "", "priority": item.priority}
        if isinstance(item, Issue):
            shown |= {"type": item.type_id or "", "severity": item.severity}
        if isinstance(item, Epic):
            shown |= {"color": item.color}
        return shown

    def changes(self, names: list[str], points: Mapping[str, float]) -> dict[str, Any]:
        """The fields called `names`, as `services.agile.items` takes them; `points` are the story's until now."""
        said: dict[str, Any] = {}
        estimates = {role: value for role, value in points.items() if f"{POINTS}{role}" in self.fields}
        ids = {"status": "status_id", "assignee": "assigned_to_id", "epic": "epic_id", "sprint": "sprint_id"}
        ids["type"] = "type_id"
        for name in names:
            value = self.cleaned_data[name]
            if name.startswith(POINTS):
                estimates[name.removeprefix(POINTS)] = value
                said["points"] = estimates
            elif name == "tags":
                said["tags"] = [tag for one in value.split(",") if (tag := one.strip())]
            elif name == "description":
                said["description"] = _lf(value)
            elif name == "color":
                said |= {"color": value} if value else {}
            elif name != "version":
                said[ids.get(name, name)] = value
        return said
