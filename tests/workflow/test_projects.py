from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from devflow import ports
from devflow.actors import SYSTEM, Actor
from devflow.errors import ErrorCode
from devflow.ports import KeyScope
from workflow.models import Membership, Phase, Project, Task
from workflow.selectors import onboarding
from workflow.selectors import projects as project_selectors
from workflow.services import board, claims, phases, projects

from .scenes import joined, made, person_named, refused

pytestmark = pytest.mark.django_db

ANY = KeyScope(key_id=1)


@pytest.mark.parametrize("template", phases.templates())
def test_every_template_gives_three_phases_with_done_definitions_that_ask_nothing_more(db: None, template: str) -> None:
    made_from = projects.create(slug="new", template=template)
    found = list(made_from.phases.order_by("number"))
    assert [phase.number for phase in found] == [1, 2, 3]
    assert all(phase.done_definitions.exists() for phase in found)
    assert not any(phase.requires_review or phase.requires_evidence for phase in found)


def test_the_templates_are_the_named_three() -> None:
    assert phases.templates() == ["analysis", "bugfix", "documentation"]


def test_a_slug_is_used_once_and_well_formed(project: Project) -> None:
    with refused(ErrorCode.CONFLICT, "shop"):
        projects.create(slug="shop")
    for slug in ("no spaces", "x" * 51, ""):
        with refused(ErrorCode.INVALID_INPUT):
            projects.create(slug=slug)
    with refused(ErrorCode.NOT_FOUND, "analysis"):
        projects.create(slug="fine", template="none")


def test_column_limits_are_numbers_of_known_columns(project: Project) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        projects.configure(project_id=project.pk, actor=SYSTEM, column_limits={"nowhere": 3})
    with refused(ErrorCode.INVALID_INPUT):
        projects.configure(project_id=project.pk, actor=SYSTEM, column_limits={"review": 0})
    changed = projects.configure(project_id=project.pk, actor=SYSTEM, column_limits={"review": 2, "ready": None})
    assert changed.column_limits == {"review": 2}


def test_phases_survive_export_and_import(project: Project, other: Project) -> None:
    phase = project.phases.get(number=2)
    phase.entry_phase, phase.wip_limit, phase.requires_evidence = project.phases.get(number=1), 4, True
    phase.save()
    files = phases.export_files(project_id=project.pk)
    assert list(files) == ["01_analysis.yaml", "02_implementation.yaml", "03_validation.yaml"]
    phases.import_files(project_id=other.pk, files=files, actor=SYSTEM)
    assert phases.export_files(project_id=other.pk) == files
    assert other.phases.get(number=2).entry_phase == other.phases.get(number=1)


def test_importing_the_same_files_again_writes_no_event(project: Project) -> None:
    files = phases.export_files(project_id=project.pk)
    before = project.events.count()
    phases.import_files(project_id=project.pk, files=files, actor=SYSTEM)
    assert project.events.count() == before


GOOD = "name: Extra\ndone_definitions: [works]\n"


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("extra.yaml", GOOD, "NN_name.yaml"),
        ("04_extra.yaml", "name: [", "not valid YAML"),
        ("04_extra.yaml", "name: Extra\ndone_definitions: []\n", "done_definitions"),
        ("04_extra.yaml", GOOD + "colour: red\n", "colour"),
        ("04_extra.yaml", GOOD + "entry: {phase: 8}\n", "phase 8"),
        ("04_extra.yaml", GOOD + "entry: {phase: 4}\n", "phase 4"),
        ("04_extra.yaml", "just text", "the file"),
    ],
)
def test_a_phase_file_that_cannot_be_used_changes_nothing_and_says_why(
    project: Project, name: str, text: str, word: str
) -> None:
    with refused(ErrorCode.INVALID_INPUT, word):
        phases.import_files(project_id=project.pk, files={"05_fine.yaml": GOOD, name: text}, actor=SYSTEM)
    assert project.phases.count() == 3


def test_phases_cannot_wait_for_each_other(project: Project) -> None:
    files = {"04_a.yaml": GOOD + "entry: {phase: 5}\n", "05_b.yaml": GOOD + "entry: {phase: 4}\n"}
    with refused(ErrorCode.CONFLICT, "wait for each other"):
        phases.import_files(project_id=project.pk, files=files, actor=SYSTEM)


def test_changed_definitions_keep_the_evidence_of_those_that_stay(project: Project, ada: Actor) -> None:
    from workflow.services import tasks
    from workflow.services.tasks import Proof

    task = made(project, ada)
    tasks.add_evidence(project_id=project.pk, task_id=task.pk, actor=ada, proofs=[Proof(1, "a"), Proof(2, "b")])
    kept = task.phase.done_definitions.all()[1].text
    content = phases.PhaseFile(name="Implementation", done_definitions=["Something new", kept])
    phases.save(project_id=project.pk, number=2, content=content, actor=SYSTEM)
    assert [item.text for item in project.phases.get(number=2).done_definitions.all()] == ["Something new", kept]
    assert list(task.evidence.values_list("content", flat=True)) == ["b"]


def test_the_only_project_needs_no_name(project: Project) -> None:
    assert ports.directory().project_of(ANY, slug=None, agent_name="ada").slug == "shop"


def test_several_projects_are_ambiguous_until_one_is_chosen(project: Project, other: Project) -> None:
    directory = ports.directory()
    with refused(ErrorCode.INVALID_INPUT, "other, shop", "set_project"):
        directory.project_of(ANY, slug=None, agent_name="ada")
    assert directory.project_of(ANY, slug="other", agent_name="ada").id == other.pk
    for slug in ("other", "shop"):
        directory.remember_project(ANY, slug=slug, agent_name="ada")
        assert directory.project_of(ANY, slug=None, agent_name="ada").slug == slug
    with refused(ErrorCode.INVALID_INPUT):
        directory.project_of(ANY, slug=None, agent_name="ben")


def test_a_key_of_a_project_sees_nothing_else(project: Project, other: Project) -> None:
    directory, tied = ports.directory(), KeyScope(key_id=1, project_id=project.pk)
    assert directory.project_of(tied, slug=None, agent_name="a").id == project.pk
    said = []
    for slug in ("other", "nowhere"):
        with refused(ErrorCode.NOT_FOUND) as caught:
            directory.project_of(tied, slug=slug, agent_name="a")
        said.append(caught.value.message.replace(slug, "X"))
        with refused(ErrorCode.NOT_FOUND):
            directory.remember_project(tied, slug=slug, agent_name="a")
    assert said[0] == said[1]
    assert not directory.role_allows(tied, other.pk, write=False)


def test_a_persons_key_sees_their_projects_and_writes_where_their_role_allows(project: Project, other: Project) -> None:
    mia = User.objects.create_user("mia")
    scope = KeyScope(key_id=1, user_id=mia.pk)
    directory = ports.directory()
    assert directory.visible_projects(scope) == []
    with refused(ErrorCode.INVALID_INPUT, "no project"):
        directory.project_of(scope, slug=None, agent_name="a")
    for role, may_write in (("viewer", False), ("member", True), ("admin", True)):
        projects.set_member(project_id=project.pk, user_id=mia.pk, role=role, actor=SYSTEM)
        assert directory.role_allows(scope, project.pk, write=False)
        assert directory.role_allows(scope, project.pk, write=True) is may_write
        assert not directory.role_allows(scope, other.pk, write=False)
    assert [seen.slug for seen in directory.visible_projects(scope)] == ["shop"]
    User.objects.filter(pk=mia.pk).update(is_superuser=True)
    assert [seen.slug for seen in directory.visible_projects(scope)] == ["other", "shop"]
    assert directory.role_allows(scope, other.pk, write=True)
    User.objects.filter(pk=mia.pk).update(is_active=False)
    assert directory.visible_projects(scope) == []
    assert not directory.role_allows(scope, project.pk, write=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "done"},
        {"status": "unknown"},
        {"priority": 9},
        {"lease_token": "x"},
        {"manual_block": "held"},
    ],
)
def test_the_database_itself_refuses_an_impossible_task(project: Project, ada: Actor, fields: dict[str, Any]) -> None:
    task = made(project, ada)
    with pytest.raises(IntegrityError), transaction.atomic():
        Task.objects.filter(pk=task.pk).update(**fields)


def test_the_database_refuses_a_second_phase_with_a_number_and_a_second_role(project: Project) -> None:
    mia = User.objects.create_user("mia")
    Membership.objects.create(user=mia, project=project)
    with pytest.raises(IntegrityError), transaction.atomic():
        Membership.objects.create(user=mia, project=project)
    with pytest.raises(IntegrityError), transaction.atomic():
        Phase.objects.create(project=project, number=1, name="Again")


def person(name: str, project: Project | None = None, role: str = "member") -> User:
    user = User.objects.create_user(name)
    if project is not None:
        projects.set_member(project_id=project.pk, user_id=user.pk, role=role, actor=SYSTEM)
    return user


def roles(project: Project) -> dict[str, str]:
    return dict(project.memberships.values_list("user__username", "role"))


def test_a_role_is_given_changed_and_taken_again_and_each_is_logged(project: Project) -> None:
    boss, mia = person("boss", project, "admin"), person("mia")
    who: dict[str, Any] = {"project_id": project.pk, "actor": SYSTEM}
    projects.add_member(**who, username=" mia ", role="viewer")
    projects.set_member(**who, user_id=mia.pk, role="admin")
    projects.set_member(**who, user_id=mia.pk, role="admin")
    assert roles(project) == {"boss": "admin", "mia": "admin"}
    projects.remove_member(**who, user_id=boss.pk)
    projects.remove_member(**who, user_id=boss.pk)
    assert roles(project) == {"mia": "admin"}
    logged = project.events.filter(kind="project.member").order_by("pk").values_list("before__role", "after__role")
    assert list(logged) == [(None, "admin"), (None, "viewer"), ("viewer", "admin"), ("admin", None)]


def test_the_last_admin_who_can_log_in_stays(project: Project) -> None:
    boss, mia = person("boss", project, "admin"), person("mia", project, "admin")
    User.objects.filter(pk=mia.pk).update(is_active=False)
    for role in ("member", "viewer"):
        with refused(ErrorCode.CONFLICT, "no admin", "somebody else"):
            projects.set_member(project_id=project.pk, user_id=boss.pk, role=role, actor=SYSTEM)
    with refused(ErrorCode.CONFLICT):
        projects.remove_member(project_id=project.pk, user_id=boss.pk, actor=SYSTEM)
    projects.remove_member(project_id=project.pk, user_id=mia.pk, actor=SYSTEM)
    assert roles(project) == {"boss": "admin"}


def test_an_unknown_person_role_or_project_is_refused(project: Project) -> None:
    person("mia")
    gone = User.objects.create_user("gone", is_active=False).username
    for name in ("nobody", gone, ""):
        with refused(ErrorCode.NOT_FOUND, "admin"):
            projects.add_member(project_id=project.pk, username=name, role="member", actor=SYSTEM)
    with refused(ErrorCode.INVALID_INPUT, "viewer"):
        projects.add_member(project_id=project.pk, username="mia", role="king", actor=SYSTEM)
    for change in (
        lambda: projects.add_member(project_id=0, username="mia", role="member", actor=SYSTEM),
        lambda: projects.remove_member(project_id=0, user_id=1, actor=SYSTEM),
        lambda: projects.configure(project_id=0, actor=SYSTEM, name="x"),
        lambda: projects.archive(project_id=0, actor=SYSTEM),
        lambda: projects.unarchive(project_id=0, actor=SYSTEM),
    ):
        with refused(ErrorCode.NOT_FOUND):
            change()


def test_a_name_is_not_empty_and_not_too_long(project: Project) -> None:
    for name in ("  ", "x" * 101):
        with refused(ErrorCode.INVALID_INPUT, "name"):
            projects.configure(project_id=project.pk, actor=SYSTEM, name=name)
    with refused(ErrorCode.INVALID_INPUT, "100"):
        projects.create(slug="long", name="x" * 101)
    assert projects.configure(project_id=project.pk, actor=SYSTEM, name=" Shop 2 ").name == "Shop 2"


def test_an_archived_project_is_out_of_reach_until_it_is_brought_back(project: Project, ada: Actor) -> None:
    boss, mia = person("boss", project, "admin"), person("mia", project)
    task = made(project, ada)
    claims.start(project_id=project.pk, task_id=task.pk, actor=ada)
    directory = ports.directory()
    tied = KeyScope(key_id=1, project_id=project.pk)
    assert directory.project_of(tied, slug=None, agent_name="ada").id == project.pk
    projects.archive(project_id=project.pk, actor=SYSTEM)
    projects.archive(project_id=project.pk, actor=SYSTEM)
    directory.forget()  # as the archiving does when its transaction commits
    task.refresh_from_db()
    assert (task.status, task.lease_token) == ("ready", None)
    with refused(ErrorCode.INVALID_INPUT, "no project"):
        directory.project_of(tied, slug=None, agent_name="ada")
    for user, seen in ((boss, ["shop"]), (mia, [])):
        assert directory.visible_projects(KeyScope(key_id=0, user_id=user.pk)) == []
        assert list(project_selectors.reachable(user).values_list("slug", flat=True)) == seen
    projects.unarchive(project_id=project.pk, actor=SYSTEM)
    projects.unarchive(project_id=project.pk, actor=SYSTEM)
    directory.forget()
    assert directory.project_of(tied, slug=None, agent_name="ada").id == project.pk
    kinds = list(project.events.filter(kind__startswith="project.").order_by("pk").values_list("kind", flat=True))
    assert kinds[-2:] == ["project.archived", "project.restored"]


def test_the_steps_of_a_new_project_end_with_a_claim_of_an_agent(project: Project) -> None:
    assert onboarding.steps(None) == onboarding.Steps(has_project=False)
    steps = onboarding.steps(project.pk)
    assert (steps.has_project, steps.is_connected, steps.has_task, steps.is_claimed) == (True, False, False, False)
    ada = joined(project, "ada")
    assert onboarding.steps(project.pk).agent is not None
    task = made(project, ada)
    steps = onboarding.steps(project.pk)
    assert (steps.first_task, steps.phase, steps.done, steps.is_complete) == (task, 2, 3, False)
    claims.claim(project_id=project.pk, phase_number=2, actor=ada)
    steps = onboarding.steps(project.pk)
    assert (steps.first_task, steps.done, steps.is_complete) == (task, 4, True)


def test_a_person_who_starts_a_task_by_hand_is_no_connected_client(project: Project) -> None:
    task = made(project, person_named("mia"))
    board.move(project_id=project.pk, task_id=task.pk, column="in_progress", actor=SYSTEM)
    steps = onboarding.steps(project.pk)
    assert (steps.is_connected, steps.has_task, steps.is_claimed) == (False, True, False)
