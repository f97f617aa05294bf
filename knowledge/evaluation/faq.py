"""The shipped set: the questions that are headings in the FAQ of the Python documentation, as Debian packages it.

A question is to find the passages of its own section. The passages do not hold the question: it was cut off them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from knowledge.indexing.chunking import Piece, chunk
from knowledge.indexing.parsed import Parsed, parse

PLACES = tuple(Path(f"/usr/share/doc/python3.{minor}/html/_sources/faq") for minor in (11, 12, 13, 14))


@dataclass(frozen=True, slots=True)
class Question:
    """`relevant` are places in the passages of the set."""

    text: str
    relevant: frozenset[int]


@dataclass(frozen=True, slots=True)
class QuestionSet:
    passages: tuple[Piece, ...]
    questions: tuple[Question, ...]

    def halves(self) -> tuple["QuestionSet", "QuestionSet"]:
        """Every second question for choosing weights, the others for reporting; the passages stay whole."""
        return (
            replace(self, questions=self.questions[::2]),
            replace(self, questions=self.questions[1::2]),
        )


def folder() -> Path | None:
    """Where the FAQ is installed, or None: `apt-get install python3.11-doc` brings it."""
    return next((place for place in PLACES if place.is_dir()), None)


def load(place: Path, count_tokens: Callable[[str], int]) -> QuestionSet:
    """Build the set from the FAQ's sources."""
    passages: list[Piece] = []
    questions: list[Question] = []
    for path in sorted(place.glob("*.rst.txt")):
        parsed = parse(path.read_bytes(), name=path.name.removesuffix(".txt"))
        for heading, body in _sections(parsed.text):
            pieces = chunk(Parsed(title=path.stem, text=body), count_tokens=count_tokens)
            numbers = range(len(passages), len(passages) + len(pieces))
            passages += [replace(piece, heading=()) for piece in pieces]
            if heading.endswith("?") and pieces:
                questions.append(Question(heading, frozenset(numbers)))
    return QuestionSet(tuple(passages), tuple(questions))


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Heading and the lines below it, up to the next heading of any level."""
    heading, is_fenced = "", False
    lines: list[str] = []
    for line in text.split("\n"):
        is_fenced ^= line.startswith("```")
        if line.startswith("#") and not is_fenced:
            if any(lines):
                yield heading, "\n".join(lines)
            heading, lines = line.lstrip("#").strip(), []
        else:
            lines.append(line)
    if any(lines):
        yield heading, "\n".join(lines)
