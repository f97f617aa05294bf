"""The demo project's knowledge: three short notes of the web shop's team, pasted in like anybody's."""

from importlib import resources

from devflow.actors import SYSTEM
from knowledge.models import Source
from knowledge.services import sources

SEEDS = (
    (
        "signing-in.md",
        "Signing in",
        "How the shop authenticates people and the app.",
        ("authentication", "security"),
        8,
    ),
    ("orders-api.md", "Orders API", "Conventions of the orders API.", ("api", "orders"), 6),
    ("payments.md", "Payment provider", "Limits, webhooks and refunds.", ("payments",), 5),
)


def seed(*, project_id: int) -> None:
    """Add the demo's sources to a project that has none."""
    if Source.objects.filter(project_id=project_id).exists():
        return
    for file, title, description, tags, priority in SEEDS:
        sources.create(
            project_id=project_id,
            actor=SYSTEM,
            title=title,
            type=Source.Type.UPLOAD,
            path=file,
            content=resources.files("knowledge.demo").joinpath(file).read_text(encoding="utf-8"),
            description=description,
            tags=tags,
            priority=priority,
        )


def clear(*, project_id: int) -> None:
    """Delete the project's sources with their files and vectors."""
    for source in Source.objects.filter(project_id=project_id):
        sources.delete(source=source, actor=SYSTEM)
