"""Telling reStructuredText by its looks, without importing docutils."""

import re

_RST = re.compile(r"^ {0,40}\.\. (?:[\w:-]{1,60}::|_[^:\n]{1,200}:)|:[a-z][\w:+-]{1,30}:`[^`\n]{1,300}`", re.MULTILINE)

_OVERLINED = re.compile(r"^([=\-~#*^\"+])\1{3,199}\n[ \t]{0,9}\S.{0,200}\n\1{4,200}$", re.MULTILINE)


def looks_rst(text: str) -> bool:
    """Tell whether text has directives, targets, roles, or titles between two lines."""
    return _RST.search(text) is not None or _OVERLINED.search(text) is not None
