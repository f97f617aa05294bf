"""The figures of the Insights page: how work flows, how long it takes, and what the tool calls were like."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property

from devflow import ports
from devflow.ports import CallFigures, CallTally
from workflow.models import Project, Sprint
from workflow.selectors import insights, planning
from workflow.selectors.insights import Day, Finished, Parts, Scope, Span, percentile
from workflow.views.figures import Column, Figure, Row, Value, lasting

CALLS_UNTIL = "Calls over MCP and REST are counted once a client is connected."
MOST_SPRINTS = 50
PHASE_HUES = ("accent", "teal", "warn", "violet", "good", "bad")


@dataclass
class Insights:
    """The history of one project over one span. What several figures need is read once; what none needs, never."""

    project: Project
    span: Span
    of: str = ""
    """The part burned down: `phase-2` by number, `epic-17` by id; else everything."""
    sprint: str = ""
    """The id of the sprint burned down; else the one that runs."""

    @cached_property
    def parts(self) -> Parts:
        return insights.parts(project_id=self.project.pk)

    @cached_property
    def choices(self) -> list[tuple[str, str]]:
        """What `of` may be, with the words for it."""
        phases = [(f"phase-{phase.number}", f"Phase {phase}") for phase in self.parts.phases]
        return phases + [(f"epic-{epic.pk}", f"Epic {epic}") for epic in self.parts.epics]

    @cached_property
    def scope(self) -> Scope:
        phase = next((one.pk for one in self.parts.phases if self.of == f"phase-{one.number}"), None)
        epic = next((one.pk for one in self.parts.epics if self.of == f"epic-{one.pk}"), None)
        return Scope(self.project.pk, phase_id=phase, epic_id=epic)

    @cached_property
    def flow(self) -> list[Day]:
        return insights.flow(scope=Scope(self.project.pk), span=self.span)

    @cached_property
    def burned(self) -> list[Day]:
        return self.flow if self.scope == Scope(self.project.pk) else insights.flow(scope=self.scope, span=self.span)

    @cached_property
    def finished(self) -> list[Finished]:
        return insights.finished(project_id=self.project.pk, span=self.span)

    @cached_property
    def attempts(self) -> Mapping[date, Counter[str]]:
        return insights.attempts(project_id=self.project.pk, span=self.span)

    @cached_property
    def calls(self) -> CallFigures:
        return ports.call_figures().figures(self.project.pk, since=self.span.since)

    @cached_property
    def sprints(self) -> list[Sprint]:
        """The newest, those that are open first."""
        rows = Sprint.objects.filter(project=self.project).order_by("is_closed", "-starts_on", "-pk")
        return list(rows[:MOST_SPRINTS])

    @cached_property
    def of_sprint(self) -> Sprint | None:
        named = next((one for one in self.sprints if str(one.pk) == self.sprint), None)
        return named or planning.current(self.sprints)

    @property
    def step_name(self) -> str:
        return "Day" if self.span.step == 1 else "Week from"

    @property
    def is_empty(self) -> bool:
        return not self.calls.total.calls and not any(day.added or any(day.columns.values()) for day in self.flow)


def flow(of: Insights) -> Figure:
    hues = {"backlog": "ink-3", "ready": "teal", "in_progress": "accent", "review": "warn", "done": "good"}
    last = of.flow[-1].columns
    labels = {name: name.replace("_", " ").capitalize() for name in hues}
    return Figure(
        name="flow",
        title="Cumulative flow",
        says="Tasks in each column at the end of the day. A band that widens is where work piles up.",
        chart="area",
        head="Day",
        columns=[Column(labels[name], hue=hue) for name, hue in hues.items()],
        rows=_unless_empty(of.flow, lambda day: [day.columns[name] for name in hues]),
        until="The bands begin with the first task on the board.",
        found=f"Now: {', '.join(f'{last[name]:,} {labels[name].lower()}' for name in hues)}.",
    )


def _unless_empty(days: Sequence[Day], values: Callable[[Day], list[Value]]) -> list[Row]:
    if not any(day.added or any(day.columns.values()) for day in days):
        return []
    return [(day.date, values(day)) for day in days]


def burndown(of: Insights) -> Figure:
    named = dict(of.choices).get(of.of, "")
    return Figure(
        name="burndown",
        title="Burndown",
        says=f"Tasks that are still open at the end of the day{f': {named}' if named else ''}.",
        chart="line",
        head="Day",
        columns=[Column("Open", hue="accent"), Column("Added"), Column("Done"), Column("Called off")],
        rows=_unless_empty(of.burned, lambda day: [day.open, day.added, day.done, day.cancelled]),
        until="There is nothing to burn down here: it has no tasks yet." if named else "It begins with the first task.",
        found=_outlook(of.burned),
    )


def _outlook(days: Sequence[Day]) -> str:
    added, done = sum(day.added for day in days), sum(day.done for day in days)
    left = days[-1].open
    pace = (done - added) / len(days)
    said = f"{added:,} added and {done:,} done in {len(days)} days, {left:,} open."
    if left == 0 or pace <= 0 or left / pace > 730:
        return said
    return f"{said} At this pace nothing is left about {days[-1].date + timedelta(days=round(left / pace)):%-d %B %Y}."


def sprint(of: Insights) -> Figure:
    return sprint_figure(of.of_sprint)


def sprint_figure(found: Sprint | None) -> Figure:
    """How one sprint burns down: what is left at the end of each day, beside the straight line to nothing."""
    burned = planning.burndown(found) if found else None
    unit = "points" if burned and burned.in_points else "stories"
    days = burned.days if burned else []
    left = next((day.left for day in reversed(days) if day.left is not None), None)
    return Figure(
        name="sprint",
        title="Sprint burndown",
        says=f"{unit.capitalize()} of {found} not finished at the end of the day, and the straight line to none."
        if found
        else "What is left of a sprint, day by day.",
        chart="line",
        head="Day",
        columns=[
            Column(f"{unit.capitalize()} left", hue="accent"),
            Column("Ideal", hue="ink-3", dashed=True),
            Column("Stories left"),
        ],
        rows=[(day.date, [_short(day.left), _short(day.ideal), day.stories]) for day in days],
        until="No story is in this sprint yet. The backlog puts them there." if found else "There is no sprint yet.",
        found=_sprint_outlook(burned, left, unit) if burned and days else "",
    )


def _short(number: float | None) -> Value:
    """Points without a tail of zeros."""
    return int(number) if number is not None and number == int(number) else number


def _sprint_outlook(burned: planning.Burndown, left: float | None, unit: str) -> str:
    total = f"{_short(burned.total):,} {unit}"
    if left is None:
        return f"{total}; it has not begun."
    ideal = next(day.ideal for day in reversed(burned.days) if day.left is not None)
    pace = "on the line" if left == ideal else "ahead of the line" if left < ideal else "behind the line"
    return f"{_short(left):,} of {total} left, {pace}."


def throughput(of: Insights) -> Figure:
    by_step: dict[date, Counter[int]] = {step: Counter() for step in of.span.steps}
    for task in of.finished:
        by_step.setdefault(of.span.step_of(task.on), Counter())[task.phase_id] += 1
    done = Counter(task.phase_id for task in of.finished)
    phases = [phase for phase in of.parts.phases if phase.pk in done]
    shown, rest = phases[: len(PHASE_HUES)], phases[len(PHASE_HUES) :]
    columns = [Column(str(phase), hue=hue) for phase, hue in zip(shown, PHASE_HUES, strict=False)]
    if rest:
        columns.append(Column("Other phases", hue="ink-3"))
    rows: list[Row] = [
        (
            step,
            [
                *(counts[phase.pk] for phase in shown),
                *([sum(counts[phase.pk] for phase in rest)] if rest else []),
                counts.total(),
            ],
        )
        for step, counts in by_step.items()
    ]
    return Figure(
        name="throughput",
        title="Throughput",
        says=f"Tasks done in a {'day' if of.span.step == 1 else 'week'}, by phase.",
        chart="bars",
        head=of.step_name,
        columns=[*columns, Column("All")],
        rows=rows if done else [],
        until="No task was done in this time. A task is done when its agent finishes it, or a person approves it.",
        found=f"{done.total():,} done, {done.total() / len(of.span.days):.1f} a day.",
    )


def cycle(of: Insights) -> Figure:
    return _times(of, "cycle", "Cycle time", "From the first start to done", lambda task: task.cycle)


def lead(of: Insights) -> Figure:
    return _times(of, "lead", "Lead time", "From created to done", lambda task: task.lead)


def _times(of: Insights, name: str, title: str, says: str, took: Callable[[Finished], float | None]) -> Figure:
    by_step: dict[date, dict[bool, list[float]]] = {step: {True: [], False: []} for step in of.span.steps}
    whole: dict[bool, list[float]] = {True: [], False: []}
    for task in of.finished:
        seconds = took(task)
        if seconds is not None:
            of_step = by_step.setdefault(of.span.step_of(task.on), {True: [], False: []})
            of_step[task.by_agent].append(seconds)
            whole[task.by_agent].append(seconds)
    columns = []
    for who, hue in (("Agents", "accent"), ("People", "warn")):
        columns += [
            Column(f"{who}: tasks"),
            Column(f"{who}: half within", "s", hue),
            Column(f"{who}: 85 % within", "s", hue, dashed=True),
        ]
    rows: list[Row] = [
        (
            step,
            [
                value
                for by_agent in (True, False)
                for value in (len(took[by_agent]), percentile(took[by_agent], 0.5), percentile(took[by_agent], 0.85))
            ],
        )
        for step, took in by_step.items()
    ]
    halves = {who: percentile(whole[by_agent], 0.5) for who, by_agent in (("agents'", True), ("people's", False))}
    said = [f"half of {who} tasks within {lasting(half)}" for who, half in halves.items() if half is not None]
    return Figure(
        name=name,
        title=title,
        says=f"{says}: how long half and 85 of 100 tasks took, those of agents and those of people.",
        chart="line",
        head=of.step_name,
        columns=columns,
        rows=rows if any(whole.values()) else [],
        until="No task that was started was done in this time.",
        found=f"{', '.join(said).capitalize()}.",
    )


def attempts(of: Insights) -> Figure:
    columns = {
        "started": Column("Started", hue="accent"),
        "expired": Column("Lease expired", hue="warn"),
        "given_up": Column("Given up", hue="bad"),
        "sent_back": Column("Sent back by review", hue="violet", dashed=True),
    }
    total = sum(of.attempts.values(), Counter())
    return Figure(
        name="attempts",
        title="Attempts and lease expiries",
        says="How often a task was started, and how tries ended that did not end well.",
        chart="line",
        head="Day",
        columns=list(columns.values()),
        rows=[(day, [tally[name] for name in columns]) for day, tally in of.attempts.items()] if total else [],
        until="Nobody has started a task in this time. Agents do with claim_task, people by moving a card.",
        found=f"{total['started']:,} started, {total['expired']:,} expired, {total['given_up']:,} given up.",
    )


def _succeeded(tally: CallTally) -> float | None:
    return 100 * (tally.calls - tally.failed) / tally.calls if tally.calls else None


def _call_days(of: Insights) -> Iterable[tuple[date, CallTally]]:
    """Every day there is a count of, silent ones too."""
    by_day = {day.name: day for day in of.calls.days}
    for day in of.span.days:
        if day.isoformat() >= of.calls.counted_from:
            yield day, by_day.get(day.isoformat()) or CallTally("", 0, 0, 0.0, 0.0)


def calls(of: Insights) -> Figure:
    total = of.calls.total
    return Figure(
        name="calls",
        title="Calls a day",
        says="Calls a day over MCP and REST, and how many failed.",
        chart="bars",
        head="Day",
        columns=[Column("Succeeded", hue="accent"), Column("Failed", hue="bad"), Column("Success rate", "%")],
        rows=[(day, [tally.calls - tally.failed, tally.failed, _succeeded(tally)]) for day, tally in _call_days(of)]
        if total.calls
        else [],
        until=CALLS_UNTIL,
        found=f"{total.calls:,} calls, {_succeeded(total) or 0:.1f} % succeeded.",
    )


def latency(of: Insights) -> Figure:
    total = of.calls.total
    return Figure(
        name="latency",
        title="Latency",
        says="How long the server took for half and for 95 of 100 calls.",
        chart="line",
        head="Day",
        columns=[Column("p50", "s", "accent"), Column("p95", "s", "violet", dashed=True)],
        rows=[(day, [tally.p50, tally.p95] if tally.calls else [None, None]) for day, tally in _call_days(of)]
        if total.calls
        else [],
        until=CALLS_UNTIL,
        found=f"p50 {lasting(total.p50)}, p95 {lasting(total.p95)}.",
    )


def tools(of: Insights) -> Figure:
    return _ranked("tools", "Most used tools", "Calls by tool, the most used first.", "Tool", of.calls.tools)


def clients(of: Insights) -> Figure:
    return _ranked("clients", "Clients", "Calls by the kind of client that made them.", "Client", of.calls.clients)


def _ranked(name: str, title: str, says: str, head: str, tallies: Sequence[CallTally]) -> Figure:
    return Figure(
        name=name,
        title=title,
        says=says,
        chart="ranks",
        head=head,
        columns=[
            *(Column("Succeeded", hue="accent"), Column("Failed", hue="bad"), Column("Success rate", "%")),
            *(Column("p50", "s"), Column("p95", "s")),
        ],
        rows=[(one.name, [one.calls - one.failed, one.failed, _succeeded(one), one.p50, one.p95]) for one in tallies],
        until=CALLS_UNTIL,
        found=f"First: {', '.join(one.name for one in tallies[:3])}.",
    )


def errors(of: Insights) -> Figure:
    tallies = of.calls.errors
    return Figure(
        name="errors",
        title="Errors",
        says="Calls that failed, by the code they were answered with.",
        chart="ranks",
        head="Error",
        columns=[Column("Calls", hue="bad"), Column("Of all calls", "%")],
        rows=[(one.name, [one.calls, 100 * one.calls / of.calls.total.calls]) for one in tallies],
        until="No call has failed in this time." if of.calls.total.calls else CALLS_UNTIL,
        found=f"Most often {tallies[0].name}." if tallies else "",
    )


WORK = (flow, burndown, sprint, throughput, attempts, cycle, lead)
CALLS = (calls, latency, tools, clients, errors)
FIGURES: Mapping[str, Callable[[Insights], Figure]] = {made.__name__: made for made in (*WORK, *CALLS)}
