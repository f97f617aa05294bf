from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from devflow import ports
from devflow.actors import SYSTEM, Actor
from devflow.errors import ErrorCode
from devflow.ports import CallSeen
from workflow.models import OBSERVATIONS, Agent, Event, Message, Project, Status
from workflow.selectors import agents as agent_selectors
from workflow.services import agents, claims, coherence

from .scenes import fresh, joined, later, made, refused, status_of

pytestmark = pytest.mark.django_db


def call(by: Actor, number: int = 0, *, tool: str = "search_knowledge", ok: bool = True, in_scope: bool = True) -> None:
    assert by.agent_id is not None
    seen = CallSeen(timezone.now(), by.session, tool, f"hash{number}", ok, in_scope)
    ports.directory().record_calls(by.agent_id, [seen])


def row(by: Actor) -> Agent:
    assert by.agent_id is not None
    return Agent.objects.get(pk=by.agent_id)


def test_an_agent_is_registered_once_and_known_in_one_query(project: Project, django_assert_num_queries: Any) -> None:
    first = ports.directory().contact(project.pk, "ada", session="s", client="claude", transport="sse")
    with django_assert_num_queries(1):
        again = ports.directory().contact(project.pk, "ada", session="s", client="claude", transport="sse")
    assert first == again
    assert Event.objects.filter(kind="agent.joined").count() == 1


def test_a_call_is_a_heartbeat_in_two_statements(project: Project, ada: Actor, django_assert_num_queries: Any) -> None:
    with later(minutes=3) as now, django_assert_num_queries(2):
        call(ada, tool="claim_task", ok=False)
    assert (row(ada).last_seen, row(ada).last_action) == (now, "claim task (failed)")


def test_only_the_last_twenty_calls_are_kept(project: Project, ada: Actor) -> None:
    for number in range(30):
        call(ada, number)
    kept = row(ada).observations
    assert [item[0] for item in kept] == [f"hash{number}" for number in range(30 - OBSERVATIONS, 30)]


def test_every_call_of_the_holder_renews_its_lease_but_not_within_thirty_seconds(
    project: Project, ada: Actor, django_assert_num_queries: Any
) -> None:
    task = made(project, ada)
    claims.claim(project_id=project.pk, phase_number=2, actor=ada)
    expires = fresh(task).lease_expires_at
    with later(seconds=29), django_assert_num_queries(2):
        call(ada)
    assert fresh(task).lease_expires_at == expires
    with later(minutes=20) as now:
        call(ada)
        assert fresh(task).lease_expires_at == now + timedelta(minutes=30)
    with later(minutes=49):
        assert claims.sweep_expired_leases() == 0


def test_another_sessions_call_renews_nothing_and_an_expired_lease_stays_expired(project: Project, ada: Actor) -> None:
    task = made(project, ada)
    claims.claim(project_id=project.pk, phase_number=2, actor=ada)
    expires = fresh(task).lease_expires_at
    with later(minutes=20):
        call(joined(project, "ada", session="s2"))
    with later(minutes=31):
        call(ada)
        agents.heartbeat(agent_id=ada.agent_id or 0, session="s1")
    assert fresh(task).lease_expires_at == expires


def test_a_call_for_an_agent_that_is_gone_is_ignored(project: Project) -> None:
    ports.directory().record_calls(999, [CallSeen(timezone.now(), "", "x", "", True, True)])


def test_presence_follows_the_lease_and_the_last_call(project: Project, ada: Actor, ben: Actor) -> None:
    made(project, ada)
    claims.claim(project_id=project.pk, phase_number=2, actor=ada)
    seen = {state.agent.name: state.status for state in agent_selectors.states(project_id=project.pk)}
    assert seen == {"ada": "working", "ben": "idle"}
    for ahead, status in ((timedelta(minutes=6), "stale"), (timedelta(minutes=61), "offline")):
        with later(seconds=ahead.total_seconds()):
            states = {state.agent.name: state.status for state in agent_selectors.states(project_id=project.pk)}
            assert states["ben"] == status


def test_coherence_is_null_below_five_calls_and_full_for_steady_work(project: Project, ada: Actor) -> None:
    for number in range(4):
        call(ada, number)
    assert agent_selectors.state(row(ada)).coherence.score is None
    call(ada, 4, tool="add_task_note")
    measured = agent_selectors.state(row(ada)).coherence
    assert measured.score == pytest.approx(1.0, abs=0.01)
    assert set(measured.signals) == {"liveness", "progress", "non_repetition", "success", "scope"}


def test_repetition_errors_and_straying_lower_the_score_by_their_weights(project: Project, ada: Actor) -> None:
    for _ in range(10):
        call(ada, 7, ok=False, in_scope=False)
    measured = agent_selectors.state(row(ada)).coherence
    assert measured.signals["non_repetition"] == 0.1
    assert (measured.signals["success"], measured.signals["scope"]) == (0, 0)
    assert measured.score == pytest.approx(0.25 + 0.25 + 0.20 * 0.1, abs=0.01)


def test_silence_lets_liveness_and_progress_fall_to_zero_at_the_lease(project: Project, ada: Actor) -> None:
    made(project, ada)
    for number in range(5):
        call(ada, number, tool="add_task_note")
    claims.claim(project_id=project.pk, phase_number=2, actor=ada)
    with later(minutes=15):
        half = agent_selectors.state(row(ada)).coherence
        assert half.signals["liveness"] == pytest.approx(0.5, abs=0.01)
        assert half.signals["progress"] == pytest.approx(0.5, abs=0.01)


def test_the_guardian_writes_once_in_five_minutes_quoting_the_done_definitions(
    project: Project, ada: Actor, ben: Actor
) -> None:
    made(project, ada)
    claims.claim(project_id=project.pk, phase_number=2, actor=ada)
    for _ in range(10):
        call(ada, ok=False)
        call(ben, ok=False)
    assert coherence.guard() == 1
    assert coherence.guard() == 0
    message = Message.objects.get()
    assert (message.kind, message.recipient_id, message.sender_name) == ("guardian", ada.agent_id, "guardian")
    assert "Tests cover the happy path" in message.body
    with later(minutes=5, seconds=1):
        assert coherence.guard() == 1


def test_a_coherent_agent_is_left_alone(project: Project, ada: Actor) -> None:
    made(project, ada)
    claims.claim(project_id=project.pk, phase_number=2, actor=ada)
    for number in range(6):
        call(ada, number, tool="add_task_note")
    assert coherence.guard() == 0


def test_status_takes_two_queries_for_any_number_of_agents(project: Project, django_assert_num_queries: Any) -> None:
    for number in range(12):
        agent = joined(project, f"a{number}")
        made(project, agent)
        claims.claim(project_id=project.pk, phase_number=2, actor=agent)
    with django_assert_num_queries(2):
        states = agent_selectors.states(project_id=project.pk)
        assert {state.phase_number for state in states} == {2}
        assert all(state.task for state in states)


def test_a_retired_agent_loses_its_tasks_and_returns_with_its_next_call(
    project: Project, other: Project, ada: Actor
) -> None:
    task = made(project, ada)
    claims.claim(project_id=project.pk, phase_number=2, actor=ada)
    with refused(ErrorCode.NOT_FOUND):
        agents.retire(project_id=other.pk, agent_id=ada.agent_id or 0, actor=SYSTEM)
    for _ in range(2):
        agents.retire(project_id=project.pk, agent_id=ada.agent_id or 0, actor=SYSTEM)
    assert status_of(task) == Status.READY
    assert agent_selectors.states(project_id=project.pk) == []
    joined(project, "ada")
    assert [state.agent.name for state in agent_selectors.states(project_id=project.pk)] == ["ada"]
