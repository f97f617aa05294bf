"""Keys and calls in the admin. A key is shown once, when it is made; its digest never."""

from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from import_export.admin import ExportMixin
from import_export.resources import ModelResource

from devflow.administration import ModelAdmin, ModelForm, ReadOnlyAdmin
from mcpbridge import keys
from mcpbridge.access import keyring
from mcpbridge.models import ApiKey, ToolCall
from mcpbridge.tooling import TOOLSETS


class KeyForm(ModelForm):
    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in keys.SCOPES],
        initial=["read", "write"],
        widget=forms.CheckboxSelectMultiple,
    )
    toolsets = forms.MultipleChoiceField(
        choices=[(name, name) for name in sorted(TOOLSETS)],
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="None chosen: all of them.",
    )
    expires_in_days = forms.IntegerField(required=False, min_value=1, max_value=3650, help_text="Empty: never.")

    class Meta:
        model = ApiKey
        fields: ClassVar = [
            *("name", "scopes", "project", "owner", "toolsets", "expose", "names", "rate_per_minute"),
        ]


@admin.register(ApiKey)
class ApiKeyAdmin(ModelAdmin):
    form = KeyForm
    list_display = (
        *("name", "prefix", "scope_list", "project", "owner", "is_live", "created_at", "expires_at"),
        *("last_used_at", "revoked_at"),
    )
    list_select_related = ("project", "owner")
    list_filter = (
        ("revoked_at", admin.EmptyFieldListFilter),
        ("expires_at", admin.EmptyFieldListFilter),
        ("owner", admin.RelatedOnlyFieldListFilter),
    )
    search_fields = ("name", "identifier")
    autocomplete_fields = ("project", "owner")
    date_hierarchy = "created_at"
    actions = ("revoke",)

    @admin.display(description="scopes")
    def scope_list(self, key: ApiKey) -> str:
        return ", ".join(key.scopes)

    @admin.display(description="live", boolean=True)
    def is_live(self, key: ApiKey) -> bool:
        return key.is_live

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        names = list(KeyForm.Meta.fields)
        return [*names, "expires_in_days"] if obj is None else [*names, *self.get_readonly_fields(request, obj)[2:]]

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        if obj is None:
            return ()
        return ("project", "owner", "prefix", "created_at", "expires_at", "revoked_at", "last_used_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)  # a key made here may see every project and have every scope

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(request.user.is_superuser)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # revoked keys stay: the log of calls names them

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            keyring.forget()
            return
        days = form.cleaned_data.get("expires_in_days")
        made, raw = ApiKey.objects.issue(
            name=obj.name,
            scopes=obj.scopes,
            project_id=obj.project_id,
            owner_id=obj.owner_id,
            expires_in=timedelta(days=days) if days else None,
            rate_per_minute=obj.rate_per_minute,
            toolsets=obj.toolsets,
        )
        if obj.expose or obj.names:
            made.expose, made.names = obj.expose, obj.names
            made.save(update_fields=["expose", "names"])
        obj.__dict__.update(made.__dict__)
        request.fresh_key = raw  # type: ignore[attr-defined]  # for response_add below, in this request only

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """Show the key in the answer itself: a redirect would have to keep it somewhere."""
        context = {
            **self.admin_site.each_context(request),
            "title": f"Key {obj.name} was made",
            "opts": self.opts,
            "key": request.fresh_key,  # type: ignore[attr-defined]  # set by save_model above
        }
        response = TemplateResponse(request, "admin/mcpbridge/apikey/created.html", context)
        response["Cache-Control"] = "no-store"
        return response

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("mcpbridge.change_apikey")

    @admin.action(description="Revoke (works everywhere within 5 seconds)", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset:
            keys.revoke(key)
        self.message_user(request, f"{len(queryset)} keys revoked.", messages.SUCCESS)


class CallRows(ModelResource):
    class Meta:
        model = ToolCall
        fields = (
            *("id", "at", "trace_id", "key_name", "agent_name", "project__slug", "transport", "client", "tool"),
            *("effect", "backend", "outcome", "duration_ms", "error"),
        )


@admin.register(ToolCall)
class ToolCallAdmin(ExportMixin, ReadOnlyAdmin):
    resource_classes: ClassVar = [CallRows]
    list_display = (
        *(
            "at",
            "tool",
            "backend",
            "outcome",
            "duration_ms",
            "agent_name",
            "key_name",
            "project",
            "transport",
            "client",
        ),
    )
    list_select_related = ("project",)
    list_filter = ("outcome", "effect", "transport", "backend", "project")
    search_fields = ("tool", "backend", "agent_name", "key_name", "trace_id", "error")
    date_hierarchy = "at"
