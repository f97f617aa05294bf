"""What `devflow up` prints: where everything is, and what to paste into which client."""

import json
import sys
from pathlib import Path

from devflow.cli.provision import ADMIN, FirstStart

_PLACEHOLDER = "YOUR_KEY"


def render(url: str, first: FirstStart | None, home: Path) -> str:
    """The text for a server at `url`; `first` holds the credentials that are shown this once."""
    key = first.key if first else _PLACEHOLDER
    lines = ["", "DevFlow", f"  Board      {url}/", f"  Admin      {url}/admin/", f"  Connect    {url}/connect/"]
    if first:
        lines += [
            f"  Login      {ADMIN} / {first.password}    (shown this once)",
            f"  API key    {first.key}    (shown this once)",
        ]
    else:
        lines += ["  API key    devflow createkey NAME    (makes another one)"]
    lines += [f"  Data       {home}", "", "Connect a client, each agent with an id of its own:", ""]
    return "\n".join([*lines, *_snippets(url, key), ""])


def _command() -> tuple[str, list[str]]:
    """How a client starts `devflow mcp`, whatever its PATH."""
    installed = Path(sys.executable).with_name("devflow")
    return (str(installed), ["mcp"]) if installed.is_file() else (sys.executable, ["-m", "devflow", "mcp"])


def _snippets(url: str, key: str) -> list[str]:
    command, arguments = _command()
    http = {"mcpServers": {"devflow": {"url": f"{url}/mcp", "headers": {"X-API-Key": key, "X-Agent-Id": "cursor-1"}}}}
    stdio = {
        "mcpServers": {
            "devflow": {
                "command": command,
                "args": arguments,
                "env": {"DEVFLOW_API_URL": url, "DEVFLOW_API_KEY": key, "DEVFLOW_AGENT_ID": "desktop-1"},
            }
        }
    }
    headers = f'--header "X-API-Key: {key}" --header "X-Agent-Id: claude-1"'
    return [
        "Claude Code",
        f"  claude mcp add --transport http devflow {url}/mcp {headers}",
        "Cursor, VS Code",
        f"  {json.dumps(http)}",
        "Clients that start a process",
        f"  {json.dumps(stdio)}",
    ]
