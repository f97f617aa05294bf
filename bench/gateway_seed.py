"""Rows for the gateway's measurement: backends before the yardstick's server, a key. Prints the key."""

import asyncio
import os
import sys
from collections.abc import Sequence

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings")
django.setup()

from bench.processes import ROOT  # noqa: E402  # only importable once Django is set up
from mcpbridge.gateway import catalog, discovery  # noqa: E402
from mcpbridge.models import Action, ApiKey, Backend  # noqa: E402
from workflow.services import projects  # noqa: E402

FAULTS = ("hang", "die", "noise", "flood", "line")
_FAULTY = ROOT / "tests" / "fakes" / "fault_backend.py"


def _backend(identifier: str, args: Sequence[str] = ("-m", "bench.stdio_bare"), **fields: object) -> Backend:
    row: Backend = Backend.objects.create(
        backend_id=identifier, transport="stdio", command=sys.executable, args=list(args), **fields
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
    for mode in FAULTS:
        _backend(mode, ("-S", "-E", str(_FAULTY), mode))
    _, raw = ApiKey.objects.issue(name="bench", scopes=["read", "write", "execute"], rate_per_minute=0)
    print(raw)


main()
