"""Numbers as people and clients write them."""

ID_DIGITS = 15
"""Of a row's id in an address: what every database holds."""


def whole(text: str, digits: int = ID_DIGITS) -> int | None:
    """The number that a text of at most so many ASCII digits says; None where it is anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None
