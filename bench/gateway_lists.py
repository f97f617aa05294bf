"""Tokens a client's context pays for 100 backend tools in each exposure. Prints a Markdown table.

The tools are those of real servers (server-everything, -filesystem, -memory), under several ids until there are 100.
"""

import itertools
import json
import os
from collections.abc import Mapping
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings")
django.setup()

from bench.processes import ROOT  # noqa: E402  # only importable once Django is set up
from mcpbridge.gateway import catalog, discovery  # noqa: E402
from mcpbridge.gateway.discovery import Found  # noqa: E402
from mcpbridge.models import Action, Backend  # noqa: E402
from mcpbridge.views import token_costs  # noqa: E402

TOOLS = 100


def _register(servers: Mapping[str, list[dict[str, Any]]]) -> None:
    left = TOOLS
    for number, (name, tools) in enumerate(itertools.cycle(servers.items())):
        if left == 0:
            return
        row = Backend.objects.create(backend_id=f"{name}-{number}", transport="stdio", command="true")
        discovery.keep(catalog.backend_spec(row), Found(tools[:left], {}, ""))
        left -= len(tools[:left])


def main() -> None:
    Backend.objects.all().delete()
    own = {cost["name"]: cost["tokens"] for cost in token_costs()}
    recorded = json.loads((ROOT / "tests" / "agentify" / "tools.json").read_text(encoding="utf-8"))
    _register({name: server["tools"] for name, server in recorded.items()})
    Action.objects.update(is_federated=True)
    costs = token_costs()
    print(f"What a client pays for {TOOLS} backend tools (a token is taken as four characters of the listing):\n")
    print("| exposure | tools listed | tokens | of these for the backends |")
    print("|---|---:|---:|---:|")
    for cost in costs:
        name, tokens = cost["name"], cost["tokens"]
        print(f"| `{name}` | {cost['tools']} | {tokens} | {tokens - own[name]} |")


main()
