"""The workflow in the admin: phases first of all. What has rules goes through services here too."""

from workflow.admin import activity, planning, projects, remotes, tasks, webhooks

__all__ = ["activity", "planning", "projects", "remotes", "tasks", "webhooks"]
