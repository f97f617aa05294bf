"""A full board and somebody who looks at it, made inside the server's data directory.

    DEVFLOW_HOME=... python -m bench.people SLUG TASKS

Prints the session key of an administrator. A third of the tasks is done; the rest is spread over the columns.
"""

import os
import sys

import django

AGENTS = ("ada", "ben", "vera")


def main(slug: str, count: int) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings")
    django.setup()
    from importlib import import_module

    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
    from django.utils import timezone

    from workflow.models import Agent, Dependency, Phase, Priority, Project, Status, Task
    from workflow.services import projects

    project = projects.create(slug=slug)
    phases = list(Phase.objects.filter(project=project))
    agents = [
        Agent.objects.create(project=project, name=name, session="", client="bench", transport="http")
        for name in AGENTS
    ]
    now = timezone.now()
    statuses = (Status.PENDING, Status.READY, Status.READY, Status.IN_PROGRESS, Status.REVIEW, Status.DONE)
    rows = []
    for number in range(1, count + 1):
        status = Status.DONE if number % 3 == 0 else statuses[number % len(statuses)]
        rows.append(
            Task(
                project=project,
                phase=phases[number % len(phases)],
                ref=number,
                subject=f"Describe what part {number} of the order list does when it is asked twice",
                description="x" * 400,
                status=status,
                priority=Priority.MEDIUM if number % 7 else Priority.HIGH,
                tags=["orders", "api"][: number % 3],
                position=number * 1024,
                created_by="bench",
                assigned_agent=agents[number % 3] if status not in (Status.PENDING, Status.READY) else None,
                ready_since=now,
                completed_at=now if status == Status.DONE else None,
            )
        )
    made = Task.objects.bulk_create(rows, batch_size=500)
    waiting = [task for task in made if task.status == Status.PENDING]
    Dependency.objects.bulk_create(
        [Dependency(task=task, blocker=made[0]) for task in waiting if task != made[0]], batch_size=500
    )
    Project.objects.filter(pk=project.pk).update(next_ref=count + 1)
    user = get_user_model()._default_manager.create_superuser("bench")
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store.create()
    print(store.session_key)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
