"""Rows for the search benchmark: many chunks with distinct texts and vectors of their own, without embedding each.

    DEVFLOW_HOME=... python -m bench.library SLUG CHUNKS

Prints an unlimited API key for the project. The vectors go where an embedder's would be found, so the index takes
them up by its own way.
"""

import os
import sys
import uuid
from collections.abc import Iterator

import django

_TEXT = """request session cookie token handler queue worker retry timeout cache index vector query filter cursor
page schema migration column table transaction lock lease claim agent task phase board project member
role scope header body stream socket event listener channel message topic partition offset replica leader
follower election quorum log snapshot backup restore archive upload download parser lexer grammar syntax
tree node edge graph path route view template fragment element style token color layout grid column align
font script module import export package version release branch commit merge rebase conflict review
comment label milestone sprint story epic issue ticket"""
_WORDS = _TEXT.split()


def _texts(count: int) -> Iterator[str]:
    import random

    draw = random.Random(11)
    for number in range(count):
        words = draw.choices(_WORDS, k=60)
        yield (
            f"Part {number} explains how the {words[0]} of {words[1]} works. " + " ".join(words[2:]) + f" ref{number}."
        )


def main(slug: str, count: int) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings")
    django.setup()
    import hashlib

    import numpy as np
    from django.db import transaction

    from devflow.vectors import cache, embedders, index
    from devflow.vectors.models import CachedEmbedding
    from knowledge.models import Chunk, Document, Source
    from mcpbridge.models import ApiKey
    from workflow.services import projects

    project = projects.create(slug=slug)
    embedder = embedders.current()
    source = Source.objects.create(
        project=project, title="Library", type="manual", status="active", run_wanted=False, chunk_count=count
    )
    document = Document.objects.create(source=source, project=project, path="library.md", status="indexed", title="L")
    draw = np.random.default_rng(5)
    centres = draw.normal(size=(200, embedder.dimensions))
    texts = list(_texts(count))
    for start in range(0, count, 1000):
        part = texts[start : start + 1000]
        vectors = centres[draw.integers(0, 200, len(part))] + draw.normal(size=(len(part), embedder.dimensions))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        with transaction.atomic():
            rows = [
                Chunk(
                    project=project,
                    source=source,
                    document=document,
                    point=uuid.uuid5(uuid.NAMESPACE_URL, f"{slug}/{start + place}"),
                    ordinal=start + place,
                    heading=f"Chapter {(start + place) // 100}",
                    text=text,
                    start_line=start + place + 1,
                    end_line=start + place + 1,
                    tokens=90,
                    hash=hashlib.sha256(text.encode()).hexdigest(),
                    symbols=[f"ref{start + place}"],
                )
                for place, text in enumerate(part)
            ]
            Chunk.objects.bulk_create(rows)
            CachedEmbedding.objects.bulk_create(
                CachedEmbedding(
                    key=cache.key_of(embedder.name, row.embed_text), vector=vector.astype(np.float16).tobytes()
                )
                for row, vector in zip(rows, vectors, strict=True)
            )
            index.touch("knowledge", [row.point for row in rows])
    _, raw = ApiKey.objects.issue(
        name=slug, scopes=["read", "write", "execute"], project_id=project.pk, rate_per_minute=0
    )
    print(raw)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
