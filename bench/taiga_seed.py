"""A project of epics, stories, tasks and issues for a benchmark, and an unlimited key for it.

    DEVFLOW_HOME=... python -m bench.taiga_seed SLUG OBJECTS

One object in thirty is an epic, a third are stories, a half tasks, the rest issues. Prints the API key.
"""

import os
import sys

import django


def main(slug: str, objects: int) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings")
    django.setup()
    from django.db import transaction

    from devflow.actors import SYSTEM
    from mcpbridge.models import ApiKey
    from workflow.models import Kind
    from workflow.services import projects
    from workflow.services.agile import items, work

    with transaction.atomic():
        project = projects.create(slug=slug)
        epics = [
            items.create(Kind.EPIC, project=project, actor=SYSTEM, fields={"subject": f"Epic {number}"}).pk
            for number in range(objects // 30)
        ]
    text = "As a customer I want this to be quick, so that I can go on with my day.\n" * 10
    stories: list[int] = []
    for number in range(objects // 3):
        fields = {"subject": f"Story {number}", "description": text, "epic_id": epics[number % len(epics)]}
        stories.append(items.create(Kind.USER_STORY, project=project, actor=SYSTEM, fields=fields).pk)
    for number in range(objects // 2):
        fields = {"subject": f"Task {number}", "description": text, "tags": ["bench", f"t{number % 10}"]}
        work.create(project=project, story_id=stories[number % len(stories)], actor=SYSTEM, fields=fields)
    for number in range(objects - len(epics) - len(stories) - objects // 2):
        items.create(Kind.ISSUE, project=project, actor=SYSTEM, fields={"subject": f"Issue {number}"})
    _, raw = ApiKey.objects.issue(name=slug, scopes=["read", "write"], project_id=project.pk, rate_per_minute=0)
    print(raw)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
