"""The jobs of the knowledge room: sources that wait are read, and those that live elsewhere are looked at again."""

from datetime import timedelta
from functools import lru_cache
from threading import Lock

from django.utils import timezone

from devflow import config, jobs
from devflow.actors import SYSTEM
from devflow.jobs import periodic, standing
from knowledge.models import Source
from knowledge.services import ingestion, sources

CHANGING = (Source.Type.DIRECTORY, Source.Type.GIT, Source.Type.WEB)


@lru_cache(maxsize=1)
def _take_over() -> None:
    """Once in a process: the only one that reads may go on at once with what a killed one left."""
    if jobs.is_embedded():
        ingestion.forget_beats()


_starting = Lock()


@standing(seconds=3, threads=3)
def ingest() -> None:
    """Read sources until none waits."""
    with _starting:
        _take_over()
    while not ingest.is_stopping and (source := ingestion.claim()):
        ingestion.read(source, stop=lambda: ingest.is_stopping)


@periodic(hours=1)
def look_again() -> None:
    """Have directories, checkouts and sites read again whose last reading is long ago."""
    hours = config.current().knowledge.recheck_hours
    if not hours:
        return
    due = Source.objects.filter(
        type__in=CHANGING,
        status=Source.Status.ACTIVE,
        run_wanted=False,
        checked_at__lt=timezone.now() - timedelta(hours=hours),
    )
    for source in due:
        sources.request_run(source=source, actor=SYSTEM)
