"""While a large file is read and its vectors are made, the server goes on answering everybody."""

import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from devflow.config import PROJECT_ROOT
from tests.acceptance.library import eventually, library
from tests.running import running

pytestmark = pytest.mark.slow
logger = logging.getLogger(__name__)

SIZE = 1_000_000
P99_SECONDS = 1.0
SEARCHABLE_SECONDS = 5.0
"""One on a machine of its own."""
WATCHED_SECONDS = 25.0

PINGER = """
import http.client, json, sys, time
host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
connection = http.client.HTTPConnection(host, port, timeout=30)
print("ready", flush=True)
took, until, next_at = [], time.monotonic() + seconds, time.monotonic()
while time.monotonic() < until:
    began = time.monotonic()
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200
    took.append(time.monotonic() - began)
    next_at = max(next_at + 0.02, time.monotonic() - 0.02)
    time.sleep(max(0.0, next_at - time.monotonic()))
print(json.dumps(took))
"""


def large_text() -> str:
    parts, size, number = ["# Handbook\n"], 0, 0
    while size < SIZE:
        facts = " ".join(
            f"Step {step} of chapter {number} turns the valve {number * 7 + step} degrees and waits."
            for step in range(12)
        )
        parts.append(f"## Chapter {number}\n\n{facts}\n\n```python\ndef turn_{number}(valve):\n    return valve\n```\n")
        size += len(parts[-1])
        number += 1
    return "\n".join(parts)


def test_pings_and_searches_are_answered_while_a_megabyte_is_ingested(tmp_path: Path) -> None:
    text = large_text().encode()
    with running(tmp_path / "home") as server, library(server) as reader:
        reader.wait_for_all()
        host, port = server.url.removeprefix("http://").split(":")
        pinging = [sys.executable, "-c", PINGER, host, port, str(WATCHED_SECONDS)]
        with subprocess.Popen(pinging, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True) as pinger:
            assert pinger.stdout is not None
            assert pinger.stdout.readline() == "ready\n"
            began = time.monotonic()
            sent = reader.upload({"handbook.md": text})
            assert sent.status_code == 201, sent.text
            uploaded = time.monotonic() - began
            source = sent.json()["source_id"]
            eventually(
                lambda: reader.info(source)["progress"] is not None or reader.info(source)["status"] == "active",
                "progress is seen",
                seconds=SEARCHABLE_SECONDS,
                pause=0.02,
            )
            seen = time.monotonic() - began
            eventually(
                lambda: any("turn_700" in hit for hit in reader.contents("turn_700", top_k=3)),
                "its words are found",
                seconds=20,
                pause=0.02,
            )
            searchable = time.monotonic() - began
            searches = []
            while pinger.poll() is None:
                asked = time.monotonic()
                assert reader.search(f"authentication patterns {len(searches)}")["results"]
                searches.append(time.monotonic() - asked)
                time.sleep(0.1)
            took = sorted(json.loads(pinger.stdout.read()))
        lag = reader.call("list_knowledge_sources")["index_lag"]
    searches.sort()
    figures = {
        "uploaded after": uploaded,
        "progress after": seen,
        "words found after": searchable,
        "pings": len(took),
        "ping p50": took[len(took) // 2],
        "ping p99": took[int(len(took) * 0.99)],
        "ping worst": took[-1],
        "searches": len(searches),
        "search p50": searches[len(searches) // 2],
        "search p95": searches[int(len(searches) * 0.95)],
        "still waiting": lag["pending_chunks"],
    }
    logger.info("%s", {name: round(value, 3) for name, value in figures.items()})
    assert figures["ping p99"] < P99_SECONDS, figures
    assert figures["progress after"] < SEARCHABLE_SECONDS, figures
    assert figures["words found after"] < 2 * SEARCHABLE_SECONDS, figures
    assert figures["search p95"] < 2 * P99_SECONDS, figures
