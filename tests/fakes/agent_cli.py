"""An agent's command line, as far as a gateway sees it: `agent_cli.py MODE CONFIG PROMPT`.

It reads the MCP config it was given, starts the one server in it, calls the tool the prompt names and prints the
answer in the manner of MODE.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODE, CONFIG, PROMPT = sys.argv[1:4]


def call(entry: dict[str, Any], tool: str, arguments: dict[str, Any]) -> Any:
    requests = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}},
        {"id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
    ]
    server = subprocess.Popen(
        [entry["command"], *entry["args"]],
        env={**os.environ, **entry["env"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin and server.stdout
    answer = None
    for request in requests:
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **request}) + "\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
    server.stdin.close()
    server.wait()
    assert answer is not None
    return answer["result"]["content"][0]["text"]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main() -> None:
    path = Path(CONFIG)
    assert path.stat().st_mode & 0o077 == 0, "others can read the config"
    (entry,) = json.loads(path.read_text())["mcpServers"].values()
    if MODE == "where":
        found: Any = {"config": CONFIG, "cwd": str(Path.cwd()), "prompt": PROMPT}
    else:
        tool = re.search(r'tool "(\w+)" exactly once', PROMPT)
        assert tool, PROMPT
        arguments = json.loads(PROMPT.partition("say):\n")[2].partition("\nThen print")[0])
        found = call(entry, tool[1], arguments)
    answer = json.dumps({"result": found})
    if MODE in ("plain", "where"):
        say(answer)
    elif MODE == "fenced":
        say(f"Here you are:\n\n```json\n{answer}\n```\nAnything else?")
    elif MODE == "prose":
        say(f"I called the tool [once], and it said {answer}. Shall I go on?")
    elif MODE == "wrapped":
        say(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": f"Done: {answer}"}))
    elif MODE == "lines":
        say(json.dumps({"type": "system", "tools": []}))
        say(json.dumps({"type": "result", "is_error": False, "result": f"```\n{answer}\n```"}))
    elif MODE == "list":
        say(json.dumps([{"type": "assistant"}, {"type": "result", "result": answer}]))
    elif MODE == "failed":
        say(json.dumps({"type": "result", "is_error": True, "result": "You are out of credit."}))
    elif MODE == "error":
        say(json.dumps({"error": "there is no such symbol"}))
    elif MODE == "chat":
        say("I would rather talk about the weather.")
    elif MODE == "secret":
        sys.stderr.write(f"bad token {os.environ['TOKEN']}\n")
        sys.exit(2)
    elif MODE == "endless":
        while True:
            sys.stdout.write("and so on " * 10_000)
    elif MODE == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)


if __name__ == "__main__":
    main()
