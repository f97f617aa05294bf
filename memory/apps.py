from django.apps import AppConfig


class MemoryConfig(AppConfig):
    name = "memory"
    verbose_name = "Memory"

    def ready(self) -> None:
        from devflow import ports
        from devflow.vectors.kinds import kinds
        from memory.selectors.points import MemoryPoints
        from memory.services.recall import MemoryRecall

        kinds["memory"] = MemoryPoints()
        ports.recall.bind(MemoryRecall())
