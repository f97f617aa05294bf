"""Search under load at 10,000 and 100,000 chunks, ingestion, embedding, and what the model costs in memory."""

import asyncio
import json
import statistics
import time
from pathlib import Path

import httpx

from bench.load import MODERN, Client, Figures, figures, mcp_request
from bench.processes import django_at, resident_mib, seeded_by
from tests.running import RunningServer, running

CALLERS = 4
SECONDS = 6.0
SIZES = (10_000, 100_000)
QUESTIONS = (
    "how does the lease of a claimed task end",
    "which header carries the session token",
    "restore a backup into an empty directory",
    "what happens when the queue worker times out",
    "merge conflict after a rebase",
    "where is the cursor of the event stream kept",
)


def search(home: Path) -> str:
    lines = [
        f"{CALLERS} callers of `search_knowledge` (hybrid, top 10) through Streamable HTTP (2026-07-28) with key,",
        "audit and metrics on; every question is new, so none comes from the cache. Chunks are synthetic texts of 60",
        "words with clustered vectors; the question is really embedded. SQLite and embedded vectors, one process.",
        "Milliseconds.",
        "",
        "| chunks | searches/s | p50 | p95 | worst | one caller p50 |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for size in SIZES:
        with running(home / str(size), arguments=("--no-demo",)) as server:
            key = seeded_by("bench.library", server.home, "library", size)
            _wait_for_vectors(server, size)
            many = asyncio.run(_searches(server, key, CALLERS))
            one = asyncio.run(_searches(server, key, 1))
            lines.append(f"| {size:,} | {many.per_second:.0f} | {many.p50} | {many.p95} | {many.worst} | {one.p50} |")
    alone = _question_ms(home / "alone")
    lines += ["", f"The embedding of such a question alone takes {alone:.1f} ms (median, one thread asking)."]
    return "\n".join(lines)


def _wait_for_vectors(server: RunningServer, size: int) -> None:
    """Until every chunk has its point and the index has built its graph where it should have one."""
    key = (server.home / "local_key").read_text().strip()  # a project's key is not shown the details
    until = time.monotonic() + 900
    while time.monotonic() < until:
        health = httpx.get(f"{server.url}/mcp/health", headers={"X-API-Key": key}, timeout=30).json()
        details = health.get("details", {})
        if "wait" not in details.get("knowledge_hub", "") and "to be built" not in details.get("qdrant", ""):
            break
        time.sleep(1)
    else:
        raise RuntimeError(f"{size} chunks were not indexed in time")


async def _searches(server: RunningServer, key: str, callers: int) -> Figures:
    port = int(server.url.rpartition(":")[2])
    times: list[float] = []
    end = time.perf_counter() + SECONDS

    async def ask(number: int) -> None:
        client = await Client(port).open()
        headers = {"X-API-Key": key, "X-Agent-Id": f"agent-{number}"}
        asked = 0
        while (start := time.perf_counter()) < end:
            asked += 1
            query = f"{QUESTIONS[asked % len(QUESTIONS)]} in chapter {callers}{number}{asked}"
            status, body = await client.send(
                mcp_request("/mcp", port, MODERN, "search_knowledge", {"query": query}, headers)
            )
            times.append(time.perf_counter() - start)
            content = json.loads(body)["result"]["structuredContent"] if status == 200 else {}
            if len(content.get("results", ())) != 10 or content["degraded"]:
                raise RuntimeError(f"unexpected answer {status}: {body[:300]!r}")
        client.close()

    began = time.perf_counter()
    await asyncio.gather(*(ask(number) for number in range(callers)))
    return figures(times, time.perf_counter() - began)


def _question_ms(home: Path) -> float:
    django_at(home)
    from devflow.vectors import embedders

    embedder = embedders.current()
    embedder.embed_query("warm up")
    times = []
    for number in range(60):
        start = time.perf_counter()
        embedder.embed_query(f"{QUESTIONS[number % len(QUESTIONS)]} in chapter {number}")
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


# --- ingestion ------------------------------------------------------------------------------------------------------


def ingestion(home: Path) -> str:
    with running(home / "server", arguments=("--no-demo",)) as server:
        key = seeded_by("bench.seed", server.home, "shop", 0)
        before = resident_mib(server.pid)
        upload = _upload(server, key)
        model = _model_memory(server, key)
    throughput = _throughput(home / "throughput")
    return "\n".join(
        [
            "A 1 MB Markdown file of 400 sections is uploaded over REST and polled every 20 ms.",
            "",
            "| what | figure |",
            "|---|---:|",
            f"| upload answered | {upload['answered']:.2f} s |",
            f"| progress visible | {upload['progress']:.2f} s |",
            f"| every section found by keywords | {upload['keywords']:.2f} s |",
            f"| all vectors made ({upload['chunks']:.0f} chunks) | {upload['vectors']:.0f} s |",
            "| embedding, texts a second: ours / onnxruntime called directly with the same batches | "
            f"{throughput[0]:.1f} / {throughput[1]:.1f} = {throughput[0] / throughput[1]:.2f} |",
            f"| server at rest, without the model | {before:.0f} MiB |",
            f"| with the model loaded, after ingestion and 100 searches | {model[0]:.0f} MiB |",
            f"| after 10,000 searches more | {model[1]:.0f} MiB |",
        ]
    )


def _section(number: int) -> str:
    body = " ".join(f"Sentence {part} of section {number} says what is measured here and why." for part in range(36))
    return f"## Section {number}\n\nThe word marker{number} stands only here. {body}\n"


def _upload(server: RunningServer, key: str) -> dict[str, float]:
    text = "# Manual\n\n" + "\n".join(_section(number) for number in range(400))
    headers = {"X-API-Key": key}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        start = time.perf_counter()
        made = client.post(
            "/api/v1/sources/upload/", data={"title": "Manual"}, files={"files": ("manual.md", text.encode())}
        )
        made.raise_for_status()
        source = made.json()["source_id"]
        marks = {"answered": time.perf_counter() - start}
        while "vectors" not in marks:
            now = time.perf_counter() - start
            info = _call(client, "get_source_info", {"source_id": source})
            if "progress" not in marks and (info["progress"] is not None or info["status"] == "active"):
                marks["progress"] = now
            if "keywords" not in marks and info["status"] == "active":
                found = _call(client, "search_knowledge", {"query": "marker399", "top_k": 1})
                if found["results"] and "marker399" in found["results"][0]["content"]:
                    marks["keywords"] = time.perf_counter() - start
            if info["status"] == "active" and not info["pending_chunks"]:
                marks["vectors"], marks["chunks"] = now, info["chunk_count"]
            if now > 600:
                raise RuntimeError(f"the upload was not indexed in time: {info}")
            time.sleep(0.02)
    return marks


def _call(client: httpx.Client, tool: str, arguments: dict[str, object]) -> dict[str, object]:
    answer = client.post("/mcp/execute", json={"tool": tool, "args": arguments, "request_id": "bench"})
    answer.raise_for_status()
    result: dict[str, object] = answer.json()["result"]
    return result


def _model_memory(server: RunningServer, key: str) -> tuple[float, float]:
    asyncio.run(_some(server, key, 100))
    loaded = resident_mib(server.pid)
    asyncio.run(_some(server, key, 10_000))
    return loaded, resident_mib(server.pid)


async def _some(server: RunningServer, key: str, count: int) -> None:
    port = int(server.url.rpartition(":")[2])
    clients = [await Client(port).open() for _ in range(CALLERS)]

    async def ask(client: Client, number: int) -> None:
        for asked in range(count // CALLERS):
            query = {"query": f"sentence {asked} of section {number}", "top_k": 3}
            headers = {"X-API-Key": key, "X-Agent-Id": f"reader-{number}"}
            status, body = await client.send(mcp_request("/mcp", port, MODERN, "search_knowledge", query, headers))
            if status != 200:
                raise RuntimeError(f"unexpected answer {status}: {body[:300]!r}")

    await asyncio.gather(*(ask(client, number) for number, client in enumerate(clients)))
    for client in clients:
        client.close()


def _throughput(home: Path) -> tuple[float, float]:
    """Texts a second through the embedder, and through onnxruntime fed the batches the embedder makes."""
    django_at(home)
    from bench.onnx import batches, raw
    from devflow.vectors import embedders

    embedder = embedders.current()
    texts = [_section(number)[: 200 + 13 * (number % 60)] for number in range(192)]
    embedder.embed(texts[:16])
    made = batches(texts)
    raw(made[:2])
    ours, theirs = [], []
    for _ in range(3):
        start = time.perf_counter()
        embedder.embed(texts)
        ours.append(len(texts) / (time.perf_counter() - start))
        start = time.perf_counter()
        raw(made)
        theirs.append(len(texts) / (time.perf_counter() - start))
    return statistics.median(ours), statistics.median(theirs)
