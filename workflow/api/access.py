"""The workflow's own rows behind the shared rules of `devflow.viewsets`: projects and their owners."""

from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from rest_framework.request import Request

from devflow.errors import not_found
from devflow.viewsets import RowsViewSet, scope_of
from workflow.models import Project
from workflow.selectors import projects as project_selectors


class WorkflowRows(RowsViewSet):
    toolset = "workflow"


def visible(request: Request) -> QuerySet[Project]:
    return project_selectors.visible(scope_of(request))


def project_named(request: Request, slug: str) -> Project:
    """Raises `not_found` for an unknown project and for one the caller does not see."""
    project = visible(request).filter(slug=slug).first()
    if project is None:
        raise not_found("Project", slug, suggestion="GET /api/v1/projects/ lists the projects you see.")
    return project


def owner_of(request: Request) -> Any:
    """The person behind the request, or None for a key of the server's command line."""
    user_id = scope_of(request).user_id
    return None if user_id is None else get_user_model()._default_manager.filter(pk=user_id, is_active=True).first()
