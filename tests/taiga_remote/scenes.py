"""What the tests of a remote project start from."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from devflow.errors import DevFlowError, ErrorCode

ADMIN, PASSWORD = "admin", "123123"


@contextmanager
def refused(code: ErrorCode, *words: str) -> Iterator[pytest.ExceptionInfo[DevFlowError]]:
    """The block raises a DevFlowError with this code whose message and suggestion hold `words`."""
    with pytest.raises(DevFlowError) as caught:
        yield caught
    assert caught.value.code is code, caught.value.message
    for word in words:
        assert word in f"{caught.value.message} {caught.value.suggestion}", caught.value.message
