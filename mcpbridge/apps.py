from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from devflow.ports import HealthReport


class McpBridgeConfig(AppConfig):
    name = "mcpbridge"
    verbose_name = "MCP"

    def ready(self) -> None:
        from devflow import ports
        from mcpbridge.calls import LoggedCalls
        from mcpbridge.figures import CountedCalls

        ports.call_log.bind(LoggedCalls())
        ports.call_figures.bind(CountedCalls())
        ports.health.add("gateway", _health)


def _health() -> "HealthReport":
    from mcpbridge.gateway import health  # with it comes the SDK

    return health.probe()
