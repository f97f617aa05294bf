"""REST doors of the protocol, and the pages that hand out its keys."""

from django.urls import path

from mcpbridge import views as pages
from mcpbridge.api import gateway_views, schema, views

urlpatterns = [
    path("mcp/tools", views.ToolsView.as_view(), name="tools"),
    path("mcp/tools/<str:name>", views.ToolView.as_view(), name="tool"),
    path("mcp/execute", views.ExecuteView.as_view(), name="execute"),
    path("mcp/batch", views.BatchView.as_view(), name="batch"),
    path("mcp/gateway", gateway_views.GatewayView.as_view(), name="mcp-gateway"),
    path("mcp/health", views.HealthView.as_view(), name="health"),
    path("mcp/metrics", views.MetricsView.as_view(), name="metrics"),
    path("metrics", views.PrometheusView.as_view(), name="prometheus"),
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("api/schema/", schema.SchemaView.as_view(), name="schema"),
    path("api/docs/", schema.DocsView.as_view(url_name="schema"), name="docs"),
    path("connect/", pages.connect, name="connect"),
    path("connect/light/<slug:unique>", pages.connect_light, name="connect-light"),
    path("gateway/", pages.gateway, name="gateway"),
    path("keys/", pages.keys_page, name="keys"),
    path("keys/<int:pk>/revoke", pages.revoke_key, name="key-revoke"),
]
