"""`devflow agentify`."""

from collections.abc import Callable


def run(prepare: Callable[[], str]) -> int:
    """Serve until the client sends `exit`. `prepare` sets Django up and gives the key of this user's own processes."""
    key = prepare()

    # Only importable once Django is set up.
    from mcpbridge.agentify import stdio

    return stdio.serve(key)
