"""Phases' YAML files as people send them: one by one, or in a zip as the export makes it."""

import io
import zipfile
import zlib
from collections.abc import Iterable

from devflow.errors import invalid

MOST_BYTES = 1_000_000
MOST_UNPACKED = 2_000_000
MOST_FILES = 200


def texts(files: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """The YAML texts in `files` (name and content), by name. Raises `invalid_input` naming what cannot be read."""
    found: dict[str, str] = {}
    for name, content in files:
        if len(content) > MOST_BYTES:
            raise invalid(f"{name} is larger than 1 MB.", file=name)
        try:
            found |= _unpacked(name, content) if name.lower().endswith(".zip") else {name: content.decode("utf-8-sig")}
        except (zipfile.BadZipFile, zlib.error, UnicodeDecodeError, RuntimeError):  # RuntimeError: it is encrypted
            raise invalid(f"{name} is neither YAML text nor a zip archive of it.", file=name) from None
    if not found:
        raise invalid("Choose a file first: NN_name.yaml, or a .zip of them.", file="is missing")
    return found


def _unpacked(name: str, content: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [item for item in archive.infolist() if not item.is_dir()]
        if sum(item.file_size for item in members) > MOST_UNPACKED or len(members) > MOST_FILES:
            raise invalid(f"{name} holds more than phases.", file=name)
        return {item.filename: archive.read(item).decode("utf-8-sig") for item in members}
