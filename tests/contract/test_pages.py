"""The pages that are made from the code are made from this code."""

from devflow.config import PROJECT_ROOT
from devflow.errors import ErrorCode
from mcpbridge import reference


def test_the_tools_page_is_current() -> None:
    assert (PROJECT_ROOT / "docs" / "tools.md").read_text() == reference.page(), "run `make docs`"


def test_every_error_code_is_documented() -> None:
    text = (PROJECT_ROOT / "docs" / "transports.md").read_text()
    assert [code for code in ErrorCode if f"| {code} |" not in text] == []
