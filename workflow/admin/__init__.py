"""The workflow in the admin: phases first of all. What has rules goes through services here too."""

from workflow.admin import activity, projects, tasks, webhooks

__all__ = ["activity", "projects", "tasks", "webhooks"]
