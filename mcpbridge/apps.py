from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class McpBridgeConfig(AppConfig):
    name = "mcpbridge"
    verbose_name = "MCP"

    def ready(self) -> None:
        autodiscover_modules("tools")
