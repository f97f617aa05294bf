from devflow import reference
from devflow.config import PROJECT_ROOT, keys


def test_the_configuration_page_is_current() -> None:
    page = (PROJECT_ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference.render(), "run `make docs`"


def test_the_configuration_page_names_every_key() -> None:
    page = reference.render()
    assert [key.env for key in keys() if f"`{key.env}`" not in page] == []
