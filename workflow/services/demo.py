"""The demo project: a small web shop in the middle of its work, made through the services like any other."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, Min, Q
from django.utils import timezone

from devflow import actors
from devflow.actors import Actor
from devflow.ports import CallSeen
from workflow.models import Agent, Event, Evidence, Message, Note, Project, Task
from workflow.services import agents, claims, messages, phases, projects, tasks, transitions
from workflow.services.rows import phase_numbered
from workflow.services.tasks import Proof

SLUG = "demo"
TOOK = timedelta(days=9)
LAST_CHANGE = timedelta(minutes=6)
_TASK_TIMES = ("created_at", "updated_at", "ready_since", "started_at", "completed_at")


@dataclass(frozen=True, slots=True)
class Seed:
    """A task of the demo. `after` names the keys of the tasks it waits for."""

    key: str
    phase: int
    text: str
    priority: str = "medium"
    tags: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


SEEDS = (
    Seed(
        "map",
        1,
        "Map how sign-in works today\n\nList every route that reads the session, with file and line.",
        "high",
        ("auth",),
    ),
    Seed(
        "tokens",
        1,
        "Compare session cookies and JWT for the mobile app\n\nEnd with a recommendation.",
        "medium",
        ("auth", "mobile"),
    ),
    Seed(
        "limits",
        1,
        "Find out what the payment provider limits\n\nRequests a minute, idempotency, retries.",
        "medium",
        ("payments",),
    ),
    Seed(
        "schema",
        1,
        "Describe the order tables and their indexes\n\nOne page; mark what nobody reads.",
        "low",
        ("orders",),
    ),
    Seed(
        "login",
        2,
        "Build POST /auth/login\n\nAnswers a token; wrong passwords take as long as right ones.\n\n"
        "- tests for both\n- documented",
        "high",
        ("auth", "api"),
        ("map", "tokens"),
    ),
    Seed(
        "refresh",
        2,
        "Build POST /auth/refresh\n\nRotate the refresh token; the old one stops working.",
        "high",
        ("auth", "api"),
        ("login",),
    ),
    Seed(
        "middleware",
        2,
        "Check the token on every API route\n\n401 with a problem document.",
        "medium",
        ("auth", "api"),
        ("login",),
    ),
    Seed(
        "retry",
        2,
        "Retry payment calls with the same idempotency key\n\nAt most three times, with jitter.",
        "high",
        ("payments",),
        ("limits",),
    ),
    Seed(
        "webhook",
        2,
        "Verify the signature of payment webhooks\n\nRefuse what is older than five minutes.",
        "medium",
        ("payments",),
    ),
    Seed("export", 2, "Export orders as CSV\n\nStreamed; the columns of the accounting import.", "low", ("orders",)),
    Seed("invoice", 2, "Number invoices without gaps\n\nAlso under parallel orders.", "medium", ("orders", "payments")),
    Seed(
        "e2e",
        3,
        "Walk through sign-up, order and payment as a customer\n\nIn a real browser.",
        "medium",
        ("auth", "payments"),
        ("refresh", "retry"),
    ),
    Seed(
        "load", 3, "Load-test the order list with 100,000 orders\n\np95 below 200 ms.", "low", ("orders",), ("export",)
    ),
    Seed("docs", 3, "Try the API documentation as a newcomer\n\nEvery example must run as printed.", "low", ("api",)),
)


@transaction.atomic
def seed_demo(*, reset: bool = False) -> Project:
    """Make the project `demo` with tasks in every column, agents, messages, notes and evidence.

    Where it exists it is left as it is; `reset` makes it anew, with the same id, so that its keys and members stay.
    """
    project = Project.objects.filter(slug=SLUG).first()
    if project is not None and not reset:
        return project
    if project is None:
        project = projects.create(
            slug=SLUG, name="Demo shop", description="A small web shop with a mobile app on its way.", template=None
        )
    else:
        project.tasks.all().delete()
        project.agents.all().delete()
        project.events.all().delete()
        project.gates.all().delete()
        project.phases.all().delete()
        Project.objects.filter(pk=project.pk).update(next_ref=1)
    setup = Actor(kind="system", name="demo")
    phases.apply_template(project_id=project.pk, template="analysis", actor=setup)
    projects.configure(project_id=project.pk, actor=setup, column_limits={"in_progress": 6})
    _require_review(project, phase=2)
    _Story(project).tell()
    _require_review(project, phase=3)  # from now on: a newcomer's first task is built and done, as the PRD's is
    project.refresh_from_db()
    return project


def _require_review(project: Project, *, phase: int) -> None:
    """Have what is finished in this phase reviewed, and nowhere else."""
    project.phases.update(requires_review=Q(number=phase))


class _Story:
    """What happened in the demo so far."""

    def __init__(self, project: Project) -> None:
        self.project_id = project.pk
        self.ada = self._agent("analyst-ada", client="claude-code")
        self.ben = self._agent("builder-ben", client="opencode")
        self.vera = self._agent("checker-vera", client="cursor")
        self.tasks: dict[str, Task] = {}

    def _agent(self, name: str, *, client: str) -> Actor:
        agent = agents.contact(project_id=self.project_id, name=name, session="", client=client, transport="demo")
        return actors.agent(agent_id=agent.pk, name=agent.name, tool="demo")

    def tell(self) -> None:
        for seed in SEEDS:
            self.tasks[seed.key] = tasks.create(
                project_id=self.project_id,
                phase_number=seed.phase,
                description=seed.text,
                priority=seed.priority,
                tags=seed.tags,
                blocked_by=[self.tasks[key].pk for key in seed.after],
                actor=self.ada,
            )
        self._finish("map", self.ada, "Eleven routes read the session; the list is in the note.", proofs=True)
        self._note("map", self.ada, "Sessions are read in `web/session.py` and, by hand, in two admin views.")
        self._finish("tokens", self.ada, "JWT with rotating refresh tokens; reasons saved as a decision.")
        self._finish("limits", self.ada, "100 requests a minute; idempotency keys live for 24 hours.")
        self._start("schema", self.ada)
        self._note("schema", self.ada, "`order_log` has no reader since the old reports went.")
        self._finish("login", self.ben, "Login answers a token pair; timing is equal within 2 ms. All tests pass.")
        transitions.review(
            project_id=self.project_id,
            task_id=self.tasks["login"].pk,
            decision="approve",
            feedback="Tried with curl and the app. Good.",
            actor=self.vera,
        )
        self._start("refresh", self.ben)
        self._note("refresh", self.ben, "Rotation works; reuse detection is next.")
        self._finish("retry", self.ben, "Three tries with jitter; the key stays the same.")
        self._start("webhook", self.ben)
        transitions.fail(
            project_id=self.project_id,
            task_id=self.tasks["webhook"].pk,
            result="The provider's test secret is not in this environment.",
            actor=self.ben,
        )
        tasks.hold_back(
            project_id=self.project_id,
            task_id=self.tasks["invoice"].pk,
            reason="Accounting decides on the number format",
            actor=self.vera,
        )
        self._start("docs", self.vera)
        self._say(self.ben, "checker-vera", "The retry is ready; try it with the provider switched off.", "retry")
        self._say(self.vera, "builder-ben", "Refresh: please log reuse of an old token, I will look for it.", "refresh")
        self._say(self.ada, "*", "The decision on tokens is on its task; read it before you touch auth.", "tokens")
        for actor, number in ((self.ada, 1), (self.ben, 2), (self.vera, 3)):
            phase = phase_numbered(project_id=self.project_id, number=number)
            Agent.objects.filter(project_id=self.project_id, name=actor.name).update(phase=phase)
        self._calls(self.ada, "claim_task", "get_tasks", "get_tasks", "add_task_note", "get_phase_info")
        self._calls(self.ada, "get_my_task", "create_task", "add_task_note", seconds_ago=170)
        self._calls(self.ben, "claim_task", "get_my_task", "get_my_task", "update_task_status", failing=(1,))
        self._calls(self.ben, "claim_task", "get_messages", "add_task_note", "send_message_to_agent", seconds_ago=40)
        self._calls(self.vera, "get_phase_info", "get_tasks", "get_tasks", "review_task", "claim_task", "ack_message")
        self._stretch()
        self._keep_leases()

    def _calls(self, actor: Actor, *tools: str, seconds_ago: int = 320, failing: tuple[int, ...] = ()) -> None:
        """What the server saw of an agent: the last call `seconds_ago`, the ones before it 20 s apart."""
        last = timezone.now() - timedelta(seconds=seconds_ago)
        agents.record_calls(
            agent_id=actor.agent_id or 0,
            calls=[
                CallSeen(
                    at=last - timedelta(seconds=20 * (len(tools) - 1 - number)),
                    session="",
                    tool=tool,
                    arguments_hash=f"{seconds_ago} {tool}",
                    ok=number not in failing,
                    in_scope=True,
                )
                for number, tool in enumerate(tools)
            ],
        )

    def _stretch(self) -> None:
        """Have it taken nine days instead of a second, each moment in its place, so that its charts say something."""
        times = Event.objects.filter(project_id=self.project_id).aggregate(first=Min("at"), last=Max("at"))
        first, last = times["first"], times["last"]
        whole = max(last - first, timedelta(milliseconds=1))

        def stretched(at: datetime | None) -> datetime | None:
            return None if at is None else last - LAST_CHANGE - (last - at) / whole * TOOK

        for rows, fields in (
            (Event.objects.filter(project_id=self.project_id), ("at",)),
            (Task.objects.filter(project_id=self.project_id), _TASK_TIMES),
            (Note.objects.filter(task__project_id=self.project_id), ("created_at",)),
            (Evidence.objects.filter(task__project_id=self.project_id), ("created_at",)),
            (Message.objects.filter(project_id=self.project_id), ("delivered_at",)),
        ):
            found: list[Any] = list(rows)
            for row in found:
                for name in fields:
                    setattr(row, name, stretched(getattr(row, name)))
            rows.model._default_manager.bulk_update(found, fields)

    def _keep_leases(self) -> None:
        """Nobody calls for these agents: their leases last the first day, so that the board stays as it was made."""
        held = Task.objects.filter(project_id=self.project_id, lease_token__isnull=False)
        held.update(lease_minutes=24 * 60, lease_expires_at=timezone.now() + timedelta(days=1))

    def _start(self, key: str, actor: Actor) -> None:
        claims.start(project_id=self.project_id, task_id=self.tasks[key].pk, actor=actor)

    def _finish(self, key: str, actor: Actor, result: str, *, proofs: bool = False) -> None:
        self._start(key, actor)
        transitions.finish(
            project_id=self.project_id,
            task_id=self.tasks[key].pk,
            actor=actor,
            result=result,
            evidence=[Proof(definition=1, content="web/session.py lines 12-88; admin/views.py line 40")]
            if proofs
            else (),
        )

    def _note(self, key: str, actor: Actor, body: str) -> None:
        tasks.add_note(project_id=self.project_id, task_id=self.tasks[key].pk, body=body, actor=actor)

    def _say(self, actor: Actor, to: str, body: str, key: str) -> None:
        messages.send(project_id=self.project_id, to=to, body=body, task_id=self.tasks[key].pk, actor=actor)
