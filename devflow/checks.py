"""System checks: a wrong combination of settings stops the start and names the fix."""

from typing import Any

from django.conf import settings
from django.core.checks import Error, Tags, register

from devflow import config
from devflow.config import Config

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
SAMPLE_SECRETS = frozenset({"changeme", "change-me", "secret", "insecure", "devflow"})


def problems(conf: Config) -> list[Error]:
    """Every reason why this configuration must not serve."""
    found: list[Error] = []
    several = conf.workers > 1
    if several and not conf.redis_url:
        found.append(
            Error(
                "Several workers need a shared channel layer.",
                hint="Set DEVFLOW_REDIS_URL, or DEVFLOW_WORKERS=1.",
                id="devflow.E001",
            )
        )
    if several and not conf.database_url.startswith(("postgres://", "postgresql://")):
        found.append(
            Error(
                "Several workers need PostgreSQL.",
                hint="Set DEVFLOW_DATABASE_URL=postgres://..., or DEVFLOW_WORKERS=1.",
                id="devflow.E002",
            )
        )
    if several and conf.embedded_jobs:
        found.append(
            Error(
                "Several workers cannot each run the embedded jobs.",
                hint="Unset DEVFLOW_EMBEDDED_JOBS and start `devflow worker`.",
                id="devflow.E003",
            )
        )
    secret = conf.secret_key.get_secret_value()
    if secret and (len(secret) < 32 or secret.lower() in SAMPLE_SECRETS or secret.startswith("django-insecure")):
        found.append(
            Error(
                "The secret key is short or a sample.",
                hint="Unset DEVFLOW_SECRET_KEY to have one generated, or set 50 random characters.",
                id="devflow.E004",
            )
        )
    if conf.debug and conf.mcp_gateway.host not in LOOPBACK:
        found.append(
            Error(
                "DEBUG must not be on where others can connect.",
                hint="Unset DEVFLOW_DEBUG, or listen on 127.0.0.1.",
                id="devflow.E005",
            )
        )
    if "*" in conf.allowed_hosts or "*" in conf.allowed_origins:
        found.append(
            Error(
                "`*` lets any site talk to this server.",
                hint="Name the hosts in DEVFLOW_ALLOWED_HOSTS and DEVFLOW_ALLOWED_ORIGINS.",
                id="devflow.E006",
            )
        )
    return found


@register(Tags.security)
def configuration(**_kwargs: Any) -> list[Error]:
    return problems(config.current()) if settings.configured else []
