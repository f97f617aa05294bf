"""Webhooks of a project, for its admins: add, change, test, and look at what was sent."""

import json
from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from devflow import config
from devflow.errors import DevFlowError
from workflow.models import KINDS, Delivery, Project, Webhook
from workflow.models.webhooks import MOST_NAME, MOST_URL
from workflow.selectors import projects as project_selectors
from workflow.selectors import webhooks as selectors
from workflow.services import sending, webhooks
from workflow.views.shell import page, person_of, project_named

PAGE = 50
ONLY_ADMINS = "Only an admin of the project sees and changes its webhooks. Ask one of them."
SUBJECTS = tuple(dict.fromkeys(kind.partition(".")[0] for kind in KINDS))


class WebhookForm(forms.Form):
    """`every`: told of everything; else of the kinds that are ticked."""

    url = forms.CharField(
        label="Address",
        max_length=MOST_URL,
        widget=forms.URLInput(attrs={"class": "field", "placeholder": "https://ci.example.org/hooks/devflow"}),
    )
    name = forms.CharField(
        label="Name",
        max_length=MOST_NAME,
        required=False,
        widget=forms.TextInput(attrs={"class": "field", "placeholder": "Our CI", "dir": "auto"}),
    )
    every = forms.ChoiceField(choices=[("yes", "Everything"), ("no", "Only what I choose")], initial="yes")
    kinds = forms.MultipleChoiceField(
        required=False, choices=[(kind, kind) for kind in (*KINDS, *(f"{subject}.*" for subject in SUBJECTS))]
    )

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if given.get("every") == "no" and not given.get("kinds") and "kinds" not in self.errors:
            self.add_error("kinds", "Choose at least one kind of event.")
        return given

    def values(self) -> dict[str, Any]:
        given = self.cleaned_data
        return {
            "url": given["url"],
            "name": given["name"],
            "kinds": given["kinds"] if given["every"] == "no" else [],
        }

    def choices(self) -> list[tuple[str, bool, list[tuple[str, bool]]]]:
        """Per subject: whether all of it is ticked, and each of its kinds with whether it is."""
        ticked = set(self["kinds"].value() or ())
        of = {subject: [kind for kind in KINDS if kind.startswith(f"{subject}.")] for subject in SUBJECTS}
        return [
            (subject, f"{subject}.*" in ticked, [(kind, kind in ticked) for kind in kinds])
            for subject, kinds in of.items()
        ]

    def refuse(self, error: DevFlowError) -> None:
        field = next((name for name in error.details if name in self.fields), None)
        self.add_error(field, f"{error.message} {error.suggestion}" if not field else error.message)


def _project(request: HttpRequest, slug: str) -> tuple[Project, HttpResponse | None]:
    """A project, and the answer for somebody who does not administer it (None: they do). Raises Http404."""
    project, _ = project_named(request, slug)
    if project_selectors.may_administer(user_id=int(request.user.pk or 0), project_id=project.pk):
        return project, None
    return project, render(request, "403.html", {"why": ONLY_ADMINS}, status=403)


def _webhook(project: Project, number: int) -> Webhook:
    found = Webhook.objects.select_related("project").filter(pk=number, project=project).first()
    if found is None:
        raise Http404("There is no such webhook in this project.")
    return found


def _context(project: Project, **more: Any) -> dict[str, Any]:
    return {"project": project, "here": "projects", **more}


@page
@require_safe
def listed(request: HttpRequest, slug: str) -> HttpResponse:
    project, refusal = _project(request, slug)
    if refusal:
        return refusal
    rows = list(selectors.of_project(project_id=project.pk))
    context = _context(project, webhooks=rows, most=webhooks.MOST_WEBHOOKS, example=_example(project))
    name = "_webhooks" if request.headers.get("HX-Request") else "webhooks"
    return render(request, f"workflow/{name}.html", context)


def _example(project: Project) -> str:
    data = {"sequence": 812, "project": {"slug": project.slug}, "actor": {"kind": "agent", "name": "builder-ben"}}
    return json.dumps({"type": "task.done", "timestamp": "2026-01-01T00:00:00Z", "data": data}, indent=2)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def add(request: HttpRequest, slug: str) -> HttpResponse:
    """The form; when it was right, the new webhook's page with its secret, this once."""
    project, refusal = _project(request, slug)
    if refusal:
        return refusal
    form = WebhookForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            made, secret = webhooks.create(project_id=project.pk, actor=person_of(request), **form.values())
        except DevFlowError as exc:
            form.refuse(exc)
        else:
            return _shown(request, project, made, secret=secret)
    context = _context(project, form=form, allowed=config.current().webhooks.allowed_hosts)
    return render(request, "workflow/webhook_form.html", context, status=422 if form.errors else 200)


@page
@require_safe
def webhook(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """The page; its state and log alone for a request of the page's own script."""
    project, refusal = _project(request, slug)
    return refusal or _shown(request, project, _webhook(project, number))


def _shown(request: HttpRequest, project: Project, found: Webhook, *, secret: str = "") -> HttpResponse:
    status = request.GET.get("status", "")
    status = status if status in Delivery.Status.values else ""
    rows = selectors.log(webhook_id=found.pk, status=status)
    place = reverse("webhook", args=[project.slug, found.pk])
    context = _context(
        project,
        webhook=found,
        deliveries=Paginator(rows, PAGE).get_page(request.GET.get("page")),
        status=status,
        statuses=Delivery.Status.values,
        tries=sending.TRIES,
        keep_days=config.current().webhooks.keep_days,
        secret=secret,
        partial=f"{place}?{request.GET.urlencode()}" if not secret else place,
    )
    if request.headers.get("HX-Request"):
        return render(request, "workflow/_webhook.html", context)
    return render(request, "workflow/webhook.html", context)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    project, refusal = _project(request, slug)
    if refusal:
        return refusal
    found = _webhook(project, number)
    initial = {"url": found.url, "name": found.name, "kinds": found.kinds, "every": "no" if found.kinds else "yes"}
    form = WebhookForm(request.POST if request.method == "POST" else None, initial=initial)
    if request.method == "POST" and form.is_valid():
        try:
            webhooks.change(webhook_id=found.pk, actor=person_of(request), **form.values())
        except DevFlowError as exc:
            form.refuse(exc)
        else:
            messages.success(request, "Saved.")
            return redirect("webhook", project.slug, found.pk)
    context = _context(project, form=form, webhook=found, allowed=config.current().webhooks.allowed_hosts)
    return render(request, "workflow/webhook_form.html", context, status=422 if form.errors else 200)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Ask, then delete it with its log."""
    project, refusal = _project(request, slug)
    if refusal:
        return refusal
    found = _webhook(project, number)
    if request.method == "POST":
        webhooks.delete(webhook_id=found.pk, actor=person_of(request))
        messages.success(request, f"{found} was deleted; nothing is sent there any more.")
        return redirect("webhooks", project.slug)
    return render(request, "workflow/webhook_delete.html", _context(project, webhook=found))


@page
@require_POST
def act(request: HttpRequest, slug: str, number: int, action: str) -> HttpResponse:
    """Send a test, switch on or off, make a new secret (shown in the answer, this once)."""
    project, refusal = _project(request, slug)
    if refusal:
        return refusal
    found, actor = _webhook(project, number), person_of(request)
    try:
        if action == "test":
            made = webhooks.ping(webhook_id=found.pk)
            return redirect("webhook-delivery", project.slug, found.pk, made.pk)
        if action == "secret":
            found, secret = webhooks.rotate(webhook_id=found.pk, actor=actor)
            return _shown(request, project, found, secret=secret)
        if action not in ("on", "off"):
            raise Http404("There is no such action.")
        webhooks.change(webhook_id=found.pk, active=action == "on", actor=actor)
    except DevFlowError as exc:
        messages.error(request, f"{exc.message} {exc.suggestion}")
    return redirect("webhook", project.slug, found.pk)


def _delivery(project: Project, number: int, pk: int) -> Delivery:
    rows = Delivery.objects.select_related("webhook").filter(pk=pk, webhook=number, webhook__project=project)
    found = rows.first()
    if found is None:
        raise Http404("There is no such delivery, or it was deleted since.")
    return found


@page
@require_safe
def delivery(request: HttpRequest, slug: str, number: int, pk: int) -> HttpResponse:
    """One message with its request and answer; these alone for a request of the page's own script."""
    project, refusal = _project(request, slug)
    if refusal:
        return refusal
    found = _delivery(project, number, pk)
    body = json.dumps(json.loads(found.payload), indent=2, ensure_ascii=False)
    timestamp = int(found.tried_at.timestamp()) if found.tried_at else None
    context = _context(
        project, delivery=found, webhook=found.webhook, body=body, timestamp=timestamp, tries=sending.TRIES
    )
    name = "_webhook_delivery" if request.headers.get("HX-Request") else "webhook_delivery"
    return render(request, f"workflow/{name}.html", context)


@page
@require_POST
def again(request: HttpRequest, slug: str, number: int, pk: int) -> HttpResponse:
    project, refusal = _project(request, slug)
    if refusal:
        return refusal
    found = _delivery(project, number, pk)
    try:
        webhooks.send_again(delivery_id=found.pk)
    except DevFlowError as exc:
        messages.error(request, f"{exc.message} {exc.suggestion}")
    return redirect("webhook-delivery", project.slug, number, found.pk)
