"""Sets of dozens of names, written as the words of a text."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())
