"""Rows for a benchmark, made inside the server's data directory: a project, its tasks, and an unlimited key for it.

    DEVFLOW_HOME=... python -m bench.seed SLUG READY_TASKS [CHAINED_TASKS]

Prints the API key. Chained tasks wait for the one before them, in chains of ten.
"""

import os
import sys

import django


def main(slug: str, ready: int, chained: int = 0) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings")
    django.setup()
    from django.db import transaction

    from devflow.actors import SYSTEM
    from mcpbridge.models import ApiKey
    from workflow.services import projects, tasks

    with transaction.atomic():
        project = projects.create(slug=slug)
    made = 0
    while made < ready:
        with transaction.atomic():
            for _ in range(min(100, ready - made)):
                made += 1
                tasks.create(project_id=project.pk, phase_number=1, description=f"Task {made}", actor=SYSTEM)
    for start in range(0, chained, 10):
        with transaction.atomic():
            before: list[str] = []
            for number in range(start, min(start + 10, chained)):
                task = tasks.create(
                    project_id=project.pk,
                    phase_number=1,
                    description=f"Chained task {number}",
                    blocked_by=before,
                    actor=SYSTEM,
                )
                before = [task.public_id]
    _, raw = ApiKey.objects.issue(
        name=slug, scopes=["read", "write", "execute"], project_id=project.pk, rate_per_minute=0
    )
    print(raw)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
