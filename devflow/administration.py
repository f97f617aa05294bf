"""What the admin classes share: who acts, services over chosen rows, rows that nobody edits."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from devflow import actors
from devflow.actors import Actor
from devflow.errors import DevFlowError

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    ModelForm = forms.ModelForm[Any]
    TabularInline = admin.TabularInline[Any, Any]
else:  # Django's own classes take no parameters at run time
    ModelAdmin, ModelForm, TabularInline = admin.ModelAdmin, forms.ModelForm, admin.TabularInline


def person_of(request: HttpRequest) -> Actor:
    return actors.person(user_id=int(request.user.pk or 0), name=request.user.get_username(), tool="admin")


def each(
    modeladmin: Any, request: HttpRequest, rows: QuerySet[Any], done: str, service: Callable[[Any, Actor], Any]
) -> None:
    """Run a service on every chosen row; what it refuses is said, the rest is done."""
    actor, good = person_of(request), 0
    for row in rows:
        try:
            service(row, actor)
            good += 1
        except DevFlowError as exc:
            modeladmin.message_user(request, f"{exc.message} {exc.suggestion}", messages.WARNING)
    if good:
        modeladmin.message_user(request, f"{good} {done}.", messages.SUCCESS)


class ReadOnlyAdmin(ModelAdmin):
    """Rows that only services write."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
