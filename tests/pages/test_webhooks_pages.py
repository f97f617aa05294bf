"""The webhooks of a project: on pages, over REST and in the admin; who may, what they see, what is shown once."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from devflow import config
from devflow.actors import SYSTEM
from mcpbridge.models import ApiKey
from tests.fakes.receiver import Receiver, Reply
from tests.pages.conftest import LogIn
from workflow.models import Delivery, Event, Membership, Project, Webhook
from workflow.services import deliveries, projects, sending, webhooks

URL = "https://ci.example.org/hooks/s3cret"
PLACE = "/projects/shop/webhooks/"
JSON = "application/json"


def text_of(response: Any) -> str:
    content: str = response.content.decode()
    return content


@pytest.fixture
def boss(project: Project, log_in: LogIn) -> Client:
    return log_in(project, name="boss", role="admin")


@pytest.fixture
def webhook(project: Project) -> Webhook:
    return webhooks.create(project_id=project.pk, url=URL, name="Our CI", kinds=["task.done"], actor=SYSTEM)[0]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("DEVFLOW_WEBHOOKS_ALLOWED_HOSTS", "127.0.0.1")
    config.current.cache_clear()
    with Receiver() as receiver:
        yield receiver
    monkeypatch.undo()
    config.current.cache_clear()


def work() -> None:
    deliveries.collect()
    while found := sending.claim():
        sending.send(found, stop=lambda: False)


def said(webhook: Webhook, count: int = 1, **more: Any) -> list[Delivery]:
    return [
        Delivery.objects.create(webhook=webhook, kind="task.done", sequence=number, payload="{}", **more)
        for number in range(webhook.deliveries.count() + 1, webhook.deliveries.count() + count + 1)
    ]


FAILED = {"status": "failed", "next_try_at": None, "attempts": 8, "error": "It answered 500.", "response_status": 500}


# --- pages -----------------------------------------------------------------------------------------------------------


def test_a_project_without_webhooks_says_what_they_are_for(boss: Client) -> None:
    page = text_of(boss.get(PLACE))
    assert "Add the first webhook" in page
    assert "task.done" in page


def test_an_admin_adds_a_webhook_and_sees_its_secret_once(boss: Client, project: Project) -> None:
    form = text_of(boss.get(f"{PLACE}add/"))
    assert 'value="task.*"' in form and 'value="task.lease_expired"' in form
    response = boss.post(
        f"{PLACE}add/", {"url": URL, "name": "Our CI", "every": "no", "kinds": ["task.done", "agent.*"]}
    )
    assert "no-store" in response.headers["Cache-Control"]
    secret = re.search(r"whsec_[\w+/=]+", text_of(response))
    assert secret is not None
    made = Webhook.objects.get()
    assert (made.url, made.name, made.kinds, made.created_by) == (URL, "Our CI", ["agent.*", "task.done"], "boss")
    for path in (PLACE, f"{PLACE}{made.pk}/", f"{PLACE}{made.pk}/edit/"):
        assert secret[0] not in text_of(boss.get(path))
    listed = text_of(boss.get(PLACE))
    assert "Our CI" in listed and "agent.*, task.done" in listed
    assert "s3cret" not in listed
    assert Event.objects.filter(kind="webhook.created", actor_name="boss").exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"url": ""}, "This field is required"),
        ({"url": "http://127.0.0.1:8051/"}, "not a public address"),
        ({"url": "http://169.254.169.254/"}, "DEVFLOW_WEBHOOKS_ALLOWED_HOSTS"),
        ({"url": "ftp://example.com/"}, "not http or https"),
        ({"every": "no"}, "Choose at least one"),
        ({"every": "no", "kinds": ["task.flown"]}, "Select a valid choice"),
        ({"name": "x" * 200}, "at most 100 characters"),
    ],
)
def test_a_wrong_form_adds_nothing_and_says_why(boss: Client, wrong: dict[str, Any], words: str) -> None:
    response = boss.post(f"{PLACE}add/", {"url": URL, "name": "CI & co", "every": "yes", **wrong})
    assert response.status_code == 422
    assert words in text_of(response)
    assert not Webhook.objects.exists()


def test_a_webhook_is_changed_switched_off_and_on_and_deleted(boss: Client, webhook: Webhook) -> None:
    place = f"{PLACE}{webhook.pk}/"
    assert "checked" in text_of(boss.get(f"{place}edit/"))
    saved = boss.post(f"{place}edit/", {"url": URL, "name": "Chat", "every": "yes"}, follow=True)
    assert "Saved." in text_of(saved)
    webhook.refresh_from_db()
    assert (webhook.name, webhook.kinds) == ("Chat", [])
    assert "It is off" in text_of(boss.post(f"{place}off", follow=True))
    refused = boss.post(f"{place}test", follow=True)
    assert "Switch it on first" in text_of(refused)
    assert "Switch off" in text_of(boss.post(f"{place}on", follow=True))
    assert boss.post(f"{place}explode").status_code == 404
    assert boss.get(f"{place}off").status_code == 405
    assert "Keep it" in text_of(boss.get(f"{place}delete/"))
    assert "was deleted" in text_of(boss.post(f"{place}delete/", follow=True))
    assert not Webhook.objects.exists()


def test_a_new_secret_is_shown_once(boss: Client, webhook: Webhook) -> None:
    response = boss.post(f"{PLACE}{webhook.pk}/secret")
    assert re.search(r"whsec_[\w+/=]{40,}", text_of(response))
    assert "with the old one" in text_of(response)
    assert "whsec_" not in text_of(boss.get(f"{PLACE}{webhook.pk}/"))


@pytest.mark.django_db(transaction=True)
def test_a_test_is_sent_and_its_page_shows_request_and_answer(
    boss: Client, project: Project, receiver: Receiver
) -> None:
    webhook, _ = webhooks.create(project_id=project.pk, url=receiver.url, actor=SYSTEM)
    receiver.script(Reply(500, {"Content-Type": "text/html"}, b"<script>alert(1)</script> no"), Reply(200, {}, b"fine"))
    response = boss.post(f"{PLACE}{webhook.pk}/test", follow=True)
    assert "it goes out now" in text_of(response)
    work()
    delivery = Delivery.objects.get()
    place = f"{PLACE}{webhook.pk}/deliveries/{delivery.pk}/"
    page = text_of(boss.get(place))
    for words in (delivery.message_id, delivery.signature.replace("+", "&#x2B;").replace("=", "="), "HTTP 500"):
        assert words.replace("&#x2B;", "+") in page.replace("&#x2B;", "+")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; no" in page
    assert "It answered 500." in page and "1 of 8 tries" in page and "within a minute" in page
    boss.post(f"{place}again")
    work()
    assert "fine" in text_of(boss.get(place))
    partial = text_of(boss.get(place, headers={"HX-Request": "true"}))
    assert "delivered" in partial and "<html" not in partial
    assert [message.id for message in receiver.received] == [delivery.message_id] * 2


def test_the_log_shows_each_state_is_filtered_and_paged(boss: Client, webhook: Webhook) -> None:
    place = f"{PLACE}{webhook.pk}/"
    assert "Nothing was sent yet" in text_of(boss.get(place))
    said(webhook, 60, status="delivered", next_try_at=None, attempts=1, response_status=204, duration_ms=12)
    said(webhook, 1, **FAILED)
    page = text_of(boss.get(place))
    assert "1 to 50 of 61" in page and "It answered 500." in page
    assert "51 to 61 of 61" in text_of(boss.get(f"{place}?page=2"))
    failed = text_of(boss.get(f"{place}?status=failed"))
    assert failed.count('id="delivery-') == 1
    assert "None is waiting" in text_of(boss.get(f"{place}?status=waiting"))
    assert 'id="delivery-' in text_of(boss.get(f"{place}?status=odd&page=zero"))


def test_a_webhook_that_was_stopped_says_why_on_its_page_and_in_the_list(boss: Client, webhook: Webhook) -> None:
    webhooks.disable(webhook_id=webhook.pk, reason="It answered 410: the receiver is gone for good.")
    for path in (PLACE, f"{PLACE}{webhook.pk}/"):
        assert "gone for good" in text_of(boss.get(path))


def test_the_number_of_queries_does_not_grow_with_rows(boss: Client, project: Project, webhook: Webhook) -> None:
    def queries(path: str) -> int:
        with CaptureQueriesContext(connection) as seen:
            assert boss.get(path).status_code == 200
        return len(seen)

    said(webhook, 2, **FAILED)
    paths = (PLACE, f"{PLACE}{webhook.pk}/")
    boss.get(PLACE)  # the project is remembered
    few = [queries(path) for path in paths]
    said(webhook, 40, **FAILED)
    for _ in range(10):
        webhooks.create(project_id=project.pk, url=URL, actor=SYSTEM)
    assert [queries(path) for path in paths] == few
    assert max(few) <= 12


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_whoever_is_no_admin_sees_and_changes_nothing(
    project: Project, webhook: Webhook, log_in: LogIn, role: str
) -> None:
    client = log_in(project, name="mo", role=role)
    (delivery,) = said(webhook, **FAILED)
    place = f"{PLACE}{webhook.pk}/"
    for path in (PLACE, f"{PLACE}add/", place, f"{place}edit/", f"{place}delete/", f"{place}deliveries/{delivery.pk}/"):
        response = client.get(path)
        assert (response.status_code, "s3cret" in text_of(response)) == (403, False), path
    events = Event.objects.count()
    for path in ("edit/", "delete/", "test", "off", "secret", f"deliveries/{delivery.pk}/again"):
        assert client.post(f"{place}{path}", {"url": URL, "every": "yes"}).status_code == 403, path
    assert client.post(f"{PLACE}add/", {"url": URL, "every": "yes"}).status_code == 403
    assert (Webhook.objects.count(), Event.objects.count(), Delivery.objects.get().status) == (1, events, "failed")


def test_another_projects_webhooks_do_not_exist(webhook: Webhook, log_in: LogIn) -> None:
    other = projects.create(slug="other", name="Other")
    stranger = log_in(other, name="sid", role="admin")
    (delivery,) = said(webhook, **FAILED)
    for path in (
        PLACE,
        f"{PLACE}{webhook.pk}/",
        f"/projects/other/webhooks/{webhook.pk}/",
        f"/projects/other/webhooks/{webhook.pk}/deliveries/{delivery.pk}/",
    ):
        assert stranger.get(path).status_code == 404, path
    assert stranger.post(f"/projects/other/webhooks/{webhook.pk}/delete/").status_code == 404
    assert stranger.post(f"/projects/other/webhooks/{webhook.pk}/deliveries/{delivery.pk}/again").status_code == 404
    assert Webhook.objects.exists()


def test_a_name_is_data(boss: Client, project: Project) -> None:
    name = "<b>مرحبا</b> 🎉" + "x" * 60
    made, _ = webhooks.create(project_id=project.pk, url=URL, name=name, actor=SYSTEM)
    for path in (PLACE, f"{PLACE}{made.pk}/", f"{PLACE}{made.pk}/edit/", f"{PLACE}{made.pk}/delete/"):
        assert "<b>مرحبا" not in text_of(boss.get(path))


# --- REST ------------------------------------------------------------------------------------------------------------

ROWS = "/api/v1/webhooks/"


@pytest.fixture
def call(project: Project) -> Callable[..., Any]:
    """Call the API with a key of an admin of the project, or with these scopes."""

    def make(method: str, path: str, body: Any = None, *, scopes: tuple[str, ...] = ("admin",), **more: Any) -> Any:
        boss, _ = get_user_model().objects.get_or_create(username="keyed")
        Membership.objects.get_or_create(user=boss, project=project, defaults={"role": "admin"})
        owner = more.pop("owner", boss)
        key = ApiKey.objects.issue(name="api", scopes=list(scopes), owner_id=owner and owner.pk)[1]
        client = Client(headers={"X-API-Key": key})
        return client.generic(method, path, json.dumps(body) if body is not None else "", content_type=JSON)

    return make


def test_a_webhook_lives_over_rest(call: Callable[..., Any], project: Project) -> None:
    made = call("POST", ROWS, {"project": "shop", "url": URL, "kinds": ["task.*"]})
    assert (made.status_code, made.headers["Cache-Control"]) == (201, "no-store")
    body = made.json()
    assert body["secret"].startswith("whsec_")
    place = f"{ROWS}{body['id']}/"
    shown = call("GET", place).json()
    assert "secret" not in shown and "old_secret" not in shown
    assert shown == {name: value for name, value in body.items() if name != "secret"}
    assert call("GET", ROWS).json()["results"] == [shown]
    changed = call("PATCH", place, {"name": "Chat", "active": False}).json()
    assert (changed["name"], changed["active"], changed["kinds"]) == ("Chat", False, ["task.*"])
    assert call("POST", f"{place}ping/").status_code == 409
    call("PATCH", place, {"active": True})
    fresh = call("POST", f"{place}rotate/").json()
    assert fresh["secret"] != body["secret"]
    sent = call("POST", f"{place}ping/")
    assert (sent.status_code, sent.json()["kind"], sent.json()["status"]) == (202, "webhook.test", "waiting")
    assert json.loads(sent.json()["payload"])["type"] == "webhook.test"
    log = call("GET", f"/api/v1/webhook-deliveries/?webhook={body['id']}").json()["results"]
    assert [row["id"] for row in log] == [sent.json()["id"]]
    Delivery.objects.update(status="failed", next_try_at=None, attempts=8)
    again = call("POST", f"/api/v1/webhook-deliveries/{log[0]['id']}/redeliver/")
    assert (again.status_code, again.json()["status"], again.json()["attempts"]) == (202, "waiting", 0)
    assert again.json()["message_id"] == log[0]["message_id"]
    assert call("DELETE", place).status_code == 204
    assert call("GET", place).status_code == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://10.0.0.1/"}, {"url": ""}, {"url": 3}, {"kinds": ["no.such"]}, {"kinds": "task.*"},
        {"kinds": ["task.\0"]}, {"name": "x" * 101}, {"secret": "whsec_x"}, {"project": "other"},
    ],
)  # fmt: skip
def test_bad_input_is_refused_over_rest(call: Callable[..., Any], wrong: dict[str, Any]) -> None:
    projects.create(slug="other", name="Other")
    answer = call("POST", ROWS, {"project": "shop", "url": URL, **wrong})
    assert answer.status_code in (400, 404, 422), answer.content
    assert not Webhook.objects.exists()


def test_over_rest_too_only_admins_see_webhooks(call: Callable[..., Any], webhook: Webhook, log_in: LogIn) -> None:
    (delivery,) = said(webhook, **FAILED)
    row, sent = f"{ROWS}{webhook.pk}/", f"/api/v1/webhook-deliveries/{delivery.pk}/"
    for scopes in (("read",), ("read", "write", "execute")):
        for method, path in (
            ("GET", ROWS),
            ("GET", row),
            ("DELETE", row),
            ("GET", sent),
            ("POST", f"{sent}redeliver/"),
        ):
            assert call(method, path, scopes=scopes).status_code == 403
    member = log_in(webhook.project, name="mo")
    assert member.get(ROWS).json()["results"] == []
    assert [member.get(path).status_code for path in (row, sent)] == [404, 404]
    assert member.post(ROWS, {"project": "shop", "url": URL}, content_type=JSON).status_code == 403
    assert member.delete(row).status_code == 404
    stranger = log_in(projects.create(slug="other", name="Other"), name="sid", role="admin")
    assert stranger.get(ROWS).json()["results"] == []
    assert stranger.post(f"{row}ping/").status_code == 404
    assert call("GET", row, owner=None).status_code == 200
    assert log_in(name="root", is_superuser=True).get(row).status_code == 200


# --- admin -----------------------------------------------------------------------------------------------------------


def test_the_admin_lists_switches_and_sends_again_and_shows_no_secret(log_in: LogIn, webhook: Webhook) -> None:
    root = log_in(name="root", is_superuser=True, is_staff=True)
    (delivery,) = said(webhook, **FAILED)
    for model, row in (("webhook", webhook), ("delivery", delivery)):
        for path in (
            f"/admin/workflow/{model}/?q=task",
            f"/admin/workflow/{model}/",
            f"/admin/workflow/{model}/{row.pk}/change/",
        ):
            page = text_of(root.get(path))
            assert webhook.secret not in page and "s3cret" not in page
        assert root.get(f"/admin/workflow/{model}/add/").status_code == 403
    body = {"action": "send_again", "_selected_action": [delivery.pk]}
    assert "will be sent again" in text_of(root.post("/admin/workflow/delivery/", body, follow=True))
    body = {"action": "switch_off", "_selected_action": [webhook.pk]}
    assert "switched off" in text_of(root.post("/admin/workflow/webhook/", body, follow=True))
    webhook.refresh_from_db()
    assert not webhook.active
    assert "Switch it on first" in text_of(
        root.post("/admin/workflow/delivery/", {"action": "send_again", "_selected_action": [delivery.pk]}, follow=True)
    )


def test_the_number_of_queries_of_the_admin_lists_does_not_grow(log_in: LogIn, webhook: Webhook) -> None:
    root = log_in(name="root", is_superuser=True, is_staff=True)

    def queries(model: str) -> int:
        with CaptureQueriesContext(connection) as seen:
            assert root.get(f"/admin/workflow/{model}/").status_code == 200
        return len(seen)

    said(webhook, 2, **FAILED)
    few = [queries(model) for model in ("webhook", "delivery")]
    for number in range(5):
        other = projects.create(slug=f"p{number}", name="p")
        made, _ = webhooks.create(project_id=other.pk, url=URL, actor=SYSTEM)
        said(made, 5, **FAILED)
    assert [queries(model) for model in ("webhook", "delivery")] == few
