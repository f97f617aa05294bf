"""How often a memory was given to an agent. Counted in this process and written a little later, so that no reader
waits for a writer; a process that is killed forgets the counts of its last seconds."""

import logging
import threading
from collections import Counter
from collections.abc import Iterable

from django.db import connections, transaction
from django.db.models import F
from django.utils import timezone

from memory.models import Memory

logger = logging.getLogger(__name__)

WRITE_AFTER_SECONDS = 5.0


class Uses:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()
        self._timer: threading.Timer | None = None

    def note(self, memory_ids: Iterable[int]) -> None:
        """Count one use of each; costs no database work."""
        with self._lock:
            self._counts.update(memory_ids)
            if self._counts and self._timer is None:
                self._timer = threading.Timer(WRITE_AFTER_SECONDS, self._write_later)
                self._timer.daemon = True
                self._timer.start()

    def forget(self) -> Counter[int]:
        """Give what was counted and start again."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        return counts

    def write(self) -> int:
        """Write what was counted (blocks). Returns the number of rows changed."""
        counts = self.forget()
        by_count: dict[int, list[int]] = {}
        for pk, times in counts.items():
            by_count.setdefault(times, []).append(pk)
        now = timezone.now()
        with transaction.atomic():
            return sum(
                Memory.objects.filter(pk__in=pks).update(uses=F("uses") + times, last_used_at=now)
                for times, pks in by_count.items()
            )

    def _write_later(self) -> None:
        try:
            self.write()
        except Exception:  # a count is not worth more than a line in the log
            logger.exception("uses of memories were not counted")
        finally:
            connections.close_all()


uses = Uses()
