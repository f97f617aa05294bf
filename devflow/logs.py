"""Structured logs: one event per line, with the trace id of the call and secrets blanked."""

import logging.config
import re
from collections.abc import MutableMapping
from typing import Any

import structlog

# The public prefix and id stay readable, so a leaked line can be traced to its key.
_KEY_IN_TEXT = re.compile(r"(dvf_[0-9A-Za-z]+_)[0-9A-Za-z_-]+")
_SECRET_NAMES = re.compile(r"(?i)(authorization|api[_-]?key|password|passwd|secret|token|cookie|credential)")
_SAFE_NAMES = frozenset({"max_tokens", "tokens", "token_count", "lease_token_given"})


def redact(value: Any, *, depth: int = 8) -> Any:
    """Copy `value` with secrets blanked: values under telling names, and API keys inside any text."""
    if isinstance(value, str):
        return _KEY_IN_TEXT.sub(r"\1***", value)
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        return {
            name: "***"
            if isinstance(name, str)
            and name not in _SAFE_NAMES
            and _SECRET_NAMES.search(name)
            and item not in (None, "")
            else redact(item, depth=depth - 1)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(item, depth=depth - 1) for item in value]
    return value


def _redact_event(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if name in ("exc_info", "_record", "_from_structlog"):
            continue
        event[name] = redact({name: value})[name]
    return event


def _one_line(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape CR and LF, so nobody's input can forge a second line (tracebacks keep theirs)."""
    for name, value in event.items():
        if isinstance(value, str) and name not in ("exception", "stack"):
            event[name] = value.replace("\r", "\\r").replace("\n", "\\n")
    return event


_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def logging_config(level: str, output: str) -> dict[str, Any]:
    """A `logging.config` mapping: `output` is `console` or `json`; everything goes to standard error."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if output == "json"
        # Not its pretty tracebacks: they show the values of local variables, keys and passwords among them.
        else structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _SHARED,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.format_exc_info,
                    _redact_event,
                    _one_line,
                    renderer,
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # One line per HTTP request would repeat what the audit log keeps.
            "uvicorn.access": {"level": "WARNING"},
            "uvicorn.error": {"level": "WARNING"},
            # Its warnings repeat django.request's, and every closed board is one.
            "django_structlog": {"level": "ERROR"},
            "mcp": {"level": "WARNING"},
            "httpx": {"level": "WARNING"},
            "httpx2": {"level": "WARNING"},
            "huey": {"level": "WARNING"},
        },
    }


def configure(settings: dict[str, Any]) -> None:
    """Apply a mapping of `logging_config` and route structlog through it."""
    logging.config.dictConfig(settings)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
