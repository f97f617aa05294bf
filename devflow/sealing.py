"""Secrets that a row keeps and the server must read again: encrypted with keys made from the server's secret key.

`SECRET_KEY_FALLBACKS` are tried for reading, so that a secret key can be changed. `purpose` keeps the kinds apart: what
was sealed for one cannot be read as another.
"""

import base64
import hashlib
from typing import TYPE_CHECKING

from django.conf import settings
from django.utils.encoding import force_bytes

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


class SealError(Exception):
    """What was sealed cannot be read with this server's secret key."""


def seal(text: str, *, purpose: str) -> str:
    return _keys(purpose).encrypt(text.encode()).decode()


def unseal(sealed: str, *, purpose: str) -> str:
    """Raises `SealError`."""
    from cryptography.fernet import InvalidToken

    try:
        return _keys(purpose).decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise SealError("It was stored with another secret key of this server.") from None


def _keys(purpose: str) -> "MultiFernet":
    from cryptography.fernet import Fernet, MultiFernet

    start = f"devflow.sealing:{purpose}:".encode()
    secrets = [force_bytes(secret) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    digests = [hashlib.sha256(start + secret).digest() for secret in secrets]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(digest)) for digest in digests])
