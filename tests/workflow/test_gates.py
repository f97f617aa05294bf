from collections.abc import Iterator
from pathlib import Path

import pytest

from devflow import config
from devflow.actors import Actor
from devflow.errors import ErrorCode
from workflow.models import Event, Gate, Project
from workflow.services import gates
from workflow.services.gates import ANALYSIS_DONE

from .scenes import made, refused

pytestmark = pytest.mark.django_db


@pytest.fixture
def allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "allowed"
    root.mkdir()
    monkeypatch.setenv("DEVFLOW_ALLOWED_ROOTS", str(root))
    config.current.cache_clear()
    yield root
    monkeypatch.undo()
    config.current.cache_clear()


def test_a_gate_is_set_once_and_logged_with_who_and_why(project: Project, ada: Actor) -> None:
    task = made(project, ada)
    for _ in range(2):
        gate = gates.set_gate(
            project_id=project.pk, name=ANALYSIS_DONE, task_id=task.public_id, reason="understood", actor=ada
        )
    assert (gate.is_set, gate.version, gate.actor_name, gate.reason) == (True, 1, "ada", "understood")
    assert Event.objects.filter(kind="gate.set").count() == 1


def test_a_gate_is_changed_only_at_the_version_it_was_seen(project: Project, ada: Actor) -> None:
    gate = gates.set_gate(project_id=project.pk, name="mine", expected_version=0, actor=ada)
    with refused(ErrorCode.CONFLICT, "changed meanwhile"):
        gates.set_gate(project_id=project.pk, name="mine", expected_version=0, is_set=False, actor=ada)
    cleared = gates.set_gate(project_id=project.pk, name="mine", expected_version=gate.version, is_set=False, actor=ada)
    assert (cleared.is_set, cleared.version) == (False, gate.version + 1)


def test_gates_belong_to_one_known_thing_and_have_plain_names(project: Project, other: Project, ada: Actor) -> None:
    foreign = made(other, ada)
    with refused(ErrorCode.NOT_FOUND):
        gates.set_gate(project_id=project.pk, name="mine", task_id=foreign.pk, actor=ada)
    with refused(ErrorCode.NOT_FOUND):
        gates.set_gate(project_id=project.pk, name="mine", phase_number=9, actor=ada)
    for name in ("../etc", "UPPER", ""):
        with refused(ErrorCode.INVALID_INPUT):
            gates.set_gate(project_id=project.pk, name=name, actor=ada)
    assert not Gate.objects.exists()


def test_consuming_takes_the_nearest_gate_once(project: Project, ada: Actor) -> None:
    task = made(project, ada)
    gates.set_gate(project_id=project.pk, name=ANALYSIS_DONE, actor=ada)
    gates.set_gate(project_id=project.pk, name=ANALYSIS_DONE, phase_number=2, actor=ada)
    gates.set_gate(project_id=project.pk, name=ANALYSIS_DONE, task_id=task.pk, actor=ada)
    for left in (2, 1, 0):
        assert gates.is_open(project_id=project.pk, name=ANALYSIS_DONE, task_id=task.pk)
        gates.consume(project_id=project.pk, name=ANALYSIS_DONE, task_id=task.pk, actor=ada)
        assert Gate.objects.filter(is_set=True).count() == left
    with refused(ErrorCode.PRECONDITION_FAILED, "set_gate"):
        gates.consume(project_id=project.pk, name=ANALYSIS_DONE, task_id=task.pk, actor=ada)


def test_the_mirror_file_follows_the_gate_and_suffices_alone(
    project: Project, ada: Actor, allowed: Path, django_capture_on_commit_callbacks: pytest.FixtureRequest
) -> None:
    capture = django_capture_on_commit_callbacks
    file = allowed / ".analysis-done"
    with capture(execute=True):  # type: ignore[operator]  # the fixture is a function
        gates.set_gate(project_id=project.pk, name=ANALYSIS_DONE, actor=ada, project_root=str(allowed))
    assert "ada" in file.read_text()
    with capture(execute=True):  # type: ignore[operator]  # the fixture is a function
        gates.consume(project_id=project.pk, name=ANALYSIS_DONE, actor=ada, project_root=str(allowed))
    assert not file.exists()
    file.write_text("by hand")
    assert gates.is_open(project_id=project.pk, name=ANALYSIS_DONE, project_root=str(allowed))
    gates.consume(project_id=project.pk, name=ANALYSIS_DONE, actor=ada, project_root=str(allowed))
    assert not file.exists()


def test_a_mirror_outside_the_allowed_roots_is_refused(
    project: Project, ada: Actor, allowed: Path, tmp_path: Path
) -> None:
    (allowed / "link").symlink_to(tmp_path)
    for root in (tmp_path, allowed / "..", allowed / "link"):
        with refused(ErrorCode.FORBIDDEN, "DEVFLOW_ALLOWED_ROOTS"):
            gates.set_gate(project_id=project.pk, name="mine", actor=ada, project_root=str(root))
    with refused(ErrorCode.INVALID_INPUT):
        gates.set_gate(project_id=project.pk, name="mine", actor=ada, project_root=str(allowed / "missing"))
