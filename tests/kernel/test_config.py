from pathlib import Path

import pytest

from devflow import config
from devflow.config import ConfigError

PRD_BLOCK = """
mcp_gateway:
  host: "0.0.0.0"
  port: 8051
  sse_enabled: true
  stdio_enabled: true
  knowledge_hub_url: ""
  workflow_engine_url: ""
  rate_limit:
    enabled: true
    requests_per_minute: 100
    burst: 20
  cache:
    enabled: true
    ttl_seconds: 300
    max_size_mb: 100
  telemetry:
    enabled: true
    export_endpoint: ""
"""


def load(home: Path, **environ: str) -> config.Config:
    return config.load({"DEVFLOW_HOME": str(home), **environ})


def refusal(home: Path, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(home, **environ)
    return str(caught.value)


def test_everything_has_a_default(tmp_path: Path) -> None:
    conf = load(tmp_path)
    assert (conf.mcp_gateway.host, conf.mcp_gateway.port) == ("127.0.0.1", 8051)
    assert conf.mcp_gateway.rate_limit.requests_per_minute == 100
    assert conf.workers == 1


def test_the_block_of_the_product_description_starts(tmp_path: Path) -> None:
    (tmp_path / "devflow.yaml").write_text(PRD_BLOCK)
    assert load(tmp_path).mcp_gateway.host == "0.0.0.0"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("devflow.yaml", "mcp_gateway:\n  port: 9001\nworkers: 2\n"),
        ("devflow.yml", "mcp_gateway:\n  port: 9001\nworkers: 2\n"),
        ("devflow.toml", "workers = 2\n[mcp_gateway]\nport = 9001\n"),
    ],
)
def test_a_file_in_the_data_directory_is_read_and_the_environment_wins(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert (load(tmp_path).mcp_gateway.port, load(tmp_path).workers) == (9001, 2)
    assert (load(tmp_path, DEVFLOW_PORT="9002").mcp_gateway.port, load(tmp_path, DEVFLOW_PORT="9002").workers) == (
        9002,
        2,
    )


def test_a_named_file_is_read_instead(tmp_path: Path) -> None:
    (tmp_path / "devflow.yaml").write_text("workers: 2")
    (tmp_path / "other.yaml").write_text("workers: 3")
    assert load(tmp_path, DEVFLOW_CONFIG=str(tmp_path / "other.yaml")).workers == 3


def test_a_named_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    assert "nowhere.yaml" in refusal(tmp_path, DEVFLOW_CONFIG=str(tmp_path / "nowhere.yaml"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("mcp_gateway:\n  prot: 1\n", "mcp_gateway.prot: unknown key"),
        ("colour: red\n", "colour: unknown key"),
        ("mcp_gateway:\n  port: many\n", "mcp_gateway.port"),
        ("mcp_gateway:\n  port: 70000\n", "mcp_gateway.port"),
        ("mcp_gateway: 5\n", "mcp_gateway"),
        ("workers: [1]\n", "workers"),
        ("- a list\n", "top level"),
        ("a: [\n", "not valid yaml"),
    ],
)
def test_what_a_file_may_not_say_stops_the_start_with_the_keys_name(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "devflow.yaml").write_text(text)
    assert named in refusal(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("DEVFLOW_PROT", "1", "DEVFLOW_PROT"),
        ("DEVFLOW_PORT", "many", "port"),
        ("DEVFLOW_SERVER", "gunicorn", "server"),
        ("DEVFLOW_PORT_FILE", "/nowhere", "DEVFLOW_PORT_FILE"),
        ("DEVFLOW_SECRET_KEY_FILE", "/nowhere/key", "DEVFLOW_SECRET_KEY_FILE"),
    ],
)
def test_what_the_environment_may_not_say_stops_the_start(tmp_path: Path, name: str, value: str, named: str) -> None:
    assert named in refusal(tmp_path, **{name: value})


def test_the_message_never_repeats_a_value(tmp_path: Path) -> None:
    assert "hunter2" not in refusal(tmp_path, DEVFLOW_PORT="hunter2")


def test_secrets_and_urls_can_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    (tmp_path / "url").write_text("postgres://u:p@h/d\n")
    files = {"DEVFLOW_LLM_API_KEY_FILE": str(tmp_path / "secret"), "DEVFLOW_DATABASE_URL_FILE": str(tmp_path / "url")}
    conf = load(tmp_path, **files)
    assert conf.llm.api_key.get_secret_value() == "from a file"
    assert conf.database_url == "postgres://u:p@h/d"
    assert "not both" in refusal(tmp_path, **files, DEVFLOW_LLM_API_KEY="x")


def test_secrets_do_not_show_when_printed(tmp_path: Path) -> None:
    assert "hunter2" not in repr(load(tmp_path, DEVFLOW_SECRET_KEY="hunter2"))


def test_lists_are_comma_separated_and_empty_numbers_keep_their_default(tmp_path: Path) -> None:
    conf = load(tmp_path, DEVFLOW_ALLOWED_HOSTS="a.example, b.example,", DEVFLOW_WORKERS="", DEVFLOW_REDIS_URL="")
    assert conf.allowed_hosts == ["a.example", "b.example"]
    assert (conf.workers, conf.redis_url) == (1, "")


def test_every_key_has_a_name_of_its_own_in_the_environment_and_a_description() -> None:
    keys = list(config.keys())
    assert len({key.env for key in keys}) == len(keys)
    assert [key.path for key in keys if not key.field.description] == []


def test_a_sqlite_url_names_an_absolute_path(tmp_path: Path) -> None:
    assert config.sqlite_path("sqlite:////var/lib/x.sqlite3") == Path("/var/lib/x.sqlite3")
    assert config.sqlite_path("sqlite:///var/lib/a%20b.sqlite3") == Path("/var/lib/a b.sqlite3")
    assert config.sqlite_path("") == config.home() / "devflow.sqlite3"
