from django.apps import AppConfig


class WorkflowConfig(AppConfig):
    name = "workflow"
    verbose_name = "Workflow"

    def ready(self) -> None:
        from devflow import ports
        from workflow.services.directory import WorkflowDirectory, health
        from workflow.services.guarding import WorkflowGates, WorkflowWatchers

        ports.directory.bind(WorkflowDirectory())
        ports.gates.bind(WorkflowGates())
        ports.watchers.bind(WorkflowWatchers())
        ports.health.add("workflow_engine", health)
