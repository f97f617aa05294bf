"""A few sentences by a model, where one is configured: an OpenAI-compatible endpoint, asked once, bounded in time."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from devflow import config, outside

if TYPE_CHECKING:
    import ssl

MOST_BYTES = 256 * 1024
MOST_ASKED = 20_000
MOST_SAID = 4000


class ProseError(Exception):
    """The model did not answer, or nothing usable; the message says why."""


def is_configured() -> bool:
    conf = config.current().llm
    return bool(conf.base_url and conf.model)


@lru_cache(maxsize=1)
def _tls() -> "ssl.SSLContext":
    return httpx.create_ssl_context()


def ask(instruction: str, material: str) -> str:
    """What the model writes; `material` is data, given apart from the instruction. Blocks. Raises `ProseError`."""
    conf = config.current().llm
    root = conf.base_url.rstrip("/")
    if not re.search(r"/v\d\w*(/|$)", urlsplit(root).path):
        root += "/v1"
    key = conf.api_key.get_secret_value()
    body: dict[str, Any] = {
        "model": conf.model,
        "messages": [
            {"role": "system", "content": instruction},
            {"role": "user", "content": material[:MOST_ASKED]},
        ],
    }
    try:
        with httpx.Client(trust_env=False, verify=_tls()) as client:
            answer = outside.post(
                client,
                f"{root}/chat/completions",
                body=body,
                seconds=conf.timeout_seconds,
                most_bytes=MOST_BYTES,
                headers={"Authorization": f"Bearer {key}"} if key else None,
            )
        if answer.status_code != httpx.codes.OK:
            raise ProseError(f"The model answered HTTP {answer.status_code}.")
        said: Any = answer.json()["choices"][0]["message"]["content"]
    except httpx.TimeoutException:
        raise ProseError(f"The model did not answer within {conf.timeout_seconds:g} s.") from None
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise ProseError(f"The model cannot be reached ({type(exc).__name__}).") from None
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise ProseError("The model answered something that is no chat completion.") from None
    text = said.replace("\x00", "").strip() if isinstance(said, str) else ""
    if not text:
        raise ProseError("The model answered nothing.")
    return text[:MOST_SAID]
