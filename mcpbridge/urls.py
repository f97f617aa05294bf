"""REST doors of the protocol, and the pages that hand out its keys."""

from django.urls import path

from mcpbridge import gateway_views as gateway_pages
from mcpbridge import tool_views
from mcpbridge import views as pages
from mcpbridge.api import gateway_views, kept_views, orchestrate_views, schema, views

urlpatterns = [
    path("mcp/tools", views.ToolsView.as_view(), name="tools"),
    path("mcp/tools/<str:name>", views.ToolView.as_view(), name="tool"),
    path("mcp/execute", views.ExecuteView.as_view(), name="execute"),
    path("mcp/batch", views.BatchView.as_view(), name="batch"),
    path("mcp/gateway", gateway_views.GatewayView.as_view(), name="mcp-gateway"),
    path("mcp/orchestrate", orchestrate_views.OrchestrateView.as_view(), name="mcp-orchestrate"),
    path("mcp/plans/<str:plan_id>/confirm", orchestrate_views.ConfirmPlanView.as_view(), name="mcp-plan-confirm"),
    path("mcp/answers/<str:answer_id>", kept_views.KeptAnswerView.as_view(), name="mcp-answer"),
    path("mcp/health", views.HealthView.as_view(), name="health"),
    path("mcp/metrics", views.MetricsView.as_view(), name="metrics"),
    path("metrics", views.PrometheusView.as_view(), name="prometheus"),
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("api/schema/", schema.SchemaView.as_view(), name="schema"),
    path("api/docs/", schema.DocsView.as_view(url_name="schema"), name="docs"),
    path("connect/", pages.connect, name="connect"),
    path("connect/light/<slug:unique>", pages.connect_light, name="connect-light"),
    path("gateway/", gateway_pages.gateway, name="gateway"),
    path("gateway/new", gateway_pages.backend_new, name="backend-new"),
    path("gateway/import", gateway_pages.backend_import, name="backend-import"),
    path("gateway/plans/<str:plan_id>/<slug:act>", gateway_pages.plan_act, name="plan-act"),
    path("gateway/<slug:backend_id>/", gateway_pages.backend, name="backend"),
    path("gateway/<slug:backend_id>/edit", gateway_pages.backend_edit, name="backend-edit"),
    path("gateway/<slug:backend_id>/act/<slug:act>", gateway_pages.backend_act, name="backend-act"),
    path("gateway/<slug:backend_id>/tools/<path:name>", tool_views.tool, name="backend-tool"),
    path("keys/", pages.keys_page, name="keys"),
    path("keys/<int:pk>/revoke", pages.revoke_key, name="key-revoke"),
]
