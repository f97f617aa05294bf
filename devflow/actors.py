"""Who does something: an agent through a tool, a person in the browser, or the system itself."""

from dataclasses import dataclass
from typing import Literal

MAX_SESSION = 200
"""Characters of a session's name that are kept."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The one who acts. `agent_id` and `session` are set for agents, `user_id` for people; `tool` is what they used."""

    kind: Literal["agent", "person", "system"]
    name: str
    agent_id: int | None = None
    user_id: int | None = None
    session: str = ""
    tool: str = ""

    @property
    def is_agent(self) -> bool:
        return self.kind == "agent"


SYSTEM = Actor(kind="system", name="devflow")


def person(*, user_id: int, name: str, tool: str = "") -> Actor:
    return Actor(kind="person", name=name, user_id=user_id, tool=tool)


def agent(*, agent_id: int, name: str, session: str = "", tool: str = "") -> Actor:
    return Actor(kind="agent", name=name, agent_id=agent_id, session=session, tool=tool)
