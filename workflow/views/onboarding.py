"""The first steps of a new project: `selectors.onboarding` says which are done, home shows them while one is open."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from devflow.errors import DevFlowError
from workflow.models import Phase
from workflow.project_forms import FirstTask
from workflow.services import tasks
from workflow.views.projects import refused
from workflow.views.shell import may_write, page, person_of, project_named


@page
@require_POST
def first_task(request: HttpRequest) -> HttpResponse:
    """Make a task in the first phase of a project, and go home again."""
    form = FirstTask(request.POST)
    project, _ = project_named(request, request.POST.get("project", ""))
    if not may_write(request, project):
        return refused(request, "You may read this project, not change it.")
    first = Phase.objects.filter(project=project).order_by("number").first()
    if not form.is_valid() or first is None:
        why = "the project has no phases yet" if first is None else "say what has to be done"
        messages.error(request, f"No task was made: {why}.")
    else:
        try:
            tasks.create(
                project_id=project.pk,
                phase_number=first.number,
                description=form.cleaned_data["text"],
                actor=person_of(request),
            )
        except DevFlowError as exc:
            messages.error(request, f"{exc.message} {exc.suggestion}")
    return redirect(f"{reverse('home')}?project={project.slug}")
