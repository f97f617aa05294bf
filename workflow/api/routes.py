"""The workflow's part of /api/v1/."""

from typing import Any

from workflow.api import task_viewsets, viewsets, webhooks


def register(router: Any) -> None:
    router.register("projects", viewsets.ProjectViewSet, basename="project")
    router.register("memberships", viewsets.MembershipViewSet, basename="membership")
    router.register("phases", viewsets.PhaseViewSet, basename="phase")
    router.register("tasks", task_viewsets.TaskViewSet, basename="task")
    router.register("dependencies", task_viewsets.DependencyViewSet, basename="dependency")
    router.register("agents", viewsets.AgentViewSet, basename="agent")
    router.register("messages", viewsets.MessageViewSet, basename="message")
    router.register("gates", viewsets.GateViewSet, basename="gate")
    router.register("events", viewsets.EventViewSet, basename="event")
    router.register("webhooks", webhooks.WebhookViewSet, basename="webhook")
    router.register("webhook-deliveries", webhooks.DeliveryViewSet, basename="webhook-delivery")
