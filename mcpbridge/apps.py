from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class McpBridgeConfig(AppConfig):
    name = "mcpbridge"
    verbose_name = "MCP"

    def ready(self) -> None:
        autodiscover_modules("tools")

        from devflow import ports
        from mcpbridge.calls import LoggedCalls
        from mcpbridge.figures import CountedCalls
        from mcpbridge.gateway import health
        from mcpbridge.gateway.composed import composed
        from mcpbridge.gateway.federation import federation
        from mcpbridge.registry import registry

        registry.sources += [federation, composed]
        ports.call_log.bind(LoggedCalls())
        ports.call_figures.bind(CountedCalls())
        ports.health.add("gateway", health.probe)
