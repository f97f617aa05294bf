"""Projects and tasks as files: what goes out comes in again, and what cannot come in changes nothing and says why."""

import csv
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from devflow.actors import SYSTEM, Actor
from devflow.errors import ErrorCode
from devflow.events import REJOINED, LiveEvent, bus
from tests.running import devflow
from workflow.models import Evidence, Note, Project, Task
from workflow.selectors import onboarding
from workflow.services import board, claims, phases, projects, tasks, transitions
from workflow.services.demo import seed_demo
from workflow.services.tasks import Proof
from workflow.services.transfer import exporting, formats, project_import, tables, task_import
from workflow.services.transfer.checks import find_cycle
from workflow.services.transfer.phase_files import texts
from workflow.views.trail import trail

from .scenes import joined, made, person_named, refused

pytestmark = pytest.mark.django_db

Json = dict[str, Any]


def written(project: Project, **more: bool) -> Json:
    found: Json = json.loads(exporting.project_json(project_id=project.pk, **more))
    return found


def small(**changes: Any) -> Json:
    """A project file with two tasks, the second waiting for the first."""
    return {
        "format": "devflow.project",
        "version": 1,
        "project": {"slug": "small", "name": "Small"},
        "phases": [{"number": 1, "name": "Work", "done_definitions": ["It works"]}],
        "tasks": [
            {"ref": 1, "phase": 1, "subject": "First", "description": "First"},
            {"ref": 2, "phase": 1, "subject": "Second", "description": "Second", "blocked_by": [1]},
        ],
    } | changes


def read(file: Json | bytes, **more: str) -> project_import.Reading:
    return project_import.read(file if isinstance(file, bytes) else json.dumps(file).encode(), **more)


def brought(file: Json, **more: Any) -> Project:
    return project_import.write(read(file, slug=more.pop("slug", "")), actor=more.pop("actor", SYSTEM), **more)


# --- a project ----------------------------------------------------------------------------------------------------


def without_times_of_here(file: Json) -> Json:
    """A file without what is other at every place: its own time, its slug, and what nobody holds any more."""
    kept = {name: part for name, part in file.items() if name != "exported_at"}
    kept["project"] = {**file["project"], "slug": ""}
    return kept


def test_a_project_comes_back_as_it_went(db: None) -> None:
    demo = seed_demo()
    for task in demo.tasks.filter(status="in_progress"):
        claims.release(project_id=demo.pk, task_id=task.pk, actor=SYSTEM)
    child, parent = demo.tasks.order_by("ref")[:2]
    demo.tasks.filter(pk=child.pk).update(parent=parent, metadata={"estimate": {"hours": 2.5}}, boosted=True)
    phase = demo.phases.get(number=2)
    phase.entry_phase, phase.wip_limit = demo.phases.get(number=1), 4
    phase.save()
    file = written(demo)
    copy = brought(file, slug="copy")
    assert without_times_of_here(written(copy)) == without_times_of_here(file)
    assert copy.next_ref == demo.next_ref
    assert copy.tasks.get(ref=child.ref).parent == copy.tasks.get(ref=parent.ref)
    assert not copy.agents.filter(retired_at=None).exists()
    assert not copy.tasks.filter(assigned_agent__project=demo).exists()


def test_notes_evidence_and_their_authors_are_kept(project: Project, ada: Actor) -> None:
    task = made(project, ada)
    tasks.add_note(project_id=project.pk, task_id=task.pk, body="مرحبا 🎉\n\n<b>x</b>", actor=ada)
    tasks.add_evidence(project_id=project.pk, task_id=task.pk, proofs=[Proof(1, "commit abc", "commit")], actor=ada)
    tasks.edit(project_id=project.pk, task_id=task.pk, phase_number=3, actor=ada)  # the evidence is of phase 2 still
    copy = brought(written(project), slug="copy")
    note, proof = Note.objects.get(task__project=copy), Evidence.objects.get(task__project=copy)
    assert (note.body, note.actor_name, note.actor_kind) == ("مرحبا 🎉\n\n<b>x</b>", "ada", "agent")
    assert (proof.content, proof.kind, proof.definition.phase) == ("commit abc", "commit", copy.phases.get(number=2))
    assert copy.tasks.get().phase.number == 3


def test_history_and_members_travel_only_where_they_are_asked_for(project: Project, ada: Actor) -> None:
    mia = User.objects.create_user("mia")
    projects.set_member(project_id=project.pk, user_id=mia.pk, role="admin", actor=SYSTEM)
    made(project, ada)
    assert not {"events", "members"} & set(written(project))
    file = written(project, with_events=True, with_members=True)
    assert [member["user"] for member in file["members"]] == ["mia"]
    file["members"].append({"user": "stranger", "role": "viewer"})
    reading = read(file, slug="copy")
    assert "stranger" in " ".join(reading.preview.notices)
    copy = project_import.write(reading, actor=SYSTEM)
    assert dict(copy.memberships.values_list("user__username", "role")) == {"mia": "admin"}
    kinds = list(copy.events.order_by("pk").values_list("kind", flat=True))
    assert kinds == [*(event["kind"] for event in file["events"]), "project.imported"]
    assert len(trail(copy.events.all())) == len(kinds)


def test_without_its_history_each_task_says_that_it_was_brought_in(db: None) -> None:
    copy = brought(small(), actor=person_named("mia"))
    logged = list(copy.events.order_by("pk").values_list("kind", "actor_name"))
    assert logged == [("project.imported", "mia"), ("task.created", "mia"), ("task.created", "mia")]


def test_no_move_of_an_imported_history_can_be_taken_back(project: Project, ada: Actor, other: Project) -> None:
    task = made(project, ada)
    claims.start(project_id=project.pk, task_id=task.pk, actor=ada)
    transitions.finish(project_id=project.pk, task_id=task.pk, actor=ada)
    file = written(project, with_events=True)
    for event in file["events"]:
        if event["kind"] == "task.done":
            event["before"] |= {"project_id": other.pk, "version": 1}
            event["after"] |= {"version": 1, "part_of": 1}
    copy = brought(file, slug="copy")
    done = copy.events.get(kind="task.done")
    assert not {"project_id", "version", "part_of"} & {*done.before, *done.after}
    with refused(ErrorCode.CONFLICT):
        board.undo(project_id=copy.pk, event_id=done.pk, actor=SYSTEM)
    assert copy.tasks.get().status == "done"


def test_nobody_holds_what_was_in_progress_and_what_waits_is_told_anew(project: Project, ada: Actor) -> None:
    first = made(project, ada)
    made(project, ada, blocked_by=[first.pk])
    made(project, ada, manual_block="wait")
    claims.start(project_id=project.pk, task_id=first.pk, actor=ada)
    file = written(project)
    reading = read(file, slug="copy")
    assert "1 task in progress becomes" in reading.preview.notices[0]
    copy = project_import.write(reading, actor=SYSTEM)
    assert list(copy.tasks.order_by("ref").values_list("status", flat=True)) == ["ready", "pending", "pending"]
    assert not copy.tasks.exclude(lease_token=None).exists()
    claimed = claims.claim(project_id=copy.pk, phase_number=2, actor=joined(copy, "ben"))
    assert claimed.task is not None
    assert claimed.task.ref == first.ref
    assert onboarding.steps(copy.pk).is_complete


def test_an_entry_rule_holds_for_what_was_brought_in(db: None) -> None:
    phase = {"name": "More", "number": 2, "entry": {"phase": 1, "done_tasks": 2}}
    rows = [
        {"ref": ref, "phase": 1, "subject": "x", "description": "x", "status": "done", "completed_at": None}
        for ref in (1, 2)
    ]
    late = {"ref": 3, "phase": 2, "subject": "late", "description": "late"}
    file = small(phases=[{"name": "Work", "number": 1}, phase], tasks=[*rows, late])
    assert brought(file).tasks.get(ref=3).status == "ready"
    rows[0]["status"] = "failed"
    assert brought(file, slug="other").tasks.get(ref=3).status == "pending"


def test_an_archived_project_can_be_taken_elsewhere_and_the_copy_is_not_archived(project: Project) -> None:
    projects.archive(project_id=project.pk, actor=SYSTEM)
    assert brought(written(project), slug="copy").archived_at is None


def test_who_brings_it_in_is_its_admin_whatever_the_file_says(project: Project) -> None:
    mia = person_named("mia")
    file = small(members=[{"user": "mia", "role": "viewer"}])
    assert brought(file, actor=mia, owner_id=mia.user_id).memberships.get().role == "admin"


def task(**changes: Any) -> Json:
    return {"ref": 1, "phase": 1, "subject": "One", "description": "One"} | changes


def event(**changes: Any) -> Json:
    made_at = "2026-01-01T00:00:00Z"
    return {"kind": "task.edited", "actor_kind": "system", "actor_name": "x", "at": made_at} | changes


PHASE: Json = {"number": 1, "name": "Work", "done_definitions": ["It works"]}
PROOF: Json = {"definition": "It works", "content": "yes", "actor_kind": "agent", "actor_name": "ada"}

REFUSED: list[tuple[Any, str, str]] = [
    (b"", "line 1", "JSON"),
    (b"\x89PNG", "line 1", "JSON"),
    (b'{"format": "devflow.project",\n "version": }', "line 2", "JSON"),
    (b"[" * 5000, "line 1", "JSON"),
    (b'{"format": "devflow.project", "version": NaN}', "line 1", "JSON"),
    ([], "the file", "no project"),
    ({"format": "taiga"}, "the file", "devflow.project"),
    (small(version=2), "version", "newer DevFlow"),
    (small(version="1"), "version", "number"),
    (small(version=0), "version", "number"),
    (small(colour="red"), "colour", "not a key"),
    (small(project={"name": "x"}), "project.slug", "missing"),
    (small(project={"slug": "no spaces", "name": "x"}), "project.slug", "cannot be kept"),
    (small(project={"slug": "shop", "name": "x"}), "project.slug", "already"),
    (small(project={"slug": "x", "name": "x", "column_limits": {"nowhere": 1}}), "project.column_limits", "no limit"),
    (small(tasks=[task(subject="")]), "tasks[0] (#1).subject", "at least 1"),
    (small(tasks=[task(subject="x" * 256)]), "tasks[0] (#1).subject", "255"),
    (small(tasks=[task(description="a\x00b")]), "tasks[0] (#1).description", "cannot be kept"),
    (small(tasks=[task(metadata={"deep": ["a\x00"]})]), "tasks[0] (#1).metadata", "NUL"),
    (small(tasks=[task(status="flying")]), "tasks[0] (#1).status", "pending"),
    (small(tasks=[task(created_at="9999-01-01T00:00:00Z")]), "tasks[0] (#1).created_at", "future"),
    (small(tasks=[task(phase=7)]), "tasks[0].phase", "no phase 7"),
    (small(tasks=[task(), task()]), "tasks[1] (#1).ref", "twice"),
    (small(tasks=[task(blocked_by=[9])]), "tasks[0] (#1).blocked_by", "no task #9"),
    (small(tasks=[task(parent=9)]), "tasks[0] (#1).parent", "no task #9"),
    (small(tasks=[task(blocked_by=[1])]), "tasks[0] (#1).blocked_by", "circle"),
    (small(tasks=[task(parent=2), task(ref=2, parent=1)]), "parent", "circle"),
    (small(tasks=[task(evidence=[{**PROOF, "definition": "Nothing"}])]), "tasks[0].evidence[0]", "done definition"),
    (small(tasks=[task(evidence=[PROOF, PROOF])]), "tasks[0].evidence[1]", "already"),
    (small(tasks=[task(ref=ref) for ref in range(1, formats.MOST_TASKS + 2)]), "tasks", "10,001"),
    (small(phases=[PHASE, PHASE]), "phases", "1 is there twice"),
    (small(phases=[{**PHASE, "done_definitions": ["a", "a"]}]), "phases[0].done_definitions", "twice"),
    (small(phases=[{**PHASE, "entry": {"phase": 8}}]), "phases[0].entry", "no phase 8"),
    (small(phases=[{**PHASE, "entry": {"phase": 1}}]), "phases", "wait for each other"),
    (small(events=[event(task=9)]), "events[0].task", "no task #9"),
    (small(events=[event(phase=9)]), "events[0].phase", "no phase 9"),
    (small(events=[event(kind="<script>")]), "events[0].kind", "cannot be kept"),
    (small(events=[event(after={"status": "flying"})]), "events[0].after", "none of"),
    (small(events=[event(after={"status": ["done"]})]), "events[0].after", "none of"),
    (small(events=[event(after={"priority": 9}, before={"priority": 1})]), "events[0].after.priority", "1, 2 or 3"),
    (small(events=[event(after={"phase": 2})]), "events[0].before.phase", "missing"),
    (small(events=[event(after={"blocked_by": 7})]), "events[0].after.blocked_by", "list"),
    (small(members=[{"user": "a", "role": "king"}]), "members[0].role", "viewer"),
]


@pytest.mark.parametrize(("file", "place", "words"), REFUSED, ids=[f"{row[1]} {row[2]}" for row in REFUSED])
def test_a_file_that_cannot_be_used_changes_nothing_and_says_where_and_why(
    project: Project, file: Any, place: str, words: str
) -> None:
    data = file if isinstance(file, bytes) else json.dumps(file).encode()
    before = (Project.objects.count(), Task.objects.count(), project.events.count())
    reading = project_import.read(data)
    assert any(place in one.place and words in one.words for one in reading.preview.problems), reading.preview.problems
    with refused(ErrorCode.INVALID_INPUT, "nothing was changed"):
        project_import.write(reading, actor=SYSTEM)
    assert (Project.objects.count(), Task.objects.count(), project.events.count()) == before


def test_every_problem_of_a_file_is_listed_not_only_the_first(db: None) -> None:
    rows = [task(ref=ref, phase=9, blocked_by=[99]) for ref in range(1, 40)]
    preview = read(small(tasks=rows)).preview
    assert len(preview.problems) == 78
    assert (len(preview.shown), preview.more) == (50, 28)


def test_a_slug_that_was_taken_meanwhile_leaves_nothing_behind(db: None) -> None:
    reading = read(small())
    projects.create(slug="small")
    with refused(ErrorCode.CONFLICT, "small"):
        project_import.write(reading, actor=SYSTEM)
    assert not Task.objects.exists()


def test_a_fault_in_the_middle_of_writing_leaves_nothing_behind(db: None) -> None:
    reading = read(small(events=[event(task=1)]))
    assert reading.file is not None
    reading.file.events[0].before["late"] = object()  # what no check foresees
    with pytest.raises(TypeError), transaction.atomic():
        project_import.write(reading, actor=SYSTEM)
    assert not Project.objects.exists()


def test_another_slug_is_checked_as_one(db: None) -> None:
    for slug in ("no spaces", "x" * 51):
        assert "slug" in read(small(), slug=slug).preview.problems[0].place
    assert brought(small(), slug="other").slug == "other"


@pytest.mark.parametrize("count", [1, 2, 5000])
def test_a_circle_of_any_length_is_found(count: int) -> None:
    ring = {node: [node % count + 1] for node in range(1, count + 1)}
    assert find_cycle(ring) == [*range(1, count + 1), 1]
    assert find_cycle({node: [node + 1] for node in range(count)}) == []


# --- tasks as a table ---------------------------------------------------------------------------------------------


def table(text: str, project: Project, **more: Any) -> task_import.TableReading:
    return task_import.read(text.encode(), project_id=project.pk, **more)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))


def test_a_table_comes_back_as_it_went_but_for_who_worked(project: Project, other: Project, ada: Actor) -> None:
    first = made(project, ada, '=1+1\n\nwith a "quote", a comma\nand lines', phase=1, tags=["a b", "+c"])
    child = made(project, ada, "-x", phase=3, priority="high", blocked_by=[first.pk], parent=first.pk)
    tasks.hold_back(project_id=project.pk, task_id=child.pk, reason="@later", actor=ada)
    text = tables.tasks_csv(project_id=project.pk)
    reading = table(text, other)
    assert reading.preview.is_good, reading.preview.problems
    assert task_import.write(reading, project_id=other.pk, actor=SYSTEM) == 2
    fields = ("subject", "description", "phase__number", "status", "priority", "tags", "manual_block", "parent__ref")
    assert list(other.tasks.order_by("ref").values(*fields)) == list(project.tasks.order_by("ref").values(*fields))
    assert other.tasks.get(ref=2).blockers.get().ref == 1


def test_no_cell_of_an_export_is_a_formula(project: Project, ada: Actor) -> None:
    for text in ("=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\t=1", "'=1"):
        made(project, ada, f"{text} x", subject=text, tags=[text.strip()])
    for row in rows_of(tables.tasks_csv(project_id=project.pk)):
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row.values()), row


def test_an_export_takes_a_fixed_number_of_queries(
    project: Project, ada: Actor, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    first = made(project, ada)
    for _ in range(5):
        task = made(project, ada, blocked_by=[first.pk])
        tasks.add_note(project_id=project.pk, task_id=task.pk, body="x", actor=ada)
        tasks.add_evidence(project_id=project.pk, task_id=task.pk, proofs=[Proof(1, "x")], actor=ada)
    with django_assert_max_num_queries(2):
        tables.tasks_csv(project_id=project.pk)
    with django_assert_max_num_queries(12):
        exporting.project_json(project_id=project.pk, with_events=True, with_members=True)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_headers_of_other_tools_are_understood(project: Project, mark: str) -> None:
    text = "Issue key,Summary,State,Labels,Depends On,Stage\nA-1,One,Done,x,,\n#a-2,Two,To Do,x y,A-1,implementation\n"
    reading = table(text.replace(",", mark), project, phase_number=3)
    assert [column.field for column in reading.columns] == ["ref", "subject", "status", "tags", "blocked_by", "phase"]
    task_import.write(reading, project_id=project.pk, actor=SYSTEM)
    one, two = project.tasks.order_by("ref")
    assert (one.status, one.phase.number, one.completed_at is not None) == ("done", 3, True)
    assert (two.status, two.phase.number, two.tags) == ("ready", 2, ["x y"])


def test_a_person_decides_what_a_column_becomes(project: Project) -> None:
    text = "Titel,Notiz,Rang\nErstes,Mehr,high\n"
    assert "no column holds a title" in table(text, project).preview.problems[0].words
    reading = table(text, project, columns=["subject", "", "priority"])
    assert "“Notiz” (column 2)" in reading.preview.notices[0]
    task_import.write(reading, project_id=project.pk, actor=SYSTEM)
    assert project.tasks.values_list("subject", "description", "priority").get() == ("Erstes", "Erstes", 1)


def test_refs_go_on_from_those_there_are_and_each_task_is_logged(project: Project, ada: Actor) -> None:
    made(project, ada)
    mia = person_named("mia")
    task_import.write(table("title\nTwo\nThree\n", project), project_id=project.pk, actor=mia)
    assert list(project.tasks.order_by("ref").values_list("ref", "subject", "created_by"))[1:] == [
        (2, "Two", "mia"),
        (3, "Three", "mia"),
    ]
    assert project.tasks.get(ref=2).creator_user_id == mia.user_id
    assert project.events.filter(kind="task.created", actor_name="mia").count() == 2
    assert made(project, ada).ref == 4


def test_done_rows_open_the_phase_that_waited_for_them(project: Project, ada: Actor) -> None:
    phase = project.phases.get(number=2)
    phase.entry_phase = project.phases.get(number=1)
    phase.save()
    waiting = made(project, ada, phase=2)
    task_import.write(
        table("title,phase,status\nOld,1,done\nNew,2,open\n", project), project_id=project.pk, actor=SYSTEM
    )
    waiting.refresh_from_db()
    assert waiting.status == "ready"
    assert project.tasks.get(subject="New").status == "ready"


BAD_TABLES = [
    ("", "the file", "empty"),
    ("title\n", "the file", "no rows"),
    ("a,b\n1,2\n", "line 1", "title"),
    ("title,summary,x\nA,B,C\n", "", ""),  # the second is left out, not refused
    ("title\nA,B\n", "line 2", "2 cells"),
    ('title\n"A\n', "line 2", "not CSV"),
    ('title\n"A"b\n', "line 2", "not CSV"),
    ('title,phase\n"A\nB",\nC,9\n', "line 4, phase", "no phase “9”"),
    ("title,priority\nA,urgent\n", "line 2, priority", "high, medium, low"),
    ("title,status\nA,flying\n", "line 2, status", "in progress"),
    ("title,phase\n,1\n", "line 2, subject", "neither"),
    (f"title\n{'x' * 256}\n", "line 2, subject", "255"),
    ("title\na\x00b\n", "line 2, subject", "cannot be kept"),
    ("title,created\nA,yesterday\n", "line 2, created_at", "2026-03-14"),
    ("title,created\nA,2026-02-31\n", "line 2, created_at", "2026-03-14"),
    ("title,created\nA,9999-01-01\n", "line 2, created_at", "future"),
    ("id,title\n1,A\n1,B\n", "line 3, ref", "line 2 already"),
    ("id,title,blockers\n1,A,2\n", "line 2, blocked_by", "“2”"),
    ("title,blockers\nA,2\n", "line 2, blocked_by", "column “ref”"),
    ("id,title,blockers\n1,A,2\n2,B,1\n", "line 2, blocked_by", "1 waits for 2 waits for 1"),
    ("id,title,parent\nA,A,A\n", "line 2, parent", "circle"),
]


@pytest.mark.parametrize(("text", "place", "words"), BAD_TABLES)
def test_a_table_that_cannot_be_used_changes_nothing_and_names_the_line(
    project: Project, text: str, place: str, words: str
) -> None:
    before = project.events.count()
    reading = table(text, project)
    if not words:
        assert reading.preview.is_good
        return
    assert any(place == one.place and words in one.words for one in reading.preview.problems), reading.preview.problems
    with refused(ErrorCode.INVALID_INPUT, "nothing was changed"):
        task_import.write(reading, project_id=project.pk, actor=SYSTEM)
    assert not project.tasks.exists()
    assert project.events.count() == before
    project.refresh_from_db()
    assert project.next_ref == 1


def test_a_wrong_column_choice_is_refused_in_words(project: Project) -> None:
    twice = table("a,b\n1,2\n", project, columns=["subject", "subject"]).preview.problems
    assert twice[0].words == "columns 1, 2 are all the title; choose one."
    unknown = table("a\n1\n", project, columns=["lease_token"]).preview.problems
    assert "no field “lease_token”" in unknown[0].words
    assert "no phase 9" in table("title\nA\n", project, phase_number=9).preview.problems[0].words


def test_bytes_that_are_no_text_name_their_line(project: Project) -> None:
    reading = task_import.read(b"title\nfine\nStra\xdfe\n", project_id=project.pk)
    assert (reading.preview.problems[0].place, "UTF-8" in reading.preview.problems[0].words) == ("line 3", True)
    assert task_import.read("title\nStraße\n".encode("utf-16"), project_id=project.pk).preview.is_good


def test_fifty_thousand_rows_are_refused_at_the_door(project: Project) -> None:
    reading = table("title\n" + "A task\n" * 50_000, project)
    assert "50,000 rows" in reading.preview.problems[0].words
    assert "10,000" in reading.preview.problems[0].words


def test_a_project_without_phases_takes_no_tasks(db: None) -> None:
    bare = projects.create(slug="bare", template=None)
    assert "no phases" in table("title\nA\n", bare).preview.problems[0].words


def test_a_phase_that_went_meanwhile_leaves_nothing_behind(project: Project) -> None:
    reading = table("title,phase\nA,1\nB,3\n", project)
    project.phases.get(number=3).delete()
    with refused(ErrorCode.CONFLICT, "Phase 3"):
        task_import.write(reading, project_id=project.pk, actor=SYSTEM)
    assert not project.tasks.exists()


@pytest.mark.slow
def test_ten_thousand_rows_come_in_whole_and_pages_are_told_once(
    project: Project, django_capture_on_commit_callbacks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[LiveEvent] = []
    monkeypatch.setattr(bus, "deliver", heard.append)
    text = "id,title,depends on,parent\n" + "".join(
        f"{n},Task {n},{n - 1 if n % 2 == 0 else ''},{n - 1 if 1 < n < 50 else ''}\n" for n in range(1, 10_001)
    )
    with django_capture_on_commit_callbacks(execute=True):
        assert task_import.write(table(text, project), project_id=project.pk, actor=SYSTEM) == 10_000
    assert project.tasks.filter(status="ready").count() == 5_000
    assert [one.type for one in heard] == ["project.tasks_imported", REJOINED]
    project.refresh_from_db()
    assert project.next_ref == 10_001


# --- phases, and the command line ---------------------------------------------------------------------------------


def test_phase_files_come_one_by_one_or_in_a_zip(project: Project, other: Project) -> None:
    files = phases.export_files(project_id=project.pk)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    assert texts([("phases.zip", packed.getvalue())]) == files
    assert texts([(name, text.encode()) for name, text in files.items()]) == files
    for content, words in ((b"PK", "neither"), (b"\xff", "neither"), (b"x" * 1_000_001, "1 MB")):
        with refused(ErrorCode.INVALID_INPUT, words):
            texts([("phases.zip", content)])
    with refused(ErrorCode.INVALID_INPUT, "Choose a file"):
        texts([])


def test_the_command_line_exports_and_imports(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "shop.json"
    assert devflow(home, "demo").returncode == 0
    done = devflow(home, "export", "demo", str(file), "--events")
    assert done.returncode == 0, done.stderr
    again = devflow(home, "import", str(file))
    assert (again.returncode, "project.slug" in again.stderr, "1 problem." in again.stderr) == (1, True, True)
    looked = devflow(home, "import", str(file), "--slug", "copy", "--check")
    assert looked.stdout.startswith("It can be imported as copy: 3 phases, 14 tasks")
    made = devflow(home, "import", str(file), "--slug", "copy")
    assert made.stdout.startswith("copy: 3 phases, 14 tasks"), made.stderr
    piped = devflow(home, "export", "copy")
    assert json.loads(piped.stdout)["project"]["slug"] == "copy"
    unknown = devflow(home, "export", "nope")
    assert (unknown.returncode, "copy, demo" in unknown.stderr) == (1, True)
    assert "cannot be read" in devflow(home, "import", str(tmp_path / "nowhere.json")).stderr
