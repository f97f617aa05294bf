"""What `devflow up` prints: where everything is, and what to paste into which client."""

import json
import sys
from pathlib import Path

from devflow.cli.provision import ADMIN, FirstStart

_PLACEHOLDER = "YOUR_KEY"


def render(url: str, first: FirstStart | None, home: Path) -> str:
    """The text for a server at `url`; `first` holds the credentials that are shown this once."""
    from mcpbridge.clients import local_command

    command = local_command()
    lines = ["", "DevFlow", f"  Board      {url}/", f"  Admin      {url}/admin/", f"  Connect    {url}/connect/"]
    if first:
        lines += [
            f"  Login      {ADMIN} / {first.password}    (shown this once)",
            f"  API key    {first.key}    (shown this once)",
        ]
    else:
        lines += [
            f"  Login      {ADMIN}    (lost the password? {_near(sys.executable)} manage.py changepassword {ADMIN})",
            f"  API key    {' '.join([_near(command[0]), *command[1:]])} createkey NAME    (makes another one)",
        ]
    lines += [f"  Data       {home}", "  Stop       Ctrl-C", ""]
    lines += ["Connect a client, each agent with an id of its own (Connect shows more clients and makes keys):", ""]
    return "\n".join([*lines, *_snippets(url, first.key if first else _PLACEHOLDER, command), ""])


def _near(path: str) -> str:
    """`path` as it is written shortest from here."""
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path


def _snippets(url: str, key: str, command: list[str]) -> list[str]:
    http = {"mcpServers": {"devflow": {"url": f"{url}/mcp", "headers": {"X-API-Key": key, "X-Agent-Id": "cursor-1"}}}}
    stdio = {
        "mcpServers": {
            "devflow": {
                "command": command[0],
                "args": [*command[1:], "mcp"],
                "env": {"DEVFLOW_API_URL": url, "DEVFLOW_API_KEY": key, "DEVFLOW_AGENT_ID": "desktop-1"},
            }
        }
    }
    headers = f'--header "X-API-Key: {key}" --header "X-Agent-Id: claude-1"'
    return [
        "Claude Code",
        f"  claude mcp add --transport http devflow {url}/mcp {headers}",
        "Cursor (.cursor/mcp.json)",
        f"  {json.dumps(http)}",
        "Claude Desktop, and others that start a process",
        f"  {json.dumps(stdio)}",
    ]
