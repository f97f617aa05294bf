from django.apps import AppConfig


class WorkflowConfig(AppConfig):
    name = "workflow"
    verbose_name = "Workflow"

    def ready(self) -> None:
        from devflow import ports
        from workflow.services.directory import WorkflowDirectory, health

        ports.directory.bind(WorkflowDirectory())
        ports.health.add("workflow_engine", health)
