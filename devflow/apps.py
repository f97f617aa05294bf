from django.apps import AppConfig


class KernelConfig(AppConfig):
    name = "devflow"
    verbose_name = "DevFlow"

    def ready(self) -> None:
        from devflow import checks  # noqa: F401  # registers the system checks
