"""What many claimers saw, and the checker that judges it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claimed:
    """An agent was handed a task: `asked` and `answered` are seconds on one clock."""

    agent: str
    task: str
    token: str
    asked: float
    answered: float


@dataclass(frozen=True, slots=True)
class Finished:
    agent: str
    task: str
    asked: float
    answered: float


def faults(claims: Iterable[Claimed], ends: Iterable[Finished], blockers: Mapping[str, Iterable[str]]) -> list[str]:
    """What is wrong with a history over the tasks that are the keys of `blockers`. Empty: nothing.

    A claim handed to the same agent again with the same token is one claim (an answer was lost).
    """
    found: list[str] = []
    distinct = {(claim.agent, claim.task, claim.token): claim for claim in claims}
    times_claimed = Counter(claim.task for claim in distinct.values())
    finished = {end.task: end for end in ends}
    found += [f"{task} was claimed {count} times" for task, count in times_claimed.items() if count > 1]
    found += [f"{task} was never claimed" for task in blockers if task not in times_claimed]
    found += [f"{task} was never finished" for task in blockers if task not in finished]
    found += [f"{task} came from nowhere" for task in times_claimed if task not in blockers]
    for claim in distinct.values():
        for blocker in blockers.get(claim.task, ()):
            end = finished.get(blocker)
            if end is None or claim.answered < end.asked:
                found.append(f"{claim.task} was claimed before its blocker {blocker} was finished")
    return found
