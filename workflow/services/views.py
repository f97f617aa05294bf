"""Filters of a board that a person keeps under a name."""

from devflow.errors import conflict
from workflow.models import SavedView

MOST = 30


def save(*, project_id: int, user_id: int, name: str, query: str) -> SavedView:
    """Keep `query` (as `TaskFilter.query` writes it) under a name; the same name is written over.

    Raises `conflict` where the person keeps too many already.
    """
    kept = SavedView.objects.filter(project_id=project_id, user_id=user_id)
    if kept.exclude(name=name).count() >= MOST:
        raise conflict(f"You keep {MOST} views of this board already.", suggestion="Forget one of them first.")
    view, _ = SavedView.objects.update_or_create(
        project_id=project_id, user_id=user_id, name=name, defaults={"query": query}
    )
    return view


def forget(*, project_id: int, user_id: int, name: str) -> None:
    """Drop a view; one that is not there is no fault."""
    SavedView.objects.filter(project_id=project_id, user_id=user_id, name=name).delete()
