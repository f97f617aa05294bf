"""The REST door: discovery, calls, health, metrics, OpenAPI. Above the dispatcher, beside the transports."""
