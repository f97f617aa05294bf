"""Projects: which there are, one of them, and the one calls work in."""

from django.db.models import Q
from pydantic import Field

from devflow import actors, ports
from devflow.ports import ProjectRef
from mcpbridge.tooling import Caller, Effect
from workflow.selectors import projects
from workflow.taiga import choosing, shapes
from workflow.taiga.provider import Page
from workflow.tools.taiga import results
from workflow.tools.taiga.declaring import Object, taiga_tool
from workflow.tools.taiga.schemas import Asked, Id, Maybe, Paged, Query, Slug, exactly_one


class ListProjects(Paged):
    query: Maybe[Query] = Field(None, description="Only those with this in name or slug.")


class ChooseProject(Asked):
    project_id: Maybe[Id] = Field(None, description="Its id; or give projectSlug.")
    project_slug: Maybe[Slug] = Field(None, description="Its slug; or give projectId.")

    def settle(self) -> None:
        exactly_one(self, "project_id", "project_slug")


@taiga_tool("list_projects", takes=ListProjects, gives=results.ProjectPage, needs_project=False)
def list_projects(caller: Caller, asked: ListProjects) -> Object:
    """List the projects you may use. Take an id or slug from here for taiga.set_active_project."""
    found = projects.visible(caller.scope)
    if asked.query:
        found = found.filter(Q(name__icontains=asked.query) | Q(slug__icontains=asked.query))
    lines = [shapes.project_line(row) for row in found[asked.offset : asked.offset + asked.limit]]
    return results.paged(Page(lines, found.count()), offset=asked.offset, limit=asked.limit)


@taiga_tool(
    "set_active_project",
    takes=ChooseProject,
    gives=results.ActiveProject,
    effect=Effect.MUTATING,
    idempotent=True,
    needs_project=False,
)
def set_active_project(caller: Caller, asked: ChooseProject) -> Object:
    """Choose the project your calls work in, by id or slug. It is remembered until you choose another.

    The same choice as set_project: it holds for every tool.
    """
    project = choosing.named(caller, project_id=asked.project_id, slug=asked.project_slug)
    ports.directory().remember_project(caller.scope, slug=project.slug, agent_name=caller.agent_name)
    return {"activeProject": shapes.project_line(project)}


def _is_remote(caller: Caller, values: object) -> bool:
    asked: ChooseProject = values["asked"]  # type: ignore[index]  # what `check` gave
    asked.settle()
    return choosing.is_remote(choosing.named(caller, project_id=asked.project_id, slug=asked.project_slug))


@taiga_tool("get_project", takes=ChooseProject, gives=results.Project, needs_project=False, outside=_is_remote)
def get_project(caller: Caller, asked: ChooseProject) -> Object:
    """Read one project, by id or slug: description, owner and its first 50 members."""
    project = choosing.named(caller, project_id=asked.project_id, slug=asked.project_slug)
    caller.work_in(ProjectRef(id=project.pk, slug=project.slug, name=project.name))
    agent = caller.agent
    return choosing.provider_of(project, actors.agent(agent_id=agent.id, name=agent.name)).project()
