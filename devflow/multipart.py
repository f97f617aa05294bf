"""Files people and clients send: each is streamed to disk, and dropped the moment it is larger than it may be.

A dropped file still arrives at the view, as a `TooLargeFile` with its whole size, so that the refusal can name it.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import TemporaryFileUploadHandler

from devflow import config
from devflow.errors import DevFlowError, ErrorCode

if TYPE_CHECKING:
    Dropped = UploadedFile[bytes]
else:
    Dropped = UploadedFile  # not subscriptable at run time

MEGABYTE = 1024 * 1024
FILES_AT_ONCE = 100
"""Files one request may bring."""


def most_bytes() -> int:
    """Bytes one file may have."""
    return config.current().knowledge.upload_max_mb * MEGABYTE


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str]:
    return re.compile(settings.UPLOAD_PATHS)


def takes_files(path: str) -> bool:
    """Whether a path is one of those that files are sent to, and so may have a large body."""
    return _pattern().match(path) is not None


def most_body() -> int:
    """Bytes the body of a request with files may have, whatever their number."""
    return 8 * most_bytes()


def too_large(name: str, size: int) -> DevFlowError:
    limit = config.current().knowledge.upload_max_mb
    return DevFlowError(
        ErrorCode.TOO_LARGE,
        f"{name[:200]} has {size / MEGABYTE:,.1f} MB; a file may have {limit} MB at most.",
        details={"file": f"at most {limit} MB each"},
        suggestion="Split it, or ask an administrator to raise knowledge.upload_max_mb.",
    )


class TooLargeFile(Dropped):
    """A file that was dropped while it came in. Reading it raises `too_large`."""

    def __init__(self, name: str | None, content_type: str | None, size: int) -> None:
        super().__init__(BytesIO(), name, content_type, size)

    def chunks(self, chunk_size: int | None = None) -> Iterator[bytes]:
        raise too_large(self.name or "The file", self.size or 0)


class BoundedUpload(TemporaryFileUploadHandler):
    """Keeps each file in a temporary file, up to the limit."""

    file: Any

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self.limit = most_bytes()

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        if self.file is not None and start + len(raw_data) > self.limit:
            self.upload_interrupted()
            self.file = None
        if self.file is not None:
            self.file.write(raw_data)
        return None

    def file_complete(self, file_size: int) -> "UploadedFile[Any] | None":
        if self.file is None:
            return TooLargeFile(self.file_name, self.content_type, file_size)
        return super().file_complete(file_size)

    def upload_interrupted(self) -> None:
        if getattr(self, "file", None) is not None:
            super().upload_interrupted()
