import pytest

from devflow.checks import problems
from devflow.config import Config

POSTGRES, REDIS = "postgres://u@h/d", "redis://h:6379/0"


def ids(**settings: object) -> list[str]:
    return [problem.id or "" for problem in problems(Config.model_validate(settings))]


def test_the_defaults_are_right() -> None:
    assert ids() == []


def test_several_workers_with_postgresql_and_redis_are_right() -> None:
    assert ids(workers=4, database_url=POSTGRES, redis_url=REDIS) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"workers": 2, "database_url": POSTGRES}, "devflow.E001"),
        ({"workers": 2, "redis_url": REDIS}, "devflow.E002"),
        ({"workers": 2, "database_url": POSTGRES, "redis_url": REDIS, "embedded_jobs": True}, "devflow.E003"),
        ({"secret_key": "changeme"}, "devflow.E004"),
        ({"secret_key": "django-insecure-0123456789012345678901234567890123456789"}, "devflow.E004"),
        ({"debug": True, "mcp_gateway": {"host": "0.0.0.0"}}, "devflow.E005"),
        ({"allowed_hosts": ["*"]}, "devflow.E006"),
        ({"allowed_origins": ["*"]}, "devflow.E006"),
    ],
)
def test_a_wrong_combination_is_named_with_its_fix(settings: dict[str, object], expected: str) -> None:
    found = problems(Config.model_validate(settings))
    assert [problem.id for problem in found] == [expected]
    assert found[0].hint
