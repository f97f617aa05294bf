import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from devflow import ports
from devflow.actors import SYSTEM
from devflow.errors import ErrorCode
from devflow.ports import CallSeen, KeyScope
from mcpbridge.tooling import prompts, resources
from workflow.models import Membership, Phase, Project
from workflow.services import projects

from .scenes import caller_for, later, made, refused, run, tool_named
from .scenes import joined as join

pytestmark = pytest.mark.django_db

TASK_KEYS = {"id", "description", "phase_id", "priority", "created_by", "created_at"}


def test_the_documented_tools_have_exactly_their_parameters_and_defaults() -> None:
    documented: dict[str, dict[str, Any]] = {
        "create_task": {"description": ..., "phase_id": ..., "priority": "medium", "blocked_by": [], "tags": [],
                        "metadata": None},
        "update_task_status": {"task_id": ..., "status": ..., "result": None, "metadata": None},
        "claim_task": {"phase_id": ...},
        "get_my_task": {},
        "get_tasks": {"phase_id": None, "status": None, "tags": None},
        "get_phase_info": {"phase_id": ...},
        "get_kanban_board": {},
        "get_agent_status": {},
        "send_message_to_agent": {"agent_id": ..., "message": ...},
    }  # fmt: skip
    for name, parameters in documented.items():
        schema = tool_named(name).input_schema
        assert schema["additionalProperties"] is False
        required = {parameter for parameter, default in parameters.items() if default is ...}
        assert set(schema.get("required", [])) == required, name
        for parameter, default in parameters.items():
            assert default is ... or schema["properties"][parameter]["default"] == default, (name, parameter)


def test_two_agents_work_a_board_together(project: Project) -> None:
    ada, ben = caller_for(project, "ada"), caller_for(project, "ben")
    first = run("create_task", ada, description="Build it", phase_id=2, priority="high")
    assert (first["status"], first["kanban_column"]) == ("ready", "ready")
    second = run("create_task", ada, description="Check it", phase_id=3, blocked_by=[first["task_id"]])
    assert (second["status"], second["kanban_column"], second["blocked_by"]) == (
        "pending", "backlog", [first["task_id"]],
    )  # fmt: skip
    claimed = run("claim_task", ben, phase_id=2)
    assert claimed.keys() >= TASK_KEYS
    assert claimed["id"] == first["task_id"]
    assert claimed["lease_token"] and not claimed["resumed"] and len(claimed["done_definitions"]) == 3
    assert run("claim_task", caller_for(project, "ben"), phase_id=2)["resumed"]
    assert run("get_my_task", ben)["id"] == first["task_id"]
    sent = run("send_message_to_agent", ada, agent_id="ben", message="How is it going?")
    assert (sent["status"], sent["recipients"]) == ("delivered", ["ben"])
    (message,) = run("get_messages", ben)["messages"]
    assert (message["from"], message["message"]) == ("ada", "How is it going?")
    assert run("ack_message", ben, message_ids=[message["id"]]) == {"acknowledged": 1, "unread": 0}
    run("add_task_note", ben, task_id=first["task_id"], note="Nearly")
    done = run("update_task_status", ben, task_id=first["task_id"], status="done", result="Built")
    assert (done["status"], done["unblocked_tasks"]) == ("done", [second["task_id"]])
    assert done["completed_at"]
    assert run("get_my_task", ben)["task"] is None
    board = run("get_kanban_board", ada)
    assert [card["id"] for card in board["columns"]["ready"]] == [second["task_id"]]
    assert board["stats"]["total_tasks"] == 2 and board["stats"]["done"] == 1
    undone = run("undo_move", ben, task_id=first["task_id"])
    assert undone["status"] == "in_progress" and undone["lease_token"]
    assert run("get_tasks", ada, status="blocked")["tasks"][0]["blockers"][0]["task_id"] == first["task_id"]


def test_the_documents_own_example_creates_and_closes_a_task(project: Project) -> None:
    caller = caller_for(project)
    task_id = run("create_task", caller, description="Implement auth", phase_id=2)["task_id"]
    assert run("update_task_status", caller, task_id=task_id, status="done")["status"] == "done"


@pytest.mark.parametrize("form", ["task-{}", "{}"])
def test_a_task_id_is_taken_in_every_form(project: Project, form: str) -> None:
    caller = caller_for(project)
    task_id = run("create_task", caller, description="x", phase_id=2)["task_id"]
    number = task_id.removeprefix("task-")
    run("add_task_note", caller, task_id=form.format(number), note="a")
    assert run("add_task_note", caller, task_id=int(number), note="b")["task_id"] == task_id


def test_review_goes_through_another_agent(project: Project) -> None:
    projects.configure(project_id=project.pk, actor=SYSTEM, require_review=True)
    ada, ben = caller_for(project, "ada"), caller_for(project, "ben")
    task_id = run("create_task", ada, description="x", phase_id=2)["task_id"]
    run("claim_task", ada, phase_id=2)
    assert run("update_task_status", ada, task_id=task_id, status="done")["status"] == "review"
    with refused(ErrorCode.INVALID_INPUT):
        run("review_task", ben, task_id=task_id, decision="reject")
    run("review_task", ben, task_id=task_id, decision="reject", feedback="Add tests")
    again = run("claim_task", ada, phase_id=2)
    assert (again["id"], again["iteration"], again["notes"][-1]["note"]) == (task_id, 2, "Add tests")
    assert run("update_task_status", ada, task_id=task_id, status="done")["status"] == "review"
    assert run("review_task", ben, task_id=task_id, decision="approve")["status"] == "done"


def test_evidence_travels_with_the_status(project: Project) -> None:
    Phase.objects.filter(project=project, number=1).update(requires_evidence=True)
    caller = caller_for(project)
    task_id = run("create_task", caller, description="x", phase_id=1)["task_id"]
    assert len(run("claim_task", caller, phase_id=1)["missing_evidence"]) == 3
    with refused(ErrorCode.PRECONDITION_FAILED, "evidence"):
        run("update_task_status", caller, task_id=task_id, status="done")
    proofs = [{"definition": number, "content": "seen", "kind": "test_output"} for number in (1, 2, 3)]
    assert run("update_task_status", caller, task_id=task_id, status="done", evidence=proofs)["status"] == "done"
    with refused(ErrorCode.INVALID_INPUT):
        run("update_task_status", caller, task_id=task_id, status="done", evidence=[{"definition": 1, "text": "x"}])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("create_task", {"description": "", "phase_id": 2}),
        ("create_task", {"description": " \n", "phase_id": 2}),
        ("create_task", {"description": "x" * 100_001, "phase_id": 2}),
        ("create_task", {"description": "a\x00b", "phase_id": 2}),
        ("create_task", {"description": "x", "phase_id": "2"}),
        ("create_task", {"description": "x", "phase_id": 2, "priority": "urgent"}),
        ("create_task", {"description": "x", "phase_id": 2, "unknown": 1}),
        ("create_task", {"description": "x", "phase_id": 2, "tags": ["a,b"]}),
        ("create_task", {"description": "x", "phase_id": 2, "blocked_by": ["story-1"]}),
        ("update_task_status", {"task_id": "task-1", "status": "cancelled"}),
        ("update_task_status", {"task_id": "task-0", "status": "done"}),
        ("claim_task", {"phase_id": 0}),
        ("get_tasks", {"limit": 201}),
        ("get_tasks", {"status": "open"}),
        ("send_message_to_agent", {"agent_id": "ben", "message": "  "}),
    ],
)
def test_bad_arguments_are_refused_before_anything_happens(
    project: Project, name: str, arguments: dict[str, Any]
) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        run(name, caller_for(project), **arguments)
    assert not project.tasks.exists()


def test_100_000_characters_are_accepted(project: Project) -> None:
    run("create_task", caller_for(project), description="x" * 100_000, phase_id=2)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("update_task_status", {"status": "done"}),
        ("update_task_status", {"status": "in_progress"}),
        ("release_task", {}),
        ("add_task_note", {"note": "x"}),
        ("review_task", {"decision": "approve"}),
        ("undo_move", {}),
        ("set_gate", {"name": "mine"}),
        ("get_gates", {}),
        ("send_message_to_agent", {"agent_id": "*", "message": "x"}),
    ],
)
def test_another_projects_task_answers_as_an_unknown_one(
    project: Project, other: Project, name: str, arguments: dict[str, Any]
) -> None:
    foreign = made(other, join(other, "zoe"))
    said = []
    for task_id in (foreign.public_id, "task-987654"):
        with refused(ErrorCode.NOT_FOUND) as caught:
            run(name, caller_for(project), task_id=task_id, **arguments)
        said.append((caught.value.message.replace(task_id, "X"), caught.value.suggestion))
    assert said[0] == said[1]


def test_a_viewers_key_reads_and_does_not_write(project: Project) -> None:
    mia = User.objects.create_user("mia")
    Membership.objects.create(user=mia, project=project, role="viewer")
    caller = caller_for(project, scope=KeyScope(key_id=1, user_id=mia.pk))
    assert run("get_tasks", caller)["total"] == 0
    with refused(ErrorCode.FORBIDDEN, "member"):
        run("create_task", caller, description="x", phase_id=2)


def test_set_project_is_remembered_for_the_agent_of_the_key(project: Project, other: Project) -> None:
    anywhere = KeyScope(key_id=5)
    assert run("set_project", caller_for(project, scope=anywhere), project="other") == {
        "project": "other",
        "name": "Other",
    }
    run("create_task", caller_for(project, scope=anywhere), description="x", phase_id=1)
    assert (project.tasks.count(), other.tasks.count()) == (0, 1)
    with refused(ErrorCode.NOT_FOUND):
        run("set_project", caller_for(project, scope=anywhere), project="nowhere")


def test_tasks_are_listed_in_pages_with_an_exact_total(project: Project) -> None:
    caller = caller_for(project)
    for number in range(3):
        run("create_task", caller, description=f"t{number}", phase_id=2, tags=["x"])
    page = run("get_tasks", caller, tags=["x"], limit=2)
    assert ([task["subject"] for task in page["tasks"]], page["total"], page["truncated"]) == (["t0", "t1"], 3, True)
    assert [task["subject"] for task in run("get_tasks", caller, limit=2, offset=2)["tasks"]] == ["t2"]
    with refused(ErrorCode.NOT_FOUND):
        run("get_tasks", caller, phase_id=9)


def test_reading_tools_take_the_same_queries_for_few_and_many_rows(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    caller = caller_for(project)
    previous: list[str] = []
    for number in range(25):
        agent = caller_for(project, f"a{number}")
        previous = [run("create_task", agent, description="x", phase_id=2, blocked_by=previous[:1])["task_id"]]
        run("create_task", agent, description="x", phase_id=1)
        run("claim_task", agent, phase_id=1)
        run("set_gate", agent, name=f"g{number}", phase_id=1)
        run("send_message_to_agent", agent, agent_id="a0", message="x")
    reader = caller_for(project, "a0")
    assert (reader.agent.name, caller.project.slug) == ("a0", "shop")
    for name, most in (
        ("get_tasks", 3),
        ("get_kanban_board", 8),
        ("get_agent_status", 2),
        ("get_messages", 2),
        ("get_gates", 2),
        ("get_phase_info", 3),
        ("get_my_task", 6),  # one asks whether the project has memories
    ):
        with django_assert_max_num_queries(most):
            run(name, reader, **({"phase_id": 2} if name == "get_phase_info" else {}))


def test_agent_status_names_task_phase_and_score(project: Project) -> None:
    ada = caller_for(project)
    run("create_task", ada, description="x", phase_id=2)
    task_id = run("claim_task", ada, phase_id=2)["id"]
    calls = [CallSeen(timezone.now(), "s1", "get_tasks", str(number), True, True) for number in range(5)]
    ports.directory().record_calls(ada.agent.id, calls)
    answer = run("get_agent_status", caller_for(project, "ben"))
    (state,) = [agent for agent in answer["agents"] if agent["id"] == "ada"]
    assert (state["task_id"], state["phase_id"], state["status"]) == (task_id, 2, "working")
    assert 0.9 < state["coherence_score"] <= 1
    assert state["last_action"] == "get tasks"
    assert "liveness 0.25" in answer["coherence_method"]


def test_a_heartbeat_renews_and_lists_the_leases(project: Project) -> None:
    ada = caller_for(project)
    run("create_task", ada, description="x", phase_id=2)
    claimed = run("claim_task", ada, phase_id=2)
    with later(minutes=10):
        (lease,) = run("heartbeat", ada)["leases"]
    assert lease["task_id"] == claimed["id"]
    assert lease["lease_expires_at"] > claimed["lease_expires_at"]


def test_a_released_task_carries_the_hand_over(project: Project) -> None:
    ada, ben = caller_for(project), caller_for(project, "ben")
    run("create_task", ada, description="x", phase_id=2)
    task_id = run("claim_task", ada, phase_id=2)["id"]
    assert run("release_task", ada, task_id=task_id, reason="Half done")["status"] == "ready"
    assert run("claim_task", ben, phase_id=2)["notes"][0] | {"created_at": ""} == {
        "kind": "handover", "author": "ada", "note": "Half done", "created_at": "",
    }  # fmt: skip


def test_writes_away_from_ones_own_task_and_phase_are_noted_as_out_of_scope(project: Project) -> None:
    ada = caller_for(project)
    foreign = made(project, join(project, "ben"), phase=3)
    run("create_task", ada, description="x", phase_id=2)
    own = run("claim_task", ada, phase_id=2)["id"]
    for task_id, in_scope in ((own, True), (foreign.public_id, False)):
        caller = caller_for(project)
        run("add_task_note", caller, task_id=task_id, note="x")
        assert caller.facts.get("in_scope", True) is in_scope


def test_nothing_to_claim_is_an_answer_with_a_reason(project: Project) -> None:
    answer = run("claim_task", caller_for(project), phase_id=2)
    assert answer["task"] is None
    assert answer["reason"].startswith("none_ready")


def test_resources_read_the_board_a_task_and_a_phase_of_the_callers_project(project: Project, other: Project) -> None:
    caller = caller_for(project)
    task_id = run("create_task", caller, description="x", phase_id=2)["task_id"]
    assert json.loads(resources["board"].read(caller, "shop"))["stats"]["total_tasks"] == 1
    assert json.loads(resources["task"].read(caller, task_id))["subject"] == "x"
    assert json.loads(resources["phase"].read(caller, "2"))["name"] == "Implementation"
    foreign = made(other, join(other, "zoe"))
    for name, value in (("board", "other"), ("task", foreign.public_id), ("task", "x"), ("phase", "9"), ("phase", "x")):
        with refused(ErrorCode.NOT_FOUND):
            resources[name].read(caller, value)
    for name, listed in (("board", ("shop", "Board of Shop")), ("task", (task_id, "x")), ("phase", ("1", "Analysis"))):
        listing = resources[name].listing
        assert listing is not None
        assert listing(caller)[0] == listed


def test_prompts_speak_of_the_callers_project(project: Project) -> None:
    caller = caller_for(project)
    started = prompts["start_phase_work"].render(caller, phase="2")
    assert "claim_task(phase_id=2)" in started and "Tests cover the happy path" in started
    planned = prompts["plan_from_goal"].render(caller, goal="Fast login")
    assert "Fast login" in planned and "3. Validation" in planned
    assert "send_message_to_agent" in prompts["hand_over"].render(caller, to="ben")
    assert "release_task" in prompts["hand_over"].render(caller)
    with refused(ErrorCode.INVALID_INPUT):
        prompts["start_phase_work"].render(caller, phase="two")
    with refused(ErrorCode.NOT_FOUND):
        prompts["start_phase_work"].render(caller, phase="9")
