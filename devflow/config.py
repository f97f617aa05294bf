"""Typed configuration: environment > YAML/TOML file > default. An unknown key or a wrong type stops the start.

The file named by `DEVFLOW_CONFIG` (or `devflow.yaml` / `devflow.toml` in the data directory) holds the
`mcp_gateway:` block and the keys below beside it. Every key is also an environment variable; see
`docs/configuration.md`, which is generated from this module.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin
from urllib.parse import unquote, urlsplit

import yaml
from dotenv import dotenv_values
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

ENV_PREFIX = "DEVFLOW_"
PROJECT_ROOT = Path(__file__).resolve().parent.parent

# Read by the process itself before or beside this configuration, so they are no keys of it.
ENV_NOT_KEYS = frozenset({"DEVFLOW_CONFIG", "DEVFLOW_HOME", "DEVFLOW_CHILD"})
ENV_OF_TESTS = "DEVFLOW_TEST_"


class ConfigError(Exception):
    """The configuration cannot be used; the message names the key and where it came from."""


class Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class RateLimit(Block):
    enabled: bool = Field(True, description="Limit calls per key over all transports together.")
    requests_per_minute: int = Field(100, ge=1, le=1_000_000, description="Calls a key may make in any 60 s.")
    burst: int = Field(20, ge=0, le=1_000_000, description="Calls allowed on top of that in the same 60 s.")


class Cache(Block):
    enabled: bool = Field(True, description="Cache search results.")
    ttl_seconds: int = Field(300, ge=1, description="Seconds a cached result lives.")
    max_size_mb: int = Field(100, ge=1, description="Megabytes the cache may hold.")


class Telemetry(Block):
    enabled: bool = Field(True, description="Count and time calls.")
    export_endpoint: str = Field(
        "", description="Where metrics are pushed to in the background (Prometheus text, POST); empty: nowhere."
    )
    export_interval_seconds: int = Field(30, ge=1, description="Seconds between two pushes.")


class McpGateway(Block):
    host: str = Field("127.0.0.1", description="Address the server listens on.")
    port: int = Field(8051, ge=0, le=65535, description="Port the server listens on.")
    sse_enabled: bool = Field(True, description="Serve MCP over SSE at /mcp/sse.")
    stdio_enabled: bool = Field(True, description="Allow `devflow mcp`.")
    knowledge_hub_url: str = Field(
        "", description="Another DevFlow whose knowledge tools are called over HTTP; empty: in this process."
    )
    workflow_engine_url: str = Field(
        "", description="Another DevFlow whose workflow tools are called over HTTP; empty: in this process."
    )
    qdrant_url: str = Field("", description="A Qdrant server (HTTP); empty: embedded vectors.")
    qdrant_grpc_port: int = Field(6334, ge=1, le=65535, description="The Qdrant server's gRPC port.")
    qdrant_api_key: SecretStr = Field(SecretStr(""), description="The Qdrant server's API key.")
    backend_api_key: SecretStr = Field(
        SecretStr(""), description="The API key sent to knowledge_hub_url and workflow_engine_url."
    )
    rate_limit: RateLimit = RateLimit()
    cache: Cache = Cache()
    telemetry: Telemetry = Telemetry()


class Llm(Block):
    base_url: str = Field("", description="An OpenAI-compatible endpoint; empty: none.")
    api_key: SecretStr = Field(SecretStr(""), description="Its key.")
    model: str = Field("", description="The model asked for.")
    timeout_seconds: float = Field(15, gt=0, le=300, description="Seconds an answer of it may take.")


class Embedding(Block):
    provider: Literal["bundled", "onnx", "openai"] = Field(
        "bundled", description="`bundled`: MiniLM on this CPU; `onnx`: the model in `path`; `openai`: `base_url`."
    )
    model: str = Field("", description="The model asked of an OpenAI-compatible endpoint.")
    base_url: str = Field("", description="An OpenAI-compatible endpoint, with or without /v1.")
    api_key: SecretStr = Field(SecretStr(""), description="Its key.")
    path: str = Field("", description="A folder with model.onnx and tokenizer.json, as sentence-transformers has it.")
    dimensions: int = Field(
        0, ge=0, le=65536, description="Length of the vectors asked of the endpoint; 0: the model's own."
    )
    batch_size: int = Field(8, ge=1, le=2048, description="Most texts embedded at once.")
    threads: int = Field(0, ge=0, le=256, description="Threads that embed in the background; 0: one per core.")
    timeout_seconds: float = Field(30, gt=0, le=600, description="Longest wait for one answer of the endpoint.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.provider == "openai" and not (self.base_url and self.model):
            raise ValueError("the provider `openai` needs base_url and model")
        if self.provider == "onnx" and not self.path:
            raise ValueError("the provider `onnx` needs path")
        return self


class Vectors(Block):
    optimize_above: int = Field(
        20_000, ge=0, description="Embedded vectors: points a collection grows by until its graph is built; 0: never."
    )
    timeout_seconds: float = Field(
        2.0, gt=0, le=60, description="Longest wait for a search before keyword results answer alone."
    )


class Exposure(Block):
    toolsets: list[str] = Field([], description="Toolsets clients are shown; empty: all.")
    expose: Literal["direct", "search", "intent"] = Field(
        "direct",
        description="`direct` lists every tool, `search` lists search_tools and call_tool, `intent` gateway_execute.",
    )
    names: Literal["dotted", "underscore"] = Field("dotted", description="Spelling of dotted tool names.")


class Workflow(Block):
    lease_minutes: int = Field(30, ge=1, le=1440, description="Minutes a claim lives without a sign of its holder.")
    max_attempts: int = Field(3, ge=1, le=100, description="Expired leases after which a task fails.")


class Taiga(Block):
    enabled: bool = Field(True, description="Offer the tools whose names begin with taiga.")


class Audit(Block):
    retention_days: int = Field(90, ge=1, description="Days the log of calls is kept.")
    flush_seconds: float = Field(0.5, gt=0, le=60, description="Longest time a buffered read waits to be written.")


class Knowledge(Block):
    upload_max_mb: int = Field(25, ge=1, le=1000, description="Megabytes one uploaded file may have.")
    max_document_mb: int = Field(20, ge=1, le=1000, description="Megabytes one document of a source may have.")
    crawl_max_pages: int = Field(500, ge=1, le=100_000, description="Pages one web source may have.")
    crawl_max_depth: int = Field(5, ge=0, le=50, description="Links a page may be away from a source's address.")
    crawl_delay_seconds: float = Field(
        0.2, ge=0, le=60, description="Seconds between two requests to one host; its robots.txt can ask for more."
    )
    fetch_timeout_seconds: float = Field(20, gt=0, le=600, description="Seconds fetching one page may take in all.")
    allow_private_addresses: bool = Field(
        False,
        description="Let web sources be fetched from private and loopback addresses; only where every user is trusted.",
    )
    recheck_hours: int = Field(
        24, ge=0, le=8760, description="Hours after which directories, checkouts and sites are read again; 0: never."
    )


class Webhooks(Block):
    allowed_hosts: list[str] = Field(
        [],
        description="Hosts that webhooks may reach though they are not public: a name or an address, or `name:port`.",
    )
    timeout_seconds: float = Field(10, gt=0, le=60, description="Seconds a webhook's receiver has to answer.")
    keep_days: int = Field(14, ge=1, le=3650, description="Days the log of finished deliveries is kept.")

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _from_comma_list(cls, value: object) -> object:
        return _split(value)


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class Config(Block):
    """Everything that can be set. Nested blocks join their names with `_` in the environment."""

    mcp_gateway: McpGateway = McpGateway()
    llm: Llm = Llm()
    embedding: Embedding = Embedding()
    vectors: Vectors = Vectors()
    exposure: Exposure = Exposure()
    workflow: Workflow = Workflow()
    taiga: Taiga = Taiga()
    audit: Audit = Audit()
    knowledge: Knowledge = Knowledge()
    webhooks: Webhooks = Webhooks()

    database_url: str = Field(
        "",
        description="postgres://user:password@host:port/name or sqlite:///path; empty: SQLite in the data directory.",
    )
    redis_url: str = Field("", description="redis://host:port/db for channels, limits and caches of several workers.")
    queue_url: str = Field(
        "",
        description="Where jobs wait: redis:// or postgres://; empty: redis_url, else SQLite in the data directory.",
    )
    workers: int = Field(1, ge=1, le=64, description="Server processes.")
    server: Literal["uvicorn", "daphne"] = Field("uvicorn", description="The ASGI server `devflow up` starts.")
    embedded_jobs: bool | None = Field(
        None, description="Run jobs inside the server; default: yes with one worker and no Redis queue."
    )
    call_threads: int = Field(4, ge=1, le=256, description="Threads a server process runs blocking tool calls on.")
    secret_key: SecretStr = Field(
        SecretStr(""), description="Signs sessions; empty: generated once into the data directory."
    )
    debug: bool = Field(False, description="Django's debug pages; only on a loopback address.")
    production: bool = Field(False, description="TLS in front: secure cookies, HSTS, redirects.")
    public_url: str = Field("", description="The address people and clients use, where it is not host:port.")
    allowed_hosts: list[str] = Field([], description="Host names served beside loopback and the host of public_url.")
    allowed_origins: list[str] = Field([], description="Origins that may call beside the own one.")
    allowed_roots: list[str] = Field([], description="Directories DevFlow may read sources and gate files from.")
    sqlite_synchronous: Literal["NORMAL", "FULL"] = Field(
        "NORMAL", description="FULL survives power loss to the last write, at a cost per write."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Lowest level logged.")
    log_format: Literal["console", "json"] = Field("console", description="How log lines look.")
    drain_seconds: int = Field(10, ge=1, le=300, description="Seconds calls may take to finish on shutdown.")
    api_url: str = Field("", description="A running DevFlow that `devflow mcp` bridges to.")
    api_key: SecretStr = Field(SecretStr(""), description="The key `devflow mcp` presents there.")
    agent_id: str = Field("", max_length=100, description="The agent `devflow mcp` speaks for.")

    @field_validator("allowed_hosts", "allowed_origins", "allowed_roots", mode="before")
    @classmethod
    def _from_comma_list(cls, value: object) -> object:
        return _split(value)


@dataclass(frozen=True, slots=True)
class Key:
    """One leaf of the configuration: `path` in the file, `env` in the environment."""

    path: tuple[str, ...]
    env: str
    field: FieldInfo

    @property
    def is_secret(self) -> bool:
        return self.field.annotation is SecretStr

    @property
    def is_list(self) -> bool:
        return get_origin(self.field.annotation) is list

    @property
    def type_name(self) -> str:
        return _type_name(self.field.annotation)


def _type_name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _type_name(get_args(annotation)[0])
    if origin is Literal:
        return " \\| ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, UnionType):
        return _type_name(next(part for part in get_args(annotation) if part is not type(None)))
    if origin is list:
        return "comma list"
    names = {"SecretStr": "secret", "str": "text", "int": "integer", "float": "number", "bool": "true/false"}
    return names[annotation.__name__]


def keys(model: type[BaseModel] = Config, path: tuple[str, ...] = ()) -> Iterator[Key]:
    """Yield every leaf key. The `mcp_gateway` and `exposure` blocks add nothing to the environment name."""
    for name, field in model.model_fields.items():
        here = (*path, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from keys(field.annotation, here)
        else:
            parts = [part for part in here if part not in ("mcp_gateway", "exposure")]
            yield Key(here, ENV_PREFIX + "_".join(parts).upper(), field)


def home(environ: Mapping[str, str] | None = None) -> Path:
    """The data directory: `DEVFLOW_HOME`, or `.devflow` beside manage.py."""
    environ = os.environ if environ is None else environ
    named = environ.get("DEVFLOW_HOME", "")
    return Path(named).expanduser().resolve() if named else PROJECT_ROOT / ".devflow"


def sqlite_path(url: str) -> Path:
    """The database file of a `sqlite:///path` URL (the path is absolute); empty: in the data directory."""
    return Path("/" + unquote(urlsplit(url).path).lstrip("/")) if url else home() / "devflow.sqlite3"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: cannot be read: {exc}") from exc
    except (yaml.YAMLError, tomllib.TOMLDecodeError) as exc:
        raise ConfigError(f"{path}: is not valid {path.suffix.lstrip('.') or 'YAML'}: {exc}") from exc
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: the top level must be a mapping of keys.")
    return data


def _config_file(environ: Mapping[str, str]) -> Path | None:
    if named := environ.get("DEVFLOW_CONFIG"):
        return Path(named).expanduser()
    return next(
        (path for name in ("devflow.yaml", "devflow.yml", "devflow.toml") if (path := home(environ) / name).is_file()),
        None,
    )


def _overlay(data: dict[str, Any], environ: Mapping[str, str]) -> None:
    known = {key.env: key for key in keys()}
    for name, raw in environ.items():
        if not name.startswith(ENV_PREFIX) or name.startswith(ENV_OF_TESTS) or name in ENV_NOT_KEYS:
            continue
        from_file = name.endswith("_FILE") and name.removesuffix("_FILE") in known
        key = known.get(name.removesuffix("_FILE") if from_file else name)
        if key is None or (from_file and not key.is_secret and not key.env.endswith("_URL")):
            raise ConfigError(
                f"{name}: unknown setting in the environment; docs/configuration.md lists the known ones."
            )
        value: Any = raw
        if from_file:
            if key.env in environ:
                raise ConfigError(f"{name}: set either {key.env} or {name}, not both.")
            try:
                value = Path(raw).read_text(encoding="utf-8").rstrip("\n")
            except OSError as exc:
                raise ConfigError(f"{name}: cannot be read: {exc}") from exc
        if key.is_list:
            value = _split(value)
        elif raw == "" and not from_file and key.type_name not in ("text", "secret"):
            continue
        node = data
        for part in key.path[:-1]:
            below = node.setdefault(part, {})
            if not isinstance(below, dict):
                raise ConfigError(f"{part}: must be a block of keys.")
            node = below
        node[key.path[-1]] = value


def load(environ: Mapping[str, str] | None = None) -> Config:
    """Read the configuration. Raises `ConfigError` naming the first key that cannot be used."""
    environ = os.environ if environ is None else environ
    dotenv = PROJECT_ROOT / ".env"
    if dotenv.is_file():
        read = {name: value for name, value in dotenv_values(dotenv).items() if value is not None}
        environ = {**{k: v for k, v in read.items() if k.startswith(ENV_PREFIX)}, **environ}
    path = _config_file(environ)
    data = _read_file(path) if path else {}
    _overlay(data, environ)
    try:
        return Config.model_validate(data)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        problem = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
        raise ConfigError(f"{where}: {problem}; docs/configuration.md lists the keys and their types.") from exc


@lru_cache(maxsize=1)
def current() -> Config:
    """The configuration of this process, read once."""
    return load()
