"""What the demo project's team has learned so far."""

from devflow.actors import SYSTEM
from memory.models import Memory
from memory.services import memories

SEEDS = (
    (
        "decision",
        "The mobile app gets JWT access tokens of ten minutes and refresh tokens that work once; the web shop keeps "
        "its server-side session. Both were compared in the analysis phase: cookies do not survive the app's embedded "
        "browser.",
        ("auth", "mobile"),
    ),
    (
        "pattern",
        "Caching product pages by path and currency for sixty seconds cut database queries by 60 %. Anything that "
        "depends on who is signed in stays out of it.",
        ("performance", "caching"),
    ),
    (
        "problem",
        "Payment webhooks arrive twice and out of order. Comparing the object's version before writing fixed the "
        "doubled order mails.",
        ("payments", "webhooks"),
    ),
    (
        "convention",
        "Errors of the API are problem+json with a field's fault under `errors`; tests assert the field, not the "
        "words.",
        ("api", "testing"),
    ),
)


def seed(*, project_id: int) -> None:
    """Add the demo's memories to a project that has none."""
    if Memory.objects.filter(project_id=project_id).exists():
        return
    for category, content, tags in SEEDS:
        memories.save(project_id=project_id, content=content, category=category, actor=SYSTEM, tags=tags)
