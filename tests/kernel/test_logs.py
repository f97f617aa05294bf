import io
import json
import logging
import logging.config
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from devflow.logs import logging_config, redact

KEY = "dvf_AbC123_s3cr3t0123456789_XyZ012"


@contextmanager
def written(output: str) -> Iterator[io.StringIO]:
    """A logger `devflow.tests.logs` that writes into the buffer."""
    buffer = io.StringIO()
    settings = logging_config("INFO", output)
    made = logging.config.DictConfigurator({**settings, "version": 1})
    formatter = made.configure_formatter(settings["formatters"]["line"])
    handler = logging.StreamHandler(buffer)
    handler.setFormatter(formatter)
    logger = logging.getLogger("devflow.tests.logs")
    logger.addHandler(handler)
    logger.setLevel("INFO")
    logger.propagate = False
    yield buffer
    logger.removeHandler(handler)
    logger.propagate = True


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    with written("json") as buffer:
        yield buffer


def test_a_traceback_for_people_shows_no_local_variables_and_no_keys() -> None:
    password = "hunter2"  # noqa: F841  # a local variable that must not be shown
    with written("console") as buffer:
        try:
            raise ValueError(KEY)
        except ValueError:
            logging.getLogger("devflow.tests.logs").exception("failed")
    assert "ValueError: dvf_AbC123_***" in buffer.getvalue()
    assert "s3cr3t" not in buffer.getvalue()
    assert "password" not in buffer.getvalue().replace('password = "hunter2"', "")


def test_one_event_is_one_line_whatever_it_contains(lines: io.StringIO) -> None:
    logging.getLogger("devflow.tests.logs").warning("first\r\nforged: %s", "a\nb")
    assert lines.getvalue().count("\n") == 1
    assert json.loads(lines.getvalue())["event"] == "first\\r\\nforged: a\\nb"


def test_extra_fields_are_logged_with_their_secrets_blanked(lines: io.StringIO) -> None:
    logging.getLogger("devflow.tests.logs").info("called", extra={"tool": "create_task", "api_key": "abc", "text": KEY})
    event = json.loads(lines.getvalue())
    assert (event["tool"], event["api_key"], event["text"]) == ("create_task", "***", "dvf_AbC123_***")


def test_a_traceback_is_part_of_its_event(lines: io.StringIO) -> None:
    try:
        raise ValueError(KEY)
    except ValueError:
        logging.getLogger("devflow.tests.logs").exception("failed")
    event = json.loads(lines.getvalue())
    assert "Traceback" in event["exception"]
    assert "s3cr3t" not in lines.getvalue()


def test_secrets_are_blanked_at_any_depth_and_harmless_names_are_kept() -> None:
    given = {"a": [{"password": "x", "max_tokens": 5}], "Authorization": f"Bearer {KEY}", "note": f"use {KEY}", "n": 1}
    assert redact(given) == {
        "a": [{"password": "***", "max_tokens": 5}],
        "Authorization": "***",
        "note": "use dvf_AbC123_***",
        "n": 1,
    }


def test_redaction_ends_on_values_that_contain_themselves() -> None:
    loop: dict[str, object] = {}
    loop["self"] = loop
    assert redact(loop)["self"]["self"] is not None
