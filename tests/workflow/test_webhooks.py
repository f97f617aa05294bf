"""Webhooks: who is told of what, how it is signed, and what a receiver that fails leads to. The receiver is real."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from devflow import config, outside, sealing
from devflow.actors import SYSTEM, Actor
from devflow.config import PROJECT_ROOT
from devflow.errors import ErrorCode
from devflow.outside import OutsideError
from tests.fakes.receiver import Receiver, Reply
from workflow.models import KINDS, Delivery, Event, Project, Webhook
from workflow.services import deliveries, sending, tasks, transitions, webhooks

from .scenes import made, refused

# On PostgreSQL events are read once their transaction has committed.
pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    def configure(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"DEVFLOW_WEBHOOKS_{name.upper()}", str(value))
        config.current.cache_clear()

    yield configure
    monkeypatch.undo()
    config.current.cache_clear()


@pytest.fixture
def receiver(configure: Callable[..., None]) -> Iterator[Receiver]:
    configure(allowed_hosts="127.0.0.1")
    with Receiver() as receiver:
        yield receiver


def hooked(project: Project, receiver: Receiver, **more: Any) -> tuple[Webhook, str]:
    return webhooks.create(project_id=project.pk, url=receiver.url, actor=SYSTEM, **more)


def work() -> None:
    """What the jobs do, until nothing is due."""
    deliveries.collect()
    while webhook := sending.claim():
        sending.send(webhook, stop=lambda: False)


def later(after: timedelta) -> Any:
    return time_machine.travel(datetime.now(UTC) + after, tick=True)


def only(webhook: Webhook) -> Delivery:
    return Delivery.objects.get(webhook=webhook)


# --- what is told ----------------------------------------------------------------------------------------------------


def test_a_change_is_told_signed_with_who_did_what(project: Project, ada: Actor, receiver: Receiver) -> None:
    webhook, secret = hooked(project, receiver)
    task = made(project, ada, "Ship it\n\nsoon")
    work()
    (message,) = receiver.received
    assert message.path == "/hook"
    assert message.is_signed_with(secret)
    assert not message.is_signed_with(webhooks.new_secret())
    assert message.headers["content-type"] == "application/json"
    assert message.headers["user-agent"].startswith("DevFlow/")
    assert abs(int(message.headers["webhook-timestamp"]) - timezone.now().timestamp()) < 60
    event = Event.objects.get(kind="task.created")
    body = message.json
    assert body["type"] == "task.created"
    assert datetime.fromisoformat(body["timestamp"]) == event.at
    data = body["data"]
    assert (data["sequence"], data["project"]["slug"]) == (event.pk, "shop")
    assert (data["actor"], data["tool"]) == ({"kind": "agent", "name": "ada"}, "test")
    assert (data["task"]["id"], data["task"]["subject"]) == (task.public_id, "Ship it")
    delivery = only(webhook)
    assert (delivery.status, delivery.attempts, delivery.response_status) == ("delivered", 1, 204)
    assert (delivery.message_id, delivery.next_try_at, delivery.error) == (message.id, None, "")
    assert delivery.signature == message.headers["webhook-signature"]


def test_a_webhook_hears_what_happens_after_it_was_added_in_order_and_once(
    project: Project, other: Project, ada: Actor, receiver: Receiver
) -> None:
    made(project, ada, "before")
    hooked(project, receiver)
    for number in range(5):
        made(project, ada, f"number {number}")
    made(other, SYSTEM, "elsewhere")
    work()
    work()
    subjects = [message.json["data"]["task"]["subject"] for message in receiver.received]
    assert subjects == [f"number {number}" for number in range(5)]
    assert len({message.id for message in receiver.received}) == 5


@pytest.mark.parametrize(
    ("kinds", "heard"),
    [
        ([], ["task.created", "task.noted", "project.changed"]),
        (["task.*"], ["task.created", "task.noted"]),
        (["task.noted", "project.*"], ["task.noted", "project.changed"]),
        (["agent.joined"], []),
    ],
)
def test_only_the_kinds_that_were_asked_for_are_told(
    project: Project, ada: Actor, receiver: Receiver, kinds: list[str], heard: list[str]
) -> None:
    from workflow.services import projects

    hooked(project, receiver, kinds=kinds)
    task = made(project, ada)
    tasks.add_note(project_id=project.pk, task_id=task.pk, body="n", actor=ada)
    projects.configure(project_id=project.pk, actor=SYSTEM, name="Shop 2")
    work()
    assert receiver.kinds == heard


def test_an_event_is_owed_once_even_if_two_collect(project: Project, ada: Actor, receiver: Receiver) -> None:
    webhook, _ = hooked(project, receiver)
    stale = Webhook.objects.select_related("project").get(pk=webhook.pk)
    made(project, ada)
    assert deliveries.collect() == 1
    assert deliveries._collect(stale) == 0
    assert deliveries.collect() == 0
    assert Delivery.objects.count() == 1


def test_more_events_than_fit_one_batch_are_all_told(
    project: Project, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "BATCH", 3)
    hooked(project, receiver)
    for number in range(10):
        made(project, SYSTEM, f"number {number}")
    work()
    assert len(receiver.received) == 10


def test_a_huge_change_is_told_without_what_was_before_and_after(
    project: Project, ada: Actor, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "MOST_PAYLOAD", 2_000)
    hooked(project, receiver)
    task = made(project, ada)
    tasks.edit(project_id=project.pk, task_id=task.pk, actor=ada, description="long " * 1000)
    work()
    data = receiver.received[-1].json["data"]
    assert (data["is_shortened"], data["before"], data["after"]) == (True, {}, {})
    assert data["task"]["id"] == task.public_id


def test_the_public_address_makes_a_link_to_the_task(
    project: Project, ada: Actor, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEVFLOW_PUBLIC_URL", "https://devflow.example.org/")
    config.current.cache_clear()
    hooked(project, receiver)
    task = made(project, ada)
    work()
    assert receiver.received[0].json["data"]["task"]["url"] == f"https://devflow.example.org/tasks/{task.pk}/"


def test_every_kind_of_event_that_services_log_can_be_asked_for() -> None:
    subjects = "task|agent|message|gate|phase|project|webhook|sprint|epic|story|issue"
    logged: set[str] = set()
    for path in (PROJECT_ROOT / "workflow" / "services").rglob("*.py"):
        logged |= set(re.findall(rf'"((?:{subjects})\.[a-z_]+)"', path.read_text()))
    logged -= {deliveries.TEST, "webhook.delivery", "project.slug"}
    assert logged - set(KINDS) == set(), "add them to workflow.models.webhooks.KINDS, and to docs/webhooks.md"
    page = (PROJECT_ROOT / "docs" / "webhooks.md").read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []


# --- receivers that fail ---------------------------------------------------------------------------------------------


def test_a_failed_message_is_tried_again_later_and_later_with_the_same_id_and_body(
    project: Project, ada: Actor, receiver: Receiver
) -> None:
    webhook, secret = hooked(project, receiver)
    receiver.mood = Reply(500, {"Content-Type": "text/plain"}, b"out of order")
    made(project, ada)
    work()
    waits = []
    for _ in range(sending.TRIES - 1):
        delivery = only(webhook)
        assert delivery.next_try_at is not None and delivery.tried_at is not None
        assert (delivery.status, delivery.response_status) == ("waiting", 500)
        assert (delivery.response_body, delivery.response_type) == ("out of order", "text/plain")
        waits.append((delivery.next_try_at - delivery.tried_at).total_seconds())
        with later(delivery.next_try_at - timezone.now() + timedelta(seconds=1)):
            work()
    assert len(receiver.received) == sending.TRIES
    assert len({(message.id, message.body) for message in receiver.received}) == 1
    assert len({message.headers["webhook-timestamp"] for message in receiver.received}) == sending.TRIES
    assert all(message.is_signed_with(secret) for message in receiver.received)
    for number, wait in enumerate(waits):
        assert 5 * 5**number <= wait <= 5 * 5**number * 1.25 + 5
    assert timedelta(days=1) < timedelta(seconds=sum(waits)) < timedelta(days=1.5)
    delivery = only(webhook)
    assert (delivery.status, delivery.next_try_at, delivery.attempts) == ("failed", None, sending.TRIES)


def test_a_message_that_is_taken_at_last_ends_the_count_of_failures(
    project: Project, ada: Actor, receiver: Receiver
) -> None:
    webhook, _ = hooked(project, receiver)
    receiver.script(Reply(503), Reply(503))
    made(project, ada)
    work()
    webhook.refresh_from_db()
    assert (webhook.failures, webhook.failing_since is not None) == (1, True)
    for minutes in (1, 2):
        with later(timedelta(minutes=minutes)):
            work()
    webhook.refresh_from_db()
    assert (webhook.failures, webhook.failing_since, webhook.rests_until) == (0, None, None)
    assert (only(webhook).status, only(webhook).attempts) == ("delivered", 3)


def test_a_webhook_that_fails_rests_with_all_its_messages_and_others_go_on(
    project: Project, other: Project, ada: Actor, receiver: Receiver
) -> None:
    failing, _ = hooked(project, receiver)
    with Receiver() as well:
        hooked(other, well)
        receiver.mood = Reply(500)
        for number in range(5):
            made(project, ada, f"a{number}")
            made(other, SYSTEM, f"b{number}")
        work()
        assert (len(receiver.received), len(well.received)) == (1, 5)
    receiver.mood = Reply()
    with later(timedelta(seconds=10)):
        work()
    assert len(receiver.received) == 6
    assert not Delivery.objects.filter(webhook=failing).exclude(status="delivered").exists()


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("written", ["seconds", "date"])
def test_a_time_to_wait_that_a_receiver_names_is_heeded(
    project: Project, ada: Actor, receiver: Receiver, status: int, written: str
) -> None:
    webhook, _ = hooked(project, receiver)
    value = "7200" if written == "seconds" else format_datetime(datetime.now(UTC) + 2 * HOUR, usegmt=True)
    receiver.script(Reply(status, {"Retry-After": value}))
    made(project, ada)
    work()
    made(project, ada, "another")
    with later(timedelta(minutes=110)):
        work()
        assert len(receiver.received) == 1
    with later(timedelta(minutes=125)):
        work()
    assert len(receiver.received) == 3
    assert Delivery.objects.filter(webhook=webhook, status="delivered").count() == 2


@pytest.mark.parametrize("value", ["999999999", "soon", "-1", "0", "Wed, 99 Xyz 2020"])
def test_an_odd_time_to_wait_is_bounded_or_left_alone(
    project: Project, ada: Actor, receiver: Receiver, value: str
) -> None:
    webhook, _ = hooked(project, receiver)
    receiver.script(Reply(429, {"Retry-After": value}))
    made(project, ada)
    work()
    delivery = only(webhook)
    assert delivery.next_try_at is not None
    assert timedelta(seconds=4) < delivery.next_try_at - timezone.now() <= timedelta(days=1)


def test_410_switches_the_webhook_off_at_once_with_the_reason(project: Project, ada: Actor, receiver: Receiver) -> None:
    webhook, _ = hooked(project, receiver)
    receiver.mood = Reply(410)
    made(project, ada, "one")
    made(project, ada, "two")
    work()
    webhook.refresh_from_db()
    assert (webhook.active, len(receiver.received)) == (False, 1)
    assert "410" in webhook.disabled_reason
    assert list(webhook.deliveries.values_list("status", flat=True)) == ["failed", "failed"]
    event = Event.objects.get(kind="webhook.disabled")
    assert (event.actor_kind, event.after["reason"]) == ("system", webhook.disabled_reason)
    made(project, ada, "three")
    work()
    assert len(receiver.received) == 1


def test_a_webhook_that_took_nothing_for_a_day_is_switched_off(
    project: Project, ada: Actor, receiver: Receiver
) -> None:
    webhook, _ = hooked(project, receiver)
    receiver.mood = Reply(500)
    made(project, ada)
    work()
    for _ in range(sending.TRIES - 1):
        webhook.refresh_from_db()
        assert webhook.active
        due = only(webhook).next_try_at
        assert due is not None
        with later(due - timezone.now() + timedelta(seconds=1)):
            work()
    webhook.refresh_from_db()
    assert not webhook.active
    assert "took nothing since" in webhook.disabled_reason and "answered 500" in webhook.disabled_reason


def test_a_message_that_fails_for_good_leaves_a_webhook_on_that_takes_others(
    project: Project, ada: Actor, receiver: Receiver
) -> None:
    webhook, _ = hooked(project, receiver)
    receiver.mood = Reply(422)
    made(project, ada)
    work()
    Delivery.objects.update(attempts=sending.TRIES - 1, next_try_at=timezone.now())
    Webhook.objects.update(failing_since=timezone.now() - HOUR, rests_until=None)
    work()
    webhook.refresh_from_db()
    assert (webhook.active, only(webhook).status) == (True, "failed")


def test_a_redirect_is_not_followed(project: Project, ada: Actor, receiver: Receiver) -> None:
    webhook, _ = hooked(project, receiver)
    receiver.mood = Reply(302, {"Location": receiver.url + "/elsewhere"})
    made(project, ada)
    work()
    assert [message.path for message in receiver.received] == ["/hook"]
    assert "redirects are not followed" in only(webhook).error


def test_a_receiver_that_says_nothing_is_left_in_time(
    project: Project, ada: Actor, receiver: Receiver, configure: Callable[..., None]
) -> None:
    configure(timeout_seconds="0.3")
    webhook, _ = hooked(project, receiver)
    receiver.mood = Reply(hangs=True)
    made(project, ada)
    began = timezone.now()
    work()
    assert timezone.now() - began < timedelta(seconds=5)
    delivery = only(webhook)
    assert (delivery.status, delivery.response_status) == ("waiting", None)
    assert "did not answer within 0.3 seconds" in delivery.error


def test_a_receiver_that_is_away_is_tried_again(project: Project, ada: Actor, receiver: Receiver) -> None:
    with Receiver() as gone:
        webhook, _ = webhooks.create(project_id=project.pk, url=gone.url, actor=SYSTEM)
    made(project, ada)
    work()
    assert "connection failed" in only(webhook).error
    assert only(webhook).status == "waiting"


def test_only_the_start_of_an_answer_is_read_and_kept(project: Project, ada: Actor, receiver: Receiver) -> None:
    webhook, _ = hooked(project, receiver)
    receiver.mood = Reply(200, {"Content-Type": "text/plain"}, b"\0\xff" + b"x" * 5_000_000)
    made(project, ada)
    work()
    delivery = only(webhook)
    assert delivery.status == "delivered"
    assert len(delivery.response_body) == sending.MOST_SHOWN
    assert delivery.response_body.startswith("\ufffd\ufffdxxx")


def test_a_webhook_is_in_one_hand_at_a_time(project: Project, ada: Actor, receiver: Receiver) -> None:
    hooked(project, receiver)
    made(project, ada)
    deliveries.collect()
    first = sending.claim()
    assert first is not None
    assert sending.claim() is None
    with later(timedelta(minutes=1)):  # a process that was killed
        second = sending.claim()
        assert second is not None
        sending.send(first, stop=lambda: False)
        assert receiver.received == []
        sending.send(second, stop=lambda: False)
    assert len(receiver.received) == 1


# --- addresses -------------------------------------------------------------------------------------------------------

PRIVATE = (
    *("http://127.0.0.1/", "http://localhost:8000/", "http://api.localhost/", "http://10.0.0.1/", "http://[::1]/"),
    *("http://169.254.169.254/latest/meta-data/", "http://192.168.1.1/", "http://2130706433/", "http://0x7f.1/"),
    *("http://[::ffff:127.0.0.1]/", "http://[fd00:ec2::254]/", "http://0.0.0.0/", "http://100.64.0.1/"),
)


@pytest.mark.parametrize(
    "url", [*PRIVATE, "ftp://example.com/", "http://a:b@example.com/", "example.com", "", "x" * 3000]
)
def test_an_address_that_is_not_public_is_refused_at_the_door(project: Project, url: str) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        webhooks.create(project_id=project.pk, url=url, actor=SYSTEM)
    webhook, _ = webhooks.create(project_id=project.pk, url="https://example.com/hook", actor=SYSTEM)
    with refused(ErrorCode.INVALID_INPUT):
        webhooks.change(webhook_id=webhook.pk, url=url, actor=SYSTEM)


def test_an_address_is_checked_again_when_it_is_sent_to(
    project: Project, ada: Actor, receiver: Receiver, configure: Callable[..., None]
) -> None:
    webhook, _ = hooked(project, receiver)
    configure(allowed_hosts="")
    made(project, ada)
    work()
    assert receiver.received == []
    assert "not a public address" in only(webhook).error


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "fd00::1", "100.64.0.1"])
def test_a_name_that_leads_to_a_private_address_is_refused_when_it_is_sent_to(receiver: Receiver, address: str) -> None:
    with pytest.raises(OutsideError, match="not at a public address"):
        outside.post_guarded(
            f"http://innocent.example:{receiver.port}/",
            body=b"{}",
            headers={},
            seconds=2,
            most_bytes=10,
            may_be_private=lambda host, port: False,
            resolve=lambda host, port: ["93.184.216.34", address],
        )
    assert receiver.received == []


@pytest.mark.parametrize(
    ("allowed", "reached"),
    [("127.0.0.1", True), ("other,127.0.0.1:{port}", True), ("127.0.0.1:1", False), ("localhost", False)],
)
def test_hosts_that_the_server_names_may_be_private(
    project: Project, receiver: Receiver, configure: Callable[..., None], allowed: str, reached: bool
) -> None:
    configure(allowed_hosts=allowed.format(port=receiver.port))
    if reached:
        assert hooked(project, receiver)[0].url == receiver.url
    else:
        with refused(ErrorCode.INVALID_INPUT):
            hooked(project, receiver)


def test_link_local_addresses_stay_refused_whatever_is_allowed(
    project: Project, configure: Callable[..., None]
) -> None:
    configure(allowed_hosts="169.254.169.254")
    with refused(ErrorCode.INVALID_INPUT):
        webhooks.create(project_id=project.pk, url="http://169.254.169.254/", actor=SYSTEM)


# --- what people do --------------------------------------------------------------------------------------------------


def test_the_secret_is_shown_once_and_kept_sealed(project: Project, receiver: Receiver) -> None:
    webhook, secret = hooked(project, receiver)
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret)
    webhook.refresh_from_db()
    assert secret[6:] not in webhook.secret
    assert sealing.unseal(webhook.secret, purpose=webhooks.PURPOSE) == secret
    with pytest.raises(sealing.SealError):
        sealing.unseal(webhook.secret, purpose="another")


def test_for_a_day_after_a_new_secret_messages_are_signed_with_both(
    project: Project, ada: Actor, receiver: Receiver
) -> None:
    webhook, old = hooked(project, receiver)
    _, new = webhooks.rotate(webhook_id=webhook.pk, actor=SYSTEM)
    made(project, ada)
    work()
    assert all(message.is_signed_with(old) and message.is_signed_with(new) for message in receiver.received)
    count = len(receiver.received)
    with later(25 * HOUR):
        made(project, ada, "a day later")
        work()
    assert receiver.received[count].is_signed_with(new)
    assert not receiver.received[count].is_signed_with(old)
    with later(26 * HOUR):
        deliveries.prune()
    webhook.refresh_from_db()
    assert webhook.old_secret == ""


def test_a_secret_stored_with_another_secret_key_switches_the_webhook_off_in_words(
    project: Project, ada: Actor, receiver: Receiver, settings: Any
) -> None:
    webhook, _ = hooked(project, receiver)
    made(project, ada)
    before, settings.SECRET_KEY = settings.SECRET_KEY, "x" * 50
    work()
    webhook.refresh_from_db()
    assert not webhook.active and "Make a new secret" in webhook.disabled_reason
    settings.SECRET_KEY_FALLBACKS = [before]
    webhooks.change(webhook_id=webhook.pk, active=True, actor=SYSTEM)
    made(project, ada, "again")
    work()
    assert len(receiver.received) == 1


def test_a_test_message_is_sent_whatever_the_webhook_listens_to(project: Project, receiver: Receiver) -> None:
    webhook, secret = hooked(project, receiver, kinds=["phase.created"])
    Webhook.objects.update(rests_until=timezone.now() + HOUR)
    delivery = webhooks.ping(webhook_id=webhook.pk)
    work()
    (message,) = receiver.received
    assert (message.json["type"], message.id) == ("webhook.test", delivery.message_id)
    assert message.is_signed_with(secret)


def test_a_message_can_be_sent_again_with_its_old_id(project: Project, ada: Actor, receiver: Receiver) -> None:
    webhook, _ = hooked(project, receiver)
    made(project, ada)
    work()
    webhooks.send_again(delivery_id=only(webhook).pk)
    webhooks.send_again(delivery_id=only(webhook).pk)
    work()
    first, second = receiver.received
    assert (first.id, first.body) == (second.id, second.body)
    assert (only(webhook).status, only(webhook).attempts) == ("delivered", 1)


def test_a_webhook_that_is_off_sends_nothing_and_hears_nothing_of_that_time(
    project: Project, ada: Actor, receiver: Receiver
) -> None:
    webhook, _ = hooked(project, receiver)
    made(project, ada, "waits")
    deliveries.collect()
    webhooks.change(webhook_id=webhook.pk, active=False, actor=SYSTEM)
    assert (only(webhook).status, only(webhook).error) == ("failed", webhooks.SWITCHED_OFF)
    made(project, ada, "meanwhile")
    work()
    for act in (
        lambda: webhooks.ping(webhook_id=webhook.pk),
        lambda: webhooks.send_again(delivery_id=only(webhook).pk),
    ):
        with refused(ErrorCode.CONFLICT):
            act()
    webhooks.change(webhook_id=webhook.pk, active=True, actor=SYSTEM)
    made(project, ada, "after")
    webhooks.send_again(delivery_id=Delivery.objects.order_by("pk")[0].pk)
    work()
    subjects = sorted(message.json["data"]["task"]["subject"] for message in receiver.received)
    assert subjects == ["after", "waits"]


def test_what_is_done_to_webhooks_is_logged_without_the_path_of_their_address(
    project: Project, configure: Callable[..., None]
) -> None:
    url = "https://hooks.example.com/T0/s3cret"
    webhook, _ = webhooks.create(project_id=project.pk, url=url, actor=SYSTEM, name="chat", kinds=["task.done"])
    webhooks.change(webhook_id=webhook.pk, actor=SYSTEM, url="https://hooks.example.org/s3cret", kinds=["task.*"])
    webhooks.change(webhook_id=webhook.pk, actor=SYSTEM, kinds=["task.*"])
    webhooks.rotate(webhook_id=webhook.pk, actor=SYSTEM)
    webhooks.delete(webhook_id=webhook.pk, actor=SYSTEM)
    events = list(Event.objects.filter(kind__startswith="webhook.").order_by("pk"))
    assert [event.kind for event in events] == [
        *("webhook.created", "webhook.changed", "webhook.changed", "webhook.deleted"),
    ]
    assert (events[1].before["url"], events[1].after["url"]) == ("hooks.example.com", "hooks.example.org")
    assert (events[1].before["kinds"], events[1].after["kinds"]) == (["task.done"], ["task.*"])
    assert not any("s3cret" in str([event.before, event.after]) for event in events)
    assert not Webhook.objects.exists()


@pytest.mark.parametrize("kinds", [["task.flown"], ["*"], ["ship.*"], ["task."], ["task.done", "x"]])
def test_a_kind_of_event_that_does_not_exist_is_refused(project: Project, kinds: list[str]) -> None:
    with refused(ErrorCode.INVALID_INPUT) as found:
        webhooks.create(project_id=project.pk, url="https://example.com/", actor=SYSTEM, kinds=kinds)
    assert "There are:" in found.value.message


def test_a_project_has_a_bounded_number_of_webhooks(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MOST_WEBHOOKS", 2)
    for _ in range(2):
        webhooks.create(project_id=project.pk, url="https://example.com/", actor=SYSTEM)
    with refused(ErrorCode.CONFLICT):
        webhooks.create(project_id=project.pk, url="https://example.com/", actor=SYSTEM)


@pytest.mark.parametrize("act", [webhooks.rotate, webhooks.delete, webhooks.change])
def test_an_unknown_webhook_is_not_found(db: None, act: Callable[..., Any]) -> None:
    with refused(ErrorCode.NOT_FOUND):
        act(webhook_id=99, actor=SYSTEM)


def test_old_deliveries_are_deleted_and_waiting_ones_kept(
    project: Project, ada: Actor, receiver: Receiver, configure: Callable[..., None]
) -> None:
    configure(keep_days=3)
    hooked(project, receiver)
    for number in range(3):
        made(project, ada, f"n{number}")
    work()
    receiver.mood = Reply(500)
    made(project, ada, "waits")
    work()
    assert deliveries.prune() == 0
    with later(timedelta(days=4)):
        assert deliveries.prune() == 3
    assert list(Delivery.objects.values_list("status", flat=True)) == ["waiting"]


def test_jobs_bring_a_message_by_themselves(receiver: Receiver) -> None:
    from devflow import jobs
    from workflow.jobs import collect_webhooks
    from workflow.services import projects

    project = projects.create(slug="shop", name="Shop")
    with jobs.immediately():
        hooked(project, receiver)
        transitions.cancel(project_id=project.pk, task_id=made(project, SYSTEM).pk, actor=SYSTEM)
        collect_webhooks()
    assert receiver.kinds == ["task.created", "task.cancelled"]
