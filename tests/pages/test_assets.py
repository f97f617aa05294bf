"""Static files: whole, cacheable, in parts where asked for, and never a stream."""

import hashlib
import json
from pathlib import Path

from django.test import Client

SHEET = "/static/devflow/devflow.css"


def test_a_static_file_is_sent_whole_with_its_type_and_validator(client: Client) -> None:
    response = client.get(SHEET)
    assert response.status_code == 200
    assert not response.streaming
    assert response.headers["Content-Type"].startswith("text/css")
    assert len(response.content) == int(response.headers["Content-Length"])
    again = client.get(SHEET, headers={"If-None-Match": response.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_part_of_a_static_file_can_be_asked_for(client: Client) -> None:
    response = client.get(SHEET, headers={"Range": "bytes=0-9"})
    assert (response.status_code, len(response.content)) == (206, 10)


def test_head_sends_no_content(client: Client) -> None:
    response = client.head(SHEET)
    assert (response.status_code, response.content) == (200, b"")
    assert int(response.headers["Content-Length"]) > 1000


def test_browsers_that_ask_for_the_usual_icon_find_it(client: Client) -> None:
    response = client.get("/favicon.ico")
    assert response.status_code == 302
    assert client.get(response.headers["Location"]).headers["Content-Type"] == "image/svg+xml"


VENDORED = Path(__file__).parents[2] / "devflow" / "static" / "vendor"


def test_what_others_wrote_is_what_they_published_and_carries_its_licence() -> None:
    listed = json.loads((VENDORED / "manifest.json").read_text())
    assert {folder.name for folder in VENDORED.iterdir() if folder.is_dir()} == {one["folder"] for one in listed}
    for one in listed:
        folder = VENDORED / one["folder"]
        found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        assert found == one["files"], f"{one['package']} {one['version']}"
        assert any(name.startswith("LICENSE") for name in found)
        assert one["version"] in one["folder"]
