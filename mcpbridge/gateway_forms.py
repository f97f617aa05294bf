"""Forms over the gateway's services, for the pages and the admin alike. Secrets go in and never come out."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms

from devflow.actors import Actor
from devflow.administration import ModelForm
from devflow.errors import DevFlowError
from mcpbridge.gateway import backends, checking, composites
from mcpbridge.models import Action, Backend, CompositeTool, EffectChoice, IntentChoice

OF_ACTION = (
    *("is_enabled", "is_federated", "intent_override", "effect_override", "artifact", "alias_lines"),
    *("lookup", "references"),
)
OF_COMPOSITE = ("name", "description", "input_schema", "steps", "is_enabled")
TEXTAREA = {"class": "field", "rows": 4, "spellcheck": "false"}


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def pairs(text: str) -> dict[str, str]:
    """`NAME=value` lines (or `Name: value`, as headers are written). Raises `ValidationError` without any value."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        at = min((place for mark in "=:" if (place := line.find(mark)) > 0), default=0)
        if not at:
            raise forms.ValidationError(f"Line {number} is not NAME=value.")  # never shown: it may be a secret
        found[line[:at].strip()] = line[at + 1 :].strip()
    return found


def _area(label: str, **options: Any) -> forms.CharField:
    attrs = {**TEXTAREA, **options.pop("attrs", {})}
    return forms.CharField(
        label=label, required=False, max_length=100_000, widget=forms.Textarea(attrs=attrs), **options
    )


class JsonField(forms.JSONField):
    """JSON that shows nothing where there is nothing."""

    def prepare_value(self, value: Any) -> Any:
        shown = super().prepare_value(value)
        return "" if shown in ("null", "{}", "[]") else shown


class BackendForm(ModelForm):
    """A backend. Values that are stored sealed are entered, replaced or dropped; the form shows their names."""

    OF_SETTING: ClassVar = {
        "id": "backend_id",
        "args": "arguments",
        "env": "env_lines",
        "headers": "header_lines",
        "inherit_env": "inherited",
        "allowed_roots": "roots",
    }
    arguments = _area("Arguments", help_text="One a line.")
    env_lines = _area(
        "Environment",
        help_text="NAME=value, one a line; kept sealed. ${NAME} stands for a variable of this server.",
        attrs={"autocomplete": "off"},
    )
    forget_env = forms.MultipleChoiceField(
        label="Drop", required=False, widget=forms.CheckboxSelectMultiple, help_text="Variables it is given now."
    )
    inherited = _area("Inherit", help_text="Names of this server's variables it is given too, one a line.")
    header_lines = _area(
        "Headers", help_text="Name=value, one a line; kept sealed.", attrs={"rows": 3, "autocomplete": "off"}
    )
    forget_headers = forms.MultipleChoiceField(
        label="Drop", required=False, widget=forms.CheckboxSelectMultiple, help_text="Headers it is sent now."
    )
    roots = _area(
        "Allowed directories", help_text="A project_root may lie in these, one a line; none: DEVFLOW_ALLOWED_ROOTS."
    )

    timeouts = JsonField(required=False, help_text='Milliseconds by intent, such as {"QUERY": 5000}.')
    activation = JsonField(required=False, help_text=Backend._meta.get_field("activation").help_text)

    class Meta:
        model = Backend
        fields: ClassVar = (
            *("backend_id", "display_name", "transport", "command", "arguments", "url", "wraps", "env_lines"),
            *("forget_env", "inherited", "header_lines", "forget_headers", "is_enabled", "isolation", "version"),
            *("concurrency", "memory_mb", "warm_spares", "sandbox", "may_ask", "roots", "timeouts", "activation"),
        )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        row = self.instance
        for name, kind in (("forget_env", "env"), ("forget_headers", "headers")):
            names = backends.secret_names(row, kind) if row.pk else []
            if names:
                self.fields[name].choices = [(item, item) for item in names]  # type: ignore[attr-defined]  # a choice field
            else:
                del self.fields[name]
        for name, value in (("arguments", row.args), ("inherited", row.inherit_env), ("roots", row.allowed_roots)):
            self.fields[name].initial = "\n".join(value)
        if row.pk:
            self.fields["backend_id"].disabled = True
        for name in ("concurrency", "memory_mb", "warm_spares"):
            self.fields[name].required = False
        self.fields["memory_mb"].label, self.fields["wraps"].label = "Memory (MiB)", "Wraps"
        for name, field in self.fields.items():
            if not isinstance(field.widget, forms.CheckboxInput | forms.CheckboxSelectMultiple):
                field.widget.attrs.setdefault("class", "field")
            if isinstance(field, forms.JSONField):
                field.widget.attrs |= {"rows": 3, "spellcheck": "false"}
            if field.help_text:
                field.widget.attrs["aria-describedby"] = f"about-{name}"

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if not self.errors:
            try:
                given["settings"] = self._settings(given)
                merged = backends.merged(self.instance, given["settings"]) if self.instance.pk else given["settings"]
                checking.checked(merged)
            except forms.ValidationError as exc:
                self.add_error(None, exc)
            except DevFlowError as exc:
                self.refuse(exc)
        return given

    def _settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What was entered, without what the chosen transport has no use for."""
        is_process = given["transport"] in ("stdio", "agent_cli")
        secrets: dict[str, dict[str, str | None]] = {}
        for kind, entered, dropped, used in (
            ("env", "env_lines", "forget_env", is_process),
            ("headers", "header_lines", "forget_headers", not is_process),
        ):
            known = backends.secret_names(self.instance, kind) if self.instance.pk else []
            try:
                new = pairs(given[entered])
            except forms.ValidationError as exc:
                raise forms.ValidationError(f"{self.fields[entered].label}: {exc.messages[0]}") from None
            secrets[kind] = dict.fromkeys(given.get(dropped, ()) if used else known) | (new if used else {})
        numbers = {name: given[name] for name in ("concurrency", "memory_mb", "warm_spares") if given[name] is not None}
        return {
            "id": given["backend_id"],
            **{
                name: given[name]
                for name in ("display_name", "transport", "version", "isolation", "sandbox", "may_ask")
            },
            "is_enabled": given["is_enabled"],
            "allowed_roots": lines(given["roots"]),
            **numbers,
            **secrets,
            "timeouts": given["timeouts"] or {},
            "activation": given["activation"] or None,
            "command": given["command"] if is_process else "",
            "args": [line for line in given["arguments"].splitlines() if line] if is_process else [],
            "inherit_env": lines(given["inherited"]) if is_process else [],
            "url": "" if is_process else given["url"],
            "wraps": given["wraps"] if given["transport"] == "agent_cli" else "",
        }

    def refuse(self, error: DevFlowError) -> None:
        """Show what a service or a check refused, at its field."""
        shown = False
        for where, reason in error.details.items():
            setting = str(where).partition(".")[0]
            field = self.OF_SETTING.get(setting, setting)
            self.add_error(field if field in self.fields else None, f"{reason}"[:1].upper() + f"{reason}"[1:] + ".")
            shown = True
        if not shown:
            self.add_error(None, f"{error.message} {error.suggestion}")

    def write(self, by: Actor) -> backends.Kept:
        """Register or change it. Raises what the services raise."""
        settings = dict(self.cleaned_data["settings"])
        if self.instance.pk:
            return backends.change(settings.pop("id"), by=by, **settings)
        return backends.create(by=by, **{name: value for name, value in settings.items() if value not in ({}, None)})


class ActionForm(ModelForm):
    """What an administrator says of an action."""

    alias_lines = _area("Aliases", help_text="Other names it answers to, one a line.", attrs={"rows": 2})

    lookup = JsonField(required=False, help_text=Action._meta.get_field("lookup").help_text)
    references = JsonField(required=False, help_text=Action._meta.get_field("references").help_text)

    class Meta:
        model = Action
        fields: ClassVar = OF_ACTION

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, kinds, own in (
            ("intent_override", IntentChoice, self.instance.intent),
            ("effect_override", EffectChoice, self.instance.effect),
        ):
            choices = [("", f"as it says: {own}"), *((kind.value, kind.value) for kind in kinds)]
            self.fields[name] = forms.ChoiceField(choices=choices, required=False)
        self.fields["alias_lines"].initial = "\n".join(self.instance.aliases)
        self.fields["artifact"] = forms.ChoiceField(
            choices=[(name, name) for name in ("JSON", "TEXT", "CODE_PY", "CODE_TS", "PATCH", "BINARY")],
            initial=self.instance.artifact,
        )
        for name, field in self.fields.items():
            if not isinstance(field.widget, forms.CheckboxInput):
                field.widget.attrs.setdefault("class", "field")
            if isinstance(field, forms.JSONField):
                field.widget.attrs |= {"rows": 3, "spellcheck": "false"}
            if field.help_text:
                field.widget.attrs["aria-describedby"] = f"about-{name}"

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if not self.errors:
            names = [name for name in OF_ACTION if name != "alias_lines"]
            given["settings"] = {
                name: given[name] or None if name in ("lookup", "references") else given[name] for name in names
            }
            given["settings"]["aliases"] = lines(given["alias_lines"])
            try:
                checking.checked_action(given["settings"])
            except DevFlowError as exc:
                for where, reason in exc.details.items():
                    field = {"aliases": "alias_lines"}.get(str(where).partition(".")[0], str(where).partition(".")[0])
                    self.add_error(field if field in self.fields else None, str(reason))
        return given

    def write(self, by: Actor) -> Action:
        row = self.instance
        return backends.change_action(row.backend.backend_id, row.name, by=by, **self.cleaned_data["settings"])


class CompositeForm(ModelForm):
    """A composite tool; saving a change makes the next version of it."""

    input_schema = forms.JSONField(initial={"type": "object", "properties": {}}, help_text="JSON Schema of an object.")
    steps = forms.JSONField(
        help_text='[{"id", "action", "params"}]; {{input.name}} and {{step_id.path}} stand for earlier values.'
    )

    class Meta:
        model = CompositeTool
        fields: ClassVar = OF_COMPOSITE

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.instance.pk and "name" in self.fields:
            self.fields["name"].disabled = True

    def clean(self) -> dict[str, Any]:
        """Written here: what the service refuses belongs to its fields."""
        given = super().clean() or {}
        if not self.errors:
            try:
                given["saved"] = composites.save(**{name: given[name] for name in OF_COMPOSITE})
            except DevFlowError as exc:
                for where, reason in exc.details.items() or {"": exc.message}.items():
                    field, _, place = str(where).partition(".")
                    words = f"{place}: {reason}" if place else str(reason)
                    self.add_error(field if field in self.fields else None, words)
        return given
