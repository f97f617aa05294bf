"""Write docs/configuration.md from the typed configuration: `python -m devflow.reference > docs/configuration.md`."""

import sys
from collections.abc import Iterator
from itertools import groupby

from pydantic import SecretStr

from devflow.config import Key, keys

_INTRO = """\
# Configuration

<!-- Written by `make docs` from devflow/config.py; edit that instead. -->

Every key can be set in a file and in the environment; the environment wins. The file is the one `DEVFLOW_CONFIG` names,
else `devflow.yaml`, `devflow.yml` or `devflow.toml` in the data directory. A `.env` file beside `manage.py` is read,
below the real environment. A key that is not known, or a value of the wrong type, stops the start with its name.

- `DEVFLOW_HOME` is the data directory (default `.devflow` beside `manage.py`); it is set in the environment only.
- A secret, and any `..._URL`, can come from a file: set the variable with `_FILE` appended to the file's path.
- In the environment a list is one comma-separated value; in a file it may be a list.

```yaml
mcp_gateway:
  host: 127.0.0.1
  port: 8051
  rate_limit:
    requests_per_minute: 100
workers: 1
allowed_hosts: [devflow.example.org]
```
"""

_TITLES = {"": "Top level"}


def render() -> str:
    """The whole page."""
    ordered = sorted(keys(), key=lambda key: key.path[:-1])
    blocks = groupby(ordered, key=lambda key: ".".join(key.path[:-1]))
    return _INTRO + "".join("".join(_block(name, list(block))) for name, block in blocks)


def _block(name: str, block: list[Key]) -> Iterator[str]:
    yield f"\n## {_TITLES.get(name) or f'`{name}`'}\n\n"
    yield "| key | environment | type | default | meaning |\n| --- | --- | --- | --- | --- |\n"
    for key in block:
        file = f", or `{key.env}_FILE`" if key.is_secret or key.env.endswith("_URL") else ""
        cells = (f"`{key.path[-1]}`", f"`{key.env}`{file}", _type(key), _default(key), key.field.description or "")
        yield f"| {' | '.join(cells)} |\n"


def _type(key: Key) -> str:
    bounds = [
        f"{sign} {value:,}"
        for limit in key.field.metadata
        for sign, name in (("≥", "ge"), (">", "gt"), ("≤", "le"))
        if (value := getattr(limit, name, None)) is not None
    ]
    return key.type_name + (f" ({', '.join(bounds)})" if bounds else "")


def _default(key: Key) -> str:
    default = key.field.default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "" if default in ("", None, []) else f"`{default}`"


if __name__ == "__main__":
    sys.stdout.write(render())
