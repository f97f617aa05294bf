"""What `data` of the agile tools' answers is: exact types, published as output schemas. `workflow.taiga.shapes` fills
them from DevFlow's rows."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from workflow.taiga.provider import Page
from workflow.tools.taiga.schemas import Category, EntityType, Priority, Severity

When = Annotated[str, Field(description="ISO 8601, UTC.")]


class Exact(TypedDict):
    """An object with these keys and no others."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]  # how pydantic configures a TypedDict


class Meta(Exact):
    limit: int
    offset: int
    total: int
    hasNext: bool


class Person(Exact):
    id: Annotated[int | None, Field(description="None for an agent.")]
    username: str
    fullName: str


class Status(Exact):
    id: int
    name: str
    slug: str
    order: int
    isClosed: bool
    category: Category
    color: str


class KindStatus(Status):
    entityType: EntityType


class Progress(Exact):
    total: int
    completed: int
    percent: int


class Points(Exact):
    total: float
    byRole: dict[str, float | None]


class Comment(Exact):
    id: int | str
    text: str
    createdDate: When
    createdBy: Person | None


class _Base(Exact):
    id: int
    ref: Annotated[int, Field(description="Its number in the project, counted over every kind.")]
    projectId: int
    subject: str
    createdDate: When
    modifiedDate: When
    createdBy: Person | None
    version: Annotated[int, Field(description="Give it to an update, which then changes only what you have seen.")]
    statusId: int
    status: Status
    assignedTo: Person | None
    tags: list[str]
    isBlocked: bool
    blockedReason: str


class _Whole(Exact):
    description: str
    comments: NotRequired[list[Comment]]


class _Listed(Exact):
    description: NotRequired[Annotated[str, Field(description="Only with includeDetails.")]]


class _Epic(_Base):
    color: str | None
    userStoryIds: list[int]
    progress: Progress


class Epic(_Epic, _Whole):
    pass


class EpicItem(_Epic, _Listed):
    pass


class _UserStory(_Base):
    epicId: int | None
    sprintId: int | None
    points: Points
    taskIds: list[int]
    progress: Progress
    priority: Annotated[Priority | None, Field(description="None where the project's server has none for stories.")]
    dueDate: str | None


class UserStory(_UserStory, _Whole):
    pass


class UserStoryItem(_UserStory, _Listed):
    pass


class _Task(_Base):
    userStoryId: int | None
    priority: Annotated[Priority | None, Field(description="None where the project's server has none for tasks.")]
    phaseId: NotRequired[int | None]
    taskId: NotRequired[Annotated[str | None, Field(description="The id the board's tools take, such as task-12.")]]
    boardStatus: NotRequired[str | None]
    agent: NotRequired[Annotated[str | None, Field(description="The agent that holds or did it.")]]
    leaseExpires: NotRequired[str | None]


class Task(_Task, _Whole):
    pass


class TaskItem(_Task, _Listed):
    pass


class _Issue(_Base):
    typeId: int | None
    severity: Severity | None
    priority: Priority | None
    sprintId: int | None


class Issue(_Issue, _Whole):
    pass


class IssueItem(_Issue, _Listed):
    pass


class EpicPage(Exact):
    items: list[EpicItem]
    meta: Meta


class UserStoryPage(Exact):
    items: list[UserStoryItem]
    meta: Meta


class TaskPage(Exact):
    items: list[TaskItem]
    meta: Meta


class IssuePage(Exact):
    items: list[IssueItem]
    meta: Meta


class StatusPage(Exact):
    items: list[KindStatus]
    meta: Meta


class ProjectLine(Exact):
    id: int
    slug: str
    name: str


class ProjectPage(Exact):
    items: list[ProjectLine]
    meta: Meta


class ActiveProject(Exact):
    activeProject: ProjectLine


class Member(Person):
    roleId: int | None
    roleName: str
    isAdmin: bool
    isActive: bool


class MemberPage(Exact):
    items: list[Member]
    meta: Meta


class Project(ProjectLine):
    description: str
    isPrivate: bool
    owner: Person | None
    members: Annotated[list[Member], Field(description="The first 50; taiga.get_members lists them all.")]
    tags: list[str]
    color: str | None


class Deleted(Exact):
    id: int
    deleted: Literal[True]


def paged(page: Page, *, offset: int, limit: int) -> dict[str, Any]:
    """The wrapper of every list; never more items than were asked for."""
    items = page.items[:limit]
    meta = {"limit": limit, "offset": offset, "total": page.total, "hasNext": page.total > offset + len(items)}
    return {"items": items, "meta": meta}
