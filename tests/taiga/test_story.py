"""One story: an epic becomes a user story, tasks, an agent's work, and everything that shows it agrees."""

from tests.taiga.conftest import Scene


def test_work_on_a_task_moves_its_story_and_its_epic(shop: Scene) -> None:
    epic = shop.data("create_epic", subject="Checkout")
    story = shop.data("create_user_story", subject="Pay by card", epicId=epic["id"])
    pay = shop.data("create_task", userStoryId=story["id"], subject="Call the bank", priority="highest")
    refund = shop.data("create_task", userStoryId=story["id"], subject="Give money back")
    agree(shop, epic["id"], story["id"], done=0)
    assert shop.data("get_user_story", id=story["id"])["taskIds"] == [pay["id"], refund["id"]]
    assert shop.data("get_epic", id=epic["id"])["userStoryIds"] == [story["id"]]

    claimed = shop.outcome("claim_task", {"phase_id": pay["phaseId"]}).value or {}
    assert claimed["id"] == pay["taskId"]  # the highest priority
    shown = shop.data("get_task", id=pay["id"])
    assert (shown["status"]["category"], shown["agent"]) == ("in_progress", "planner")
    closed = shop.outcome(
        "update_task_status", {"task_id": claimed["id"], "status": "done", "lease_token": claimed["lease_token"]}
    )
    assert closed.error is None
    agree(shop, epic["id"], story["id"], done=1)

    statuses = {item["slug"]: item["id"] for item in shop.data("get_statuses", entityType="task")["items"]}
    shop.data("update_task", id=refund["id"], statusId=statuses["in-progress"])
    shop.data("update_task", id=refund["id"], statusId=statuses["done"])
    agree(shop, epic["id"], story["id"], done=2)


def agree(scene: Scene, epic_id: int, story_id: int, *, done: int) -> None:
    """The board, the story, the epic and their lists say that `done` of two tasks are done."""
    progress = {"total": 2, "completed": done, "percent": 50 * done}
    story = scene.data("get_user_story", id=story_id)
    assert story["progress"] == progress
    assert scene.data("get_epic", id=epic_id)["progress"] == progress
    listed = scene.data("list_epics", query="Checkout")["items"]
    assert [item["progress"] for item in listed] == [progress]
    assert scene.data("summarize_user_story", id=story_id)["progress"] == progress
    outcome = scene.outcome("get_kanban_board", {})
    assert outcome.value is not None
    columns = outcome.value["columns"]
    on_board = {card["id"]: name for name, cards in columns.items() for card in cards}
    tasks = scene.data("list_tasks", userStoryId=story_id)["items"]
    assert sum(on_board[task["taskId"]] == "done" for task in tasks) == done
    for task in tasks:
        assert task["status"]["isClosed"] is (on_board[task["taskId"]] == "done")
