"""Webhooks as the admins of their projects see them; nobody else does."""

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, Q, QuerySet

from devflow.ports import KeyScope
from workflow.models import Delivery, Membership, Project, Webhook
from workflow.selectors import projects


def administered(scope: KeyScope) -> QuerySet[Project]:
    """The projects somebody sees and administers: all of them for a superuser and for a key without an owner."""
    seen = projects.visible(scope)
    if scope.user_id is None:
        return seen
    boss = get_user_model()._default_manager.filter(pk=scope.user_id, is_superuser=True)
    member = Membership.objects.filter(project=OuterRef("pk"), user=scope.user_id, role=Membership.Role.ADMIN)
    return seen.filter(Q(Exists(member)) | Q(Exists(boss)))


def of_project(*, project_id: int) -> QuerySet[Webhook]:
    return Webhook.objects.filter(project_id=project_id).order_by("pk")


def log(*, webhook_id: int, status: str = "") -> QuerySet[Delivery]:
    """What a webhook was told, newest first, without the bodies."""
    rows = Delivery.objects.filter(webhook_id=webhook_id).defer("payload", "response_body").order_by("-pk")
    return rows.filter(status=status) if status else rows
