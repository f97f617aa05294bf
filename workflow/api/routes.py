"""The workflow's part of /api/v1/."""

from typing import Any

from workflow.api import planning_viewsets, remote_viewsets, task_viewsets, viewsets, webhooks


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
    router.register("epics", planning_viewsets.EpicViewSet, basename="epic")
    router.register("stories", planning_viewsets.StoryViewSet, basename="story")
    router.register("issues", planning_viewsets.IssueViewSet, basename="issue")
    router.register("sprints", planning_viewsets.SprintViewSet, basename="sprint")
    router.register("item-statuses", planning_viewsets.StatusViewSet, basename="item-status")
    router.register("issue-types", planning_viewsets.TypeViewSet, basename="issue-type")
    router.register("webhooks", webhooks.WebhookViewSet, basename="webhook")
    router.register("webhook-deliveries", webhooks.DeliveryViewSet, basename="webhook-delivery")
    router.register("remote-projects", remote_viewsets.RemoteProjectViewSet, basename="remote-project")
