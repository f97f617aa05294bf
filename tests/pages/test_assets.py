"""Static files: whole, cacheable, in parts where asked for, and never a stream."""

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
