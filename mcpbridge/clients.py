"""Ready-to-paste configuration of the clients people use. Every snippet carries an agent id of its own."""

import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Snippet:
    """`where` says what to do with `text`; `agent` is the id the client will be known by."""

    id: str
    client: str
    where: str
    text: str
    agent: str


def local_command() -> list[str]:
    """The `devflow` command of this installation, whatever the PATH of the program that starts it."""
    installed = Path(sys.executable).with_name("devflow")
    return [str(installed)] if installed.is_file() else [sys.executable, "-m", "devflow"]


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2)


def _lines(options: Iterable[str]) -> str:
    """Shell options, each on a line of its own."""
    return "".join(f" \\\n  {option}" for option in options)


def snippets(base_url: str, key: str, unique: str, command: Sequence[str] = ("devflow",)) -> list[Snippet]:
    """Snippets for a server at `base_url` (no slash at its end); `unique` keeps the agent ids apart, `command` is how
    the client's machine starts `devflow`."""
    url = f"{base_url}/mcp"

    def made(id: str, client: str, where: str, text: str, agent: str) -> Snippet:
        return Snippet(id, client, where, text, agent)

    def headers(agent: str) -> dict[str, str]:
        return {"X-API-Key": key, "X-Agent-Id": agent}

    def env(agent: str) -> dict[str, str]:
        return {"DEVFLOW_API_URL": base_url, "DEVFLOW_API_KEY": key, "DEVFLOW_AGENT_ID": agent}

    code, code_stdio = f"claude-code-{unique}", f"claude-stdio-{unique}"
    http = _lines(f"--header {shlex.quote(f'{name}: {value}')}" for name, value in headers(code).items())
    stdio = _lines(f"--env {name}={shlex.quote(value)}" for name, value in env(code_stdio).items())
    cursor, code_editor, windsurf = f"cursor-{unique}", f"vscode-{unique}", f"windsurf-{unique}"
    opencode, desktop, curl = f"opencode-{unique}", f"claude-desktop-{unique}", f"curl-{unique}"
    call = json.dumps({"tool": "get_kanban_board", "args": {}})
    return [
        made(
            "claude-code",
            "Claude Code",
            "Run in your project's directory.",
            f"claude mcp add --transport http devflow {url}{http}",
            code,
        ),
        made(
            "claude-code-stdio",
            "Claude Code (stdio)",
            "The same through a local process, where devflow is installed.",
            f"claude mcp add devflow{stdio} \\\n  -- {shlex.join(command)} mcp",
            code_stdio,
        ),
        made(
            "cursor",
            "Cursor",
            "Put into .cursor/mcp.json of the project, or ~/.cursor/mcp.json.",
            _json({"mcpServers": {"devflow": {"url": url, "headers": headers(cursor)}}}),
            cursor,
        ),
        made(
            "vscode",
            "VS Code",
            "Put into .vscode/mcp.json of the project.",
            _json({"servers": {"devflow": {"type": "http", "url": url, "headers": headers(code_editor)}}}),
            code_editor,
        ),
        made(
            "windsurf",
            "Windsurf",
            "Put into ~/.codeium/windsurf/mcp_config.json.",
            _json({"mcpServers": {"devflow": {"serverUrl": url, "headers": headers(windsurf)}}}),
            windsurf,
        ),
        made(
            "opencode",
            "OpenCode",
            "Put into opencode.json of the project.",
            _json(
                {
                    "$schema": "https://opencode.ai/config.json",
                    "mcp": {"devflow": {"type": "remote", "url": url, "enabled": True, "headers": headers(opencode)}},
                }
            ),
            opencode,
        ),
        made(
            "claude-desktop",
            "Claude Desktop",
            "Put into claude_desktop_config.json (Settings, Developer, Edit config) where devflow is installed.",
            _json(
                {"mcpServers": {"devflow": {"command": command[0], "args": [*command[1:], "mcp"], "env": env(desktop)}}}
            ),
            desktop,
        ),
        made(
            "rest",
            "REST",
            "Any program: one POST per call.",
            f"curl {base_url}/mcp/execute \\\n  -H 'X-API-Key: {key}' -H 'X-Agent-Id: {curl}' \\\n"
            f"  -H 'Content-Type: application/json' \\\n  -d '{call}'",
            curl,
        ),
    ]
