"""Routing of everything Django answers; the MCP transports are routed before it in `devflow.asgi`."""

from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path, re_path
from django.views.generic import RedirectView
from rest_framework.routers import DefaultRouter

from knowledge.api import routes as knowledge_routes
from mcpbridge.api import viewsets
from mcpbridge.api.views import UnknownApiPath, UnknownPath
from memory import api as memory_api
from workflow.api import routes

router = DefaultRouter()
router.trailing_slash = "/?"
router.include_format_suffixes = False
routes.register(router)
knowledge_routes.register(router)
memory_api.register(router)
viewsets.register(router)

admin.autodiscover()

urlpatterns = [
    path("favicon.ico", RedirectView.as_view(url=static("devflow/favicon.svg"))),
    path("admin/", admin.site.urls),
    path("api/v1/", include(router.urls)),
    path("", include("mcpbridge.urls")),
    path("", include("workflow.urls")),
    path("", include("knowledge.urls")),
    path("", include("memory.urls")),
    re_path(r"^mcp/", UnknownPath.as_view()),
    re_path(r"^api(?:/|$)", UnknownApiPath.as_view()),
]
