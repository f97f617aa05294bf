"""What the gateway keeps: backends with their actions, running children, plans to confirm, composite tools."""

from typing import Any, ClassVar

from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from mcpbridge.models.access import ApiKey

BACKEND_ID = r"^[a-zA-Z0-9_-]{1,64}$"
TOOL_NAME = r"^[a-z][a-z0-9_]{0,47}$"


class Transport(models.TextChoices):
    STDIO = "stdio", "stdio: a process of this server"
    HTTP = "http", "Streamable HTTP"
    SSE = "sse", "HTTP with SSE"
    AGENT_CLI = "agent_cli", "an agent's command line, with this one server"


class Isolation(models.TextChoices):
    AGENT = "agent", "agent: a session kept open"
    SUBPROCESS = "subprocess", "subprocess: a fresh process for each call"


class IntentChoice(models.TextChoices):
    QUERY = "QUERY"
    ANALYZE = "ANALYZE"
    GENERATE = "GENERATE"
    MODIFY = "MODIFY"
    EXECUTE = "EXECUTE"


class EffectChoice(models.TextChoices):
    READ_ONLY = "READ_ONLY"
    MUTATING = "MUTATING"
    EXTERNAL_EXEC = "EXTERNAL_EXEC"


class Backend(models.Model):
    """Another MCP server behind the gateway. `env` and `headers` are sealed; nothing gives them out again."""

    class Status(models.TextChoices):
        NEW = "new"
        UP = "up"
        DOWN = "down"

    backend_id = models.CharField(
        "id",
        max_length=64,
        unique=True,
        validators=[RegexValidator(BACKEND_ID, "1 to 64 of A-Z a-z 0-9 _ and -")],
        help_text="How requests name it, such as serena.",
    )
    display_name = models.CharField(max_length=100, blank=True)
    transport = models.CharField(max_length=16, choices=Transport, default=Transport.STDIO)
    command = models.CharField(max_length=500, blank=True, help_text="The program, such as npx.")
    args = models.JSONField(default=list, blank=True, help_text="Its arguments, a list of texts.")
    sealed_env = models.TextField(blank=True, editable=False)
    inherit_env = models.JSONField(
        default=list, blank=True, help_text="Names of this server's environment variables it is given too."
    )
    url = models.CharField(max_length=500, blank=True, help_text="Where it is served, for http and sse.")
    wraps = models.CharField(
        max_length=64, blank=True, help_text="For agent_cli: the id of the backend whose server the agent is given."
    )
    sealed_headers = models.TextField(blank=True, editable=False)
    version = models.CharField(max_length=64, blank=True, help_text="The version that is pinned.")
    isolation = models.CharField(max_length=16, choices=Isolation, default=Isolation.AGENT)
    timeouts = models.JSONField(default=dict, blank=True, help_text="Milliseconds by intent, over the defaults.")
    concurrency = models.PositiveSmallIntegerField(default=8, help_text="Calls at work at once in a server process.")
    memory_mb = models.PositiveIntegerField(
        default=4096, help_text="Memory a process may fill, in MiB, at least 2048; 0: not limited."
    )
    warm_spares = models.PositiveSmallIntegerField(
        default=0, help_text="Fresh processes kept ready for isolation `subprocess`."
    )
    sandbox = models.BooleanField(default=False, help_text="Run its processes under bubblewrap, where it is installed.")
    may_ask = models.BooleanField(
        "may ask the client",
        default=True,
        help_text="While a call runs it may ask the client's user (elicitation) or model (sampling) something.",
    )
    allowed_roots = models.JSONField(
        default=list, blank=True, help_text="Directories a project_root may lie in; empty: DEVFLOW_ALLOWED_ROOTS."
    )
    activation = models.JSONField(
        null=True,
        blank=True,
        help_text='Called once in a session before anything else: {"action", "params"}; {project_root} is replaced.',
    )
    is_enabled = models.BooleanField("enabled", default=True)
    status = models.CharField(max_length=8, choices=Status, default=Status.NEW, editable=False)
    status_detail = models.TextField(blank=True, editable=False)
    checked_at = models.DateTimeField(null=True, editable=False)
    server_info = models.JSONField(default=dict, editable=False)
    protocol_version = models.CharField(max_length=16, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering: ClassVar = ["backend_id"]

    def __str__(self) -> str:
        return self.display_name or self.backend_id


class Action(models.Model):
    """One tool of a backend, as it was approved. `held` is what it wants to be now and nobody has approved yet."""

    backend = models.ForeignKey(Backend, models.CASCADE, related_name="actions")
    name = models.CharField(max_length=128)
    title = models.CharField(max_length=200, blank=True)
    description = models.TextField(blank=True)
    input_schema = models.JSONField(default=dict)
    output_schema = models.JSONField(null=True)
    annotations = models.JSONField(default=dict)
    fingerprint = models.CharField(max_length=64)
    held = models.JSONField(null=True, editable=False)
    held_since = models.DateTimeField(null=True, editable=False)
    problem = models.TextField(blank=True, editable=False, help_text="Why it cannot be called, such as its schema.")
    is_gone = models.BooleanField("gone", default=False, editable=False)
    is_enabled = models.BooleanField("enabled", default=True)
    is_federated = models.BooleanField(
        "in the main list", default=False, help_text="Listed among DevFlow's own tools as backend__tool."
    )
    intent = models.CharField(max_length=16, choices=IntentChoice, editable=False)
    effect = models.CharField(max_length=16, choices=EffectChoice, editable=False)
    intent_override = models.CharField(max_length=16, choices=IntentChoice, blank=True)
    effect_override = models.CharField(max_length=16, choices=EffectChoice, blank=True)
    artifact = models.CharField(max_length=16, default="JSON")
    aliases = models.JSONField(default=list, blank=True, help_text="Other names it answers to.")
    lookup = models.JSONField(
        null=True,
        blank=True,
        help_text='Asked before a change: {"action", "params"}; an empty answer stops it. {name} is the call\'s own.',
    )
    references = models.JSONField(
        null=True, blank=True, help_text='What a change touches: {"action", "params", "limit"}; its count is reported.'
    )
    first_seen = models.DateTimeField(default=timezone.now, editable=False)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["backend", "name"], name="one_action_of_a_name")]

    def __str__(self) -> str:
        return f"{self.backend.backend_id}.{self.name}"


class ChildProcess(models.Model):
    """The ledger of processes started for backends: a row as long as one lives. The reaper ends what is left over."""

    child_id = models.CharField(max_length=32, unique=True)
    backend = models.ForeignKey(Backend, models.SET_NULL, null=True, related_name="children")
    kind = models.CharField(max_length=16, help_text="session, call, spare or agent_cli.")
    host = models.CharField(max_length=100)
    pid = models.PositiveIntegerField()
    started_ticks = models.BigIntegerField(
        help_text="Start time of the pid in clock ticks since boot: pids come again."
    )
    owner_pid = models.PositiveIntegerField()
    owner_ticks = models.BigIntegerField()
    started_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering: ClassVar = ["-started_at"]
        verbose_name_plural = "child processes"

    def __str__(self) -> str:
        return f"{self.pid} ({self.kind})"


class Plan(models.Model):
    """What the orchestrator would do and somebody must confirm. It is good for ten minutes and runs once."""

    class State(models.TextChoices):
        WAITING = "waiting"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        REFUSED = "refused"

    plan_id = models.CharField(max_length=32, unique=True)
    key = models.ForeignKey(ApiKey, models.CASCADE, null=True, related_name="+")
    agent_name = models.CharField(max_length=120, blank=True)
    project = models.ForeignKey("workflow.Project", models.CASCADE, null=True, related_name="+")
    query = models.TextField()
    request = models.JSONField(help_text="The gateway request that confirming runs.")
    effect = models.CharField(max_length=16, choices=EffectChoice)
    signature = models.CharField(max_length=64)
    state = models.CharField(max_length=8, choices=State, default=State.WAITING)
    answer = models.JSONField(null=True)
    decided_by = models.CharField(max_length=150, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["-created_at"]

    def __str__(self) -> str:
        return self.query[:60]


class CompositeTool(models.Model):
    """A tool made of steps; a change makes the next version, and earlier ones stay callable until they are retired.

    `steps`: `[{"id", "action", "params"}]`, where a text `{{input.name}}` or `{{step_id.path.to.value}}` stands for a
    value of the call or of an earlier answer.
    """

    name = models.CharField(max_length=48, validators=[RegexValidator(TOOL_NAME, "lower case, digits and _")])
    version = models.PositiveIntegerField(default=1, editable=False)
    description = models.TextField()
    input_schema = models.JSONField(default=dict)
    steps = models.JSONField(default=list)
    is_enabled = models.BooleanField("enabled", default=True)
    retired_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering: ClassVar = ["name", "-version"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["name", "version"], name="one_composite_of_a_version"),
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"

    @property
    def facts(self) -> dict[str, Any]:
        """What makes one version differ from another."""
        return {"description": self.description, "input_schema": self.input_schema, "steps": self.steps}


class KeptAnswer(models.Model):
    """The whole of an answer that was too large to give at once: read by the key that got it, for a day."""

    answer_id = models.CharField(max_length=32, unique=True)
    key_id = models.IntegerField(help_text="The key it is for; 0: none, this machine's own.")
    user_id = models.IntegerField(null=True)
    media_type = models.CharField(max_length=64)
    text = models.TextField()
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering: ClassVar = ["-created_at"]

    def __str__(self) -> str:
        return self.answer_id
