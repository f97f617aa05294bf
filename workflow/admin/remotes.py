"""Projects worked on in a real Taiga. Logins are taken, never shown."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from devflow.actors import Actor
from devflow.administration import ModelAdmin, each, person_of
from devflow.errors import DevFlowError
from workflow.models import Project, RemoteProject
from workflow.taiga import remotes


class ConnectForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's own takes no parameter at run time
    """Connecting is part of checking: Taiga is asked, and what it says stands beside the field."""

    remote = forms.CharField(max_length=250, required=False, help_text="Its project there, by slug or id.")
    username = forms.CharField(max_length=255, required=False)
    password = forms.CharField(
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}), required=False, strip=False
    )
    token = forms.CharField(
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        required=False,
        help_text="Instead of a name and a password.",
    )
    actor: Actor

    class Meta:
        model = RemoteProject
        fields = ("project", "url")

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if self.errors:
            return values
        login = {name: values[name] for name in ("username", "password", "token", "remote")}
        try:
            self.made = remotes.connect(
                values["project"], url=values["url"], actor=self.actor, is_trusted=True, **login
            )
        except DevFlowError as exc:
            reason = exc.details.get("reason")
            text = f"{exc.message}{f': {reason}' if reason else ''} {exc.suggestion}"
            named = [name for name in exc.details if name in self.fields]
            raise forms.ValidationError({named[0]: text} if named else text) from None
        return values

    def validate_unique(self) -> None:
        """A project that is connected already is connected anew."""


@admin.register(RemoteProject)
class RemoteProjectAdmin(ModelAdmin):
    form = ConnectForm
    list_display = ("project", "url", "remote_slug", "state", "detail", "checked_at")
    list_select_related = ("project",)
    list_filter = ("state",)
    search_fields = ("project__name", "project__slug", "url", "remote_slug")
    readonly_fields = ("remote_slug", "state", "detail", "checked_at")
    actions = ("test_now",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """An address here may be one that is not public, so it takes somebody who runs this server."""
        return bool(getattr(request.user, "is_superuser", False))

    def has_change_permission(self, request: HttpRequest, obj: RemoteProject | None = None) -> bool:
        return self.has_add_permission(request)

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form = super().get_form(request, *args, **kwargs)
        return type("Form", (form,), {"actor": person_of(request)})

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "project":
            kwargs["queryset"] = Project.objects.order_by("name")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Without the transaction Django opens round it: Taiga is waited for inside."""
        answer: HttpResponse = self._changeform_view(request, *_placed(*args, **kwargs))  # type: ignore[attr-defined]  # Django's own half of this method
        return answer

    def save_model(self, request: HttpRequest, obj: RemoteProject, form: Any, change: bool) -> None:
        obj.pk, obj._state.adding = form.made.pk, False
        obj.refresh_from_db()

    def delete_model(self, request: HttpRequest, obj: RemoteProject) -> None:
        remotes.disconnect(obj.project, actor=person_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[RemoteProject]) -> None:
        for remote in queryset.select_related("project"):
            remotes.disconnect(remote.project, actor=person_of(request))

    @admin.action(description="Ask it now", permissions=["change"])
    def test_now(self, request: HttpRequest, queryset: QuerySet[RemoteProject]) -> None:
        def ask(remote: RemoteProject, _actor: Actor) -> None:
            tested = remotes.test(remote.project)
            if not tested.ok:
                self.message_user(request, f"{remote.project}: {tested.detail}", "WARNING")

        each(self, request, queryset.select_related("project"), "asked", ask)


def _placed(object_id: str | None = None, form_url: str = "", extra_context: Any = None) -> tuple[str | None, str, Any]:
    return object_id, form_url, extra_context
