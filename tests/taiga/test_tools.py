"""What the table of the contract cannot say: projects, pages, limits, comments, moves of cards, many at once."""

import asyncio
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from devflow import actors
from devflow.actors import SYSTEM
from mcpbridge import dispatcher
from mcpbridge.envelopes import as_rest, as_taiga
from tests.taiga.conftest import KINDS, Object, Scene, callers
from workflow.models import Event, Kind, Project, Task, UserStory
from workflow.services import tasks
from workflow.services.agile import items, work


def many(scene: Scene, count: int) -> None:
    """Stories under the epic with a task each, and issues."""
    project = Project.objects.get(pk=scene.project)
    ada = actors.person(user_id=scene.member, name="ada")
    for number in range(count):
        story = items.create(
            Kind.USER_STORY,
            project=project,
            actor=ada,
            fields={"subject": f"Story {number}", "epic_id": scene.ids["epic"], "assigned_to_id": scene.member},
        )
        work.create(project=project, story_id=story.pk, actor=ada, fields={"subject": f"Task {number}"})
        items.create(Kind.ISSUE, project=project, actor=ada, fields={"subject": f"Issue {number}"})
        items.create(Kind.EPIC, project=project, actor=ada, fields={"subject": f"Epic {number}"})


# --- the project of a call ------------------------------------------------------------------------------------------


def test_the_active_project_is_one_choice_for_both_families(scene: Scene) -> None:
    assert scene.error("list_epics", scene.lost)["message"] == "Active project not set"
    chosen = scene.answer("set_active_project", {"projectId": scene.project}, scene.lost)["data"]
    assert chosen == {"activeProject": {"id": scene.project, "slug": scene.slug, "name": scene.slug.title()}}
    assert scene.answer("list_epics", {}, scene.lost)["data"]["items"][0]["projectId"] == scene.project
    assert scene.outcome("get_phase_info", {"phase_id": 1}, scene.lost).error is None


def test_set_project_chooses_for_the_agile_tools_too(scene: Scene) -> None:
    assert scene.outcome("set_project", {"project": scene.slug}, scene.lost).error is None
    assert scene.answer("list_epics", {}, scene.lost)["ok"]


def test_a_named_project_goes_before_the_header_and_the_header_before_the_choice(shop: Scene) -> None:
    scene = shop
    scene.answer("set_active_project", {"projectId": scene.elsewhere})
    assert scene.data("list_epics")["items"][0]["projectId"] == scene.project
    assert scene.data("list_epics", projectId=scene.elsewhere)["items"][0]["projectId"] == scene.elsewhere


def test_a_key_of_one_project_needs_no_choice_and_sees_no_other(shop: Scene) -> None:
    scene = shop
    tied = callers(agent="tied", project_id=scene.project)
    assert scene.answer("list_epics", {}, tied)["ok"]
    assert scene.answer("list_projects", {}, tied)["data"]["meta"]["total"] == 1
    assert scene.error("list_epics", tied, projectId=scene.elsewhere)["category"] == "not_found"
    assert scene.error("set_active_project", tied, projectSlug="bank")["category"] == "not_found"
    assert scene.error("get_project", tied, projectId=scene.elsewhere)["category"] == "not_found"


def test_a_call_is_a_contact_in_the_project_it_named(shop: Scene) -> None:
    scene = shop
    outcome = scene.outcome("taiga.list_epics", {"projectId": scene.elsewhere})
    assert outcome.agent is not None
    assert outcome.agent.project_id == scene.elsewhere


def test_a_key_whose_owner_only_reads_may_not_write(shop: Scene) -> None:
    from django.contrib.auth import get_user_model

    from workflow.models import Membership

    viewer = get_user_model()._default_manager.create_user(username="vera")
    Membership.objects.create(user=viewer, project_id=shop.project, role="viewer")
    reads = callers(agent="reads", slug=shop.slug, owner_id=viewer.pk)
    assert shop.answer("list_epics", {}, reads)["ok"]
    error = shop.error("create_epic", reads, subject="Mine")
    assert (error["category"], error["httpStatus"]) == ("auth", 403)
    assert not Project.objects.get(pk=shop.project).epics.filter(subject="Mine").exists()


# --- lists ----------------------------------------------------------------------------------------------------------


def test_a_page_says_whether_there_is_more(shop: Scene) -> None:
    many(shop, 6)
    first = shop.data("list_user_stories", limit=4)
    assert first["meta"] == {"limit": 4, "offset": 0, "total": 7, "hasNext": True}
    second = shop.data("list_user_stories", limit=4, offset=4)
    assert second["meta"] == {"limit": 4, "offset": 4, "total": 7, "hasNext": False}
    seen = [item["id"] for page in (first, second) for item in page["items"]]
    assert len(set(seen)) == 7
    assert shop.data("list_user_stories", offset=50)["items"] == []


def test_lists_are_light_unless_details_are_asked_for(scene: Scene) -> None:
    assert "description" not in scene.data("list_user_stories")["items"][0]
    detailed = scene.data("list_user_stories", includeDetails=True)["items"][0]
    assert detailed == scene.data("get_user_story", id=scene.ids["user_story"])


def test_a_search_finds_words_and_numbers(scene: Scene) -> None:
    found = scene.data("search_user_stories", query="story somebody", includeDetails=True)["items"]
    assert [item["id"] for item in found] == [scene.ids["user_story"]]
    by_number = scene.data("search_user_stories", query=f"#{scene.refs['user_story']}")["items"]
    assert scene.ids["user_story"] in [item["id"] for item in by_number]
    assert scene.data("search_tasks", query="nothing like that")["meta"]["total"] == 0


def test_filters_narrow_by_tag_assignee_and_status(scene: Scene) -> None:
    scene.data("update_user_story", id=scene.ids["user_story"], tags=["red", "blue"], assignedToId=scene.member)
    for wanted, total in (
        ({"tags": ["red", "green"]}, 1),
        ({"tags": ["red", "green"], "match": "all"}, 0),
        ({"tags": ["red", "blue"], "match": "all"}, 1),
        ({"assigneeIds": [scene.member]}, 1),
        ({"unassigned": True}, 0),
        ({"epicId": scene.ids["epic"]}, 1),
        ({"statusCategory": "done"}, 0),
        ({"statusIds": scene.statuses["user_story"][:1]}, 1),
        ({"modifiedSince": "2999-01-01"}, 0),
    ):
        assert scene.data("list_user_stories", **wanted)["meta"]["total"] == total, wanted


def test_statuses_and_members_come_in_the_same_wrapper(scene: Scene) -> None:
    statuses = scene.data("get_statuses")
    assert {item["entityType"] for item in statuses["items"]} == set(KINDS)
    assert statuses["meta"]["total"] == len(statuses["items"])
    only = scene.data("get_statuses", entityType="task")["items"]
    assert [item["id"] for item in only] == scene.statuses["task"]
    members = scene.data("get_members", roleId=scene.role_id)
    assert [item["id"] for item in members["items"]] == [scene.member]
    assert members["meta"] == {"limit": 50, "offset": 0, "total": 1, "hasNext": False}


@pytest.mark.parametrize("tool", ["list_epics", "list_user_stories", "list_tasks", "list_issues"])
def test_a_list_takes_as_many_queries_for_fifty_as_for_five(shop: Scene, tool: str) -> None:
    many(shop, 5)
    few = _queries(shop, tool)
    many(shop, 45)
    assert _queries(shop, tool) == few
    assert few <= 12


def _queries(scene: Scene, tool: str) -> int:
    """Queries of one provider's list: the call's own accounting is the dispatcher's."""
    from workflow.taiga.local import LocalProvider
    from workflow.taiga.provider import Filters, KindName

    kinds: dict[str, KindName] = {
        "list_epics": "epic",
        "list_user_stories": "user_story",
        "list_tasks": "task",
        "list_issues": "issue",
    }
    project = Project.objects.get(pk=scene.project)
    filters = Filters(query="o", tags=(), include_details=True)
    with CaptureQueriesContext(connections["default"]) as seen:
        page = LocalProvider(project, SYSTEM).find(kinds[tool], filters, offset=0, limit=200)
    assert page.items
    return len(seen)


def test_a_large_list_is_told_of_in_parts(shop: Scene) -> None:
    many(shop, 60)
    heard: list[Any] = []
    telling = shop.caller.with_changes(report=lambda done, total=None, message=None: heard.append((done, total)))
    shop.answer("list_user_stories", {"limit": 50}, telling)
    assert heard == []
    answer = shop.answer("list_user_stories", {"limit": 100}, telling)
    assert len(answer["data"]["items"]) == 61
    assert heard == [(0, None), (50, 61), (61, 61)]


# --- writing --------------------------------------------------------------------------------------------------------


def test_text_of_100000_characters_is_kept_whole(scene: Scene) -> None:
    text = "é" * 100_000
    made = scene.data("create_user_story", subject="x" * 200, description=text)
    assert scene.data("get_user_story", id=made["id"])["description"] == text


def test_an_epics_title_is_its_subject(shop: Scene) -> None:
    made = shop.data("create_epic", title="Titled")
    assert made["subject"] == "Titled"
    assert shop.data("update_epic", id=made["id"], title="Again")["subject"] == "Again"
    assert shop.error("create_epic", title="One", subject="Two")["message"] == "title: Unknown property"


def test_only_what_is_given_changes_and_null_takes_away(scene: Scene) -> None:
    story = scene.ids["user_story"]
    whole = scene.data(
        "update_user_story",
        id=story,
        sprintId=scene.sprint,
        assignedToId=scene.member,
        dueDate="2028-02-29",
        tags=["a"],
    )
    assert (whole["sprintId"], whole["dueDate"], whole["tags"]) == (scene.sprint, "2028-02-29", ["a"])
    assert whole["assignedTo"]["id"] == scene.member
    bare = scene.data("update_user_story", id=story, sprintId=None, assignedToId=None, dueDate=None, epicId=None)
    assert (bare["sprintId"], bare["assignedTo"], bare["dueDate"], bare["epicId"]) == (None, None, None, None)
    assert (bare["tags"], bare["subject"], bare["description"]) == (["a"], whole["subject"], whole["description"])


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_is_blocked_with_a_reason_and_let_go(scene: Scene, kind: str) -> None:
    blocked = scene.data(f"update_{kind}", id=scene.ids[kind], blocked={"isBlocked": True, "reason": "No key yet"})
    assert (blocked["isBlocked"], blocked["blockedReason"]) == (True, "No key yet")
    free = scene.data(f"update_{kind}", id=scene.ids[kind], blocked={"isBlocked": False})
    assert (free["isBlocked"], free["blockedReason"]) == (False, "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_comment_is_read_where_it_was_asked_for(scene: Scene, kind: str) -> None:
    scene.data(f"update_{kind}", id=scene.ids[kind], comment="Looks right.")
    assert "comments" not in scene.data(f"get_{kind}", id=scene.ids[kind])
    comments = scene.data(f"get_{kind}", id=scene.ids[kind], includeComments=True)["comments"]
    assert [comment["text"] for comment in comments] == ["Looks right."]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_deleted_is_gone(scene: Scene, kind: str) -> None:
    assert scene.data(f"delete_{kind}", id=scene.ids[kind]) == {"id": scene.ids[kind], "deleted": True}
    again = scene.error(f"delete_{kind}", id=scene.ids[kind])
    assert (again["category"], again["httpStatus"]) == ("not_found", 404)
    assert scene.error(f"get_{kind}", id=scene.ids[kind])["category"] == "not_found"


def test_a_repeat_with_the_same_idempotency_key_makes_one_story(shop: Scene) -> None:
    first = shop.outcome("taiga.create_user_story", {"subject": "Once"}, idempotency_key="once")
    second = shop.outcome("taiga.create_user_story", {"subject": "Once"}, idempotency_key="once")
    assert (first.value, second.replayed) == (second.value, True)
    assert UserStory.objects.filter(subject="Once").count() == 1


def test_every_change_is_in_the_log_with_its_tool(shop: Scene) -> None:
    shop.data("update_epic", id=shop.ids["epic"], subject="Logged")
    event = Event.objects.filter(project=shop.project, kind="epic.changed").latest("pk")
    assert (event.tool, event.actor_name, event.after["subject"]) == ("taiga.update_epic", "planner", "Logged")


def test_a_tasks_status_moves_its_card_under_the_boards_rules(shop: Scene) -> None:
    by_category = {item["slug"]: item["id"] for item in shop.data("get_statuses", entityType="task")["items"]}
    task = shop.ids["task"]
    refused = shop.error("update_task", id=task, statusId=by_category["done"])
    assert (refused["httpStatus"], refused["details"]["conflict"]) == (409, True)
    assert "claim" in refused["details"]["advice"]
    started = shop.data("update_task", id=task, statusId=by_category["in-progress"])
    assert (started["status"]["category"], started["agent"]) == ("in_progress", "planner")
    done = shop.data("update_task", id=task, statusId=by_category["done"])
    assert (done["status"]["isClosed"], done["boardStatus"]) == (True, "done")


def test_a_held_task_is_not_deleted_under_its_holder(shop: Scene) -> None:
    claimed = shop.outcome("claim_task", {"phase_id": 1})
    assert claimed.error is None
    assert shop.error("delete_task", id=shop.ids["task"])["httpStatus"] == 409
    assert Task.objects.filter(pk=shop.ids["task"]).exists()


# --- limits and failures --------------------------------------------------------------------------------------------


def test_near_the_limit_every_answer_says_so_and_over_it_when_to_come_back(shop: Scene) -> None:
    limited = callers(agent="limited", slug=shop.slug, rate=10)  # and a burst of 20 on top of it
    answers = [shop.answer("list_epics", {}, limited) for _ in range(31)]
    assert [("_rateLimit" in answer) for answer in answers[:27]] == [False] * 26 + [True]
    assert all(0 < answer["_rateLimit"]["retryAfterMs"] <= 60_000 for answer in answers[27:30])
    error = answers[30]["error"]
    assert (error["category"], error["message"], error["httpStatus"]) == ("rate_limit", "Rate limited", 429)
    assert 0 < error["retryAfterMs"] <= 60_000


def test_large_texts_are_cut_in_error_messages(shop: Scene) -> None:
    error = shop.error("update_user_story", id=shop.ids["user_story"], points={"y" * 90_000: 1})
    assert len(error["message"]) <= 1000
    assert shop.answer("list_epics", {"z" * 90_000: 1})["error"]["category"] == "validation"
    assert max(map(len, shop.answer("list_epics", {"z" * 90_000: 1})["error"]["details"])) <= 1000


def test_the_envelope_is_the_result_on_rest_also_of_a_failure(shop: Scene) -> None:
    outcome = shop.outcome("taiga.create_epic", {})
    status, body = as_rest(outcome, "r-1")
    assert (status, body["result"], body["error"]) == (422, as_taiga(outcome), "subject: Required")
    assert body["result"]["error"]["httpStatus"] == 400


def test_a_call_is_logged_with_its_outcome_and_time(shop: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="mcpbridge.dispatcher"):
        shop.data("list_epics")
        shop.error("create_epic")
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("[MCP]")]
    assert [" ".join(line.split()[:3]) for line in said] == [
        "[MCP] taiga.list_epics success",
        "[MCP] taiga.create_epic failure",
    ]
    assert all(line.endswith("ms") for line in said)


# --- many at once, and summaries ------------------------------------------------------------------------------------


def test_each_change_of_a_batch_succeeds_or_fails_by_itself(scene: Scene) -> None:
    first = scene.ids["user_story"]
    second = scene.data("create_user_story", subject="Second")
    heard: list[Any] = []
    telling = scene.caller.with_changes(report=lambda done, total=None, message=None: heard.append((done, total)))
    changes: list[Object] = [
        {"id": first, "fields": {"subject": "First, changed"}},
        {"id": first, "version": 1, "fields": {"subject": "Stale"}},
        {"id": scene.foreign["user_story"], "fields": {"subject": "Not ours"}},
        {"ref": second["ref"], "fields": {"statusId": 999_999}},
        {"id": second["id"], "ref": second["ref"], "fields": {"subject": "Both"}},
        {"id": second["id"], "fields": {}},
        {"id": second["id"], "version": second["version"], "fields": {"tags": ["late"], "comment": "Done."}},
    ]
    answer = scene.answer("batch_update_user_stories", {"items": changes}, telling)["data"]
    assert [item["ok"] for item in answer["items"]] == [True, False, False, False, False, False, True]
    assert (answer["succeeded"], answer["failed"]) == (2, 5)
    errors = [item["error"] for item in answer["items"] if not item["ok"]]
    assert [error["httpStatus"] for error in errors] == [409, 404, 400, 400, 400]
    assert errors[0]["details"]["current"]["subject"] == "First, changed"
    assert errors[2]["message"] == "Invalid statusId"
    assert heard == [(number, 7) for number in range(1, 8)]
    assert scene.data("get_user_story", id=first)["subject"] == "First, changed"
    assert scene.data("get_user_story", id=second["id"])["tags"] == ["late"]


def test_a_batch_takes_200_changes_and_no_more(shop: Scene) -> None:
    change = {"id": shop.ids["user_story"], "fields": {"tags": ["x"]}}
    assert shop.error("batch_update_user_stories", items=[change] * 201)["category"] == "validation"
    assert shop.data("batch_update_user_stories", items=[change] * 200)["succeeded"] == 200


def test_a_summary_says_how_far_a_story_is_and_what_blocks_it(scene: Scene) -> None:
    scene.data("update_task", id=scene.ids["task"], blocked={"isBlocked": True, "reason": "No key yet"})
    scene.data("update_user_story", id=scene.ids["user_story"], dueDate="2028-02-29", comment="Soon.")
    summary = scene.data("summarize_user_story", ref=scene.refs["user_story"])
    assert summary["progress"] == {"total": 1, "completed": 0, "percent": 0}
    assert [item["reason"] for item in summary["blockers"]] == ["No key yet"]
    assert (summary["comments"], summary["dueDate"], len(summary["tasks"])) == (1, "2028-02-29", 1)
    assert (summary["model"], summary["note"]) == (None, "")
    for part in ("0 of 1 done", "is blocked: No key yet", "Due on 2028-02-29"):
        assert part in summary["summary"]
    if not scene.is_remote:
        assert {item["by"] for item in summary["lastChanges"]} >= {"planner"}
    assert scene.data("summarize_user_story", ref=scene.refs["user_story"]) == summary


def test_the_agile_tools_share_the_loop(shop: Scene) -> None:
    async def together() -> list[bool]:
        calls = [dispatcher.call("taiga.create_issue", {"subject": f"At once {n}"}, shop.caller) for n in range(12)]
        return [outcome.error is None for outcome in await asyncio.gather(*calls)]

    assert all(asyncio.run(together()))
    refs = [item["ref"] for item in shop.data("search_issues", query="once")["items"]]
    assert len(set(refs)) == 12


def test_archived_projects_are_as_unknown(shop: Scene) -> None:
    from workflow.services import projects

    projects.archive(project_id=shop.elsewhere, actor=SYSTEM)
    assert shop.error("list_epics", projectId=shop.elsewhere)["category"] == "not_found"
    assert [item["id"] for item in shop.data("list_projects")["items"]] == [shop.project]


def test_a_held_back_task_shows_as_blocked_on_the_board_too(shop: Scene) -> None:
    tasks.hold_back(project_id=shop.project, task_id=shop.ids["task"], reason="Ask first", actor=SYSTEM)
    shown = shop.data("get_task", id=shop.ids["task"])
    assert (shown["status"]["category"], shown["blockedReason"]) == ("blocked", "Ask first")
    assert shop.data("list_tasks", isBlocked=True)["meta"]["total"] == 1
