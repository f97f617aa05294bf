"""The agile tools: epics, user stories, tasks and issues of DevFlow's own board or of a real Taiga."""

from workflow.tools.taiga import batch, epics, issues, metadata, projects, stories, summary, tasks

__all__ = ["batch", "epics", "issues", "metadata", "projects", "stories", "summary", "tasks"]
