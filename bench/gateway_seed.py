"""Rows for the gateway's measurement: backends before the yardstick's server, a key. Prints the key."""

import asyncio
import sys

import django

django.setup()

from mcpbridge.gateway import catalog, discovery  # noqa: E402  # only importable once Django is set up
from mcpbridge.models import Action, ApiKey, Backend  # noqa: E402
from workflow.services import projects  # noqa: E402

TOOLS = 100
HUNDRED = "hundred"


def _backend(identifier: str, **fields: object) -> Backend:
    row: Backend = Backend.objects.create(
        backend_id=identifier, transport="stdio", command=sys.executable, args=["-m", "bench.stdio_bare"], **fields
    )
    found = asyncio.run(discovery.refresh(catalog.backend_spec(row)))
    if isinstance(found, Exception):
        raise found
    Action.objects.filter(backend=row).update(effect_override="READ_ONLY", intent_override="QUERY")
    return row


def main() -> None:
    projects.create(name="Bench", slug="bench")
    bare = _backend("bare", concurrency=64)
    Action.objects.filter(backend=bare).update(is_federated=True)
    _backend("cold", isolation="subprocess", concurrency=64)
    _backend("warm", isolation="subprocess", concurrency=64, warm_spares=2)
    _, raw = ApiKey.objects.issue(name="bench", scopes=["read", "write", "execute"], rate_per_minute=0)
    print(raw)


main()
