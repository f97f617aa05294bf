"""Which projects are worked on in a real Taiga, for their admins; a key needs the scope `admin`, also to read."""

from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from devflow.errors import forbidden
from devflow.rest import Exact, Text
from workflow.api.access import WorkflowRows, project_named
from workflow.api.webhooks import AdminRows
from workflow.models import Project, RemoteProject
from workflow.taiga import remotes


class RemoteProjectSerializer(serializers.ModelSerializer[RemoteProject]):
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)
    host = serializers.SerializerMethodField()

    class Meta:
        model = RemoteProject
        fields = (
            *("id", "project", "url", "host", "remote_id", "remote_slug", "state", "detail", "checked_at"),
            "attributes_at",
        )
        read_only_fields = fields

    def get_host(self, remote: RemoteProject) -> str:
        return urlsplit(remote.url).netloc


class RemoteProjectCreate(Exact):
    project = serializers.SlugField(help_text="The project here.")
    url = Text(max_length=500, help_text="Taiga's address, with or without /api/v1.")
    username = Text(max_length=255, required=False, allow_blank=True)
    password = Text(max_length=remotes.MOST_SECRET, required=False, allow_blank=True, write_only=True)
    token = Text(max_length=remotes.MOST_SECRET, required=False, allow_blank=True, write_only=True)
    remote = Text(max_length=250, required=False, allow_blank=True, help_text="Its project there: slug or id.")


class RemoteTestedSerializer(serializers.Serializer[Any]):
    ok = serializers.BooleanField()
    state = serializers.CharField()
    detail = serializers.CharField()
    name = serializers.CharField()


class RemoteProjectViewSet(ListModelMixin, RetrieveModelMixin, AdminRows):
    """Projects worked on in a Taiga. Logins are taken, and never given out again."""

    rows = RemoteProject.objects.select_related("project").order_by("pk")
    serializer_class = RemoteProjectSerializer
    filterset_fields = ("state",)
    write_serializers = {"create": RemoteProjectCreate}
    search_fields = ("url", "remote_slug")
    ordering_fields = ("id", "checked_at")
    http_method_names = ("get", "post", "delete", "head", "options")

    def check_permissions(self, request: Request) -> None:
        WorkflowRows.check_permissions(self, request)
        identity: Any = request.auth
        if identity is not None and "admin" not in identity.scopes:
            raise forbidden("This key needs the scope `admin` for this.", suggestion="Use a key that has it.")

    @extend_schema(request=RemoteProjectCreate, responses={201: RemoteProjectSerializer})
    def create(self, request: Request) -> Response:
        """Connect a project, or connect it anew, after Taiga has answered. A name and a password, or a token."""
        values = self.given(request)
        project = project_named(request, values.pop("project"))
        actor = self.writer(project.pk, admin=True)
        made = remotes.connect(project, actor=actor, is_trusted=is_operator(request), **values)
        return self.shown(made.pk, created=True)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Have the project kept here again. Nothing changes in Taiga."""
        remote: RemoteProject = self.get_object()
        remotes.disconnect(remote.project, actor=self.writer(remote.project_id, admin=True))
        return Response(status=204)

    @extend_schema(request=None, responses=RemoteTestedSerializer)
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Ask it now. What is wrong there is in the answer, which is 200 all the same."""
        remote: RemoteProject = self.get_object()
        self.writer(remote.project_id, admin=True)
        return Response(asdict(remotes.test(remote.project)))


def is_operator(request: Request) -> bool:
    """Whether somebody who runs this server asks: a superuser in person may connect what is not public."""
    return request.auth is None and bool(getattr(request.user, "is_superuser", False))
