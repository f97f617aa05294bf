"""The gateway's pages: what stands behind it and how it does; backends, files of them, plans to confirm.

Everybody who is logged in sees it; only administrators of this server change backends, because these run commands on
it. `tool_views` has the page of one tool.
"""

import json
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from devflow.digits import whole
from devflow.errors import DevFlowError, ErrorCode
from devflow.shell import page, person_of, project_of, projects_of
from mcpbridge import keys
from mcpbridge.agentify import orchestrator, plans
from mcpbridge.gateway import backends, importing, looking, showing
from mcpbridge.gateway_forms import BackendForm
from mcpbridge.models import Action, Backend, Plan

MOST_CALLS = 50
FEW_CALLS = 20
TOOLS_A_PAGE = 50
MOST_HELD = 50
MOST_PLANS = 20
TRANSPORTS = (
    ("stdio", "A process", "started on this server, speaks MCP on its standard input and output"),
    ("http", "HTTP", "a server elsewhere, Streamable HTTP"),
    ("sse", "HTTP with SSE", "a server elsewhere, the older way"),
    ("agent_cli", "An agent", "a command line such as claude, given one backend's server"),
)
MORE = (
    *("display_name", "version", "isolation", "concurrency", "memory_mb", "warm_spares", "timeouts", "roots"),
    *("activation", "sandbox", "may_ask", "is_enabled"),
)
"""The fields of the form that most leave alone."""

ONLY_ADMINISTRATORS = "Only an administrator of this server manages backends: they run commands on it. Ask one of them."


def administers(request: HttpRequest) -> bool:
    return bool(request.user.is_superuser)


def refusal_of(request: HttpRequest) -> HttpResponse | None:
    if administers(request):
        return None
    return render(request, "403.html", {"why": ONLY_ADMINISTRATORS}, status=403)


def _backend(backend_id: str) -> Backend:
    row = showing.counted(Backend.objects.all()).filter(backend_id=backend_id).first()
    if row is None:
        raise Http404("There is no such backend.")
    return row


def context_of(request: HttpRequest, **more: Any) -> dict[str, Any]:
    return {"here": "gateway", "administers": administers(request), "project": project_of(request)[0], **more}


def complain(request: HttpRequest, error: DevFlowError) -> None:
    messages.error(request, f"{error.message} {error.suggestion}")


# --- the overview ----------------------------------------------------------------------------------------------------


@page
@require_safe
def gateway(request: HttpRequest) -> HttpResponse:
    """The overview; a part of it alone (`?part=calls`) for a request of the page's own script."""
    is_part = bool(request.headers.get("HX-Request"))
    if is_part and request.GET.get("part") != "calls":
        return render(request, "mcpbridge/_gateway.html", context_of(request, **_overview(request)))
    context = context_of(request, **_calls(request))
    if is_part:
        return render(request, "mcpbridge/_calls.html", context)
    return render(request, "mcpbridge/gateway.html", context | _overview(request))


def _overview(request: HttpRequest) -> dict[str, Any]:
    held = Action.objects.filter(held__isnull=False, is_gone=False).select_related("backend").order_by("held_since")
    return {
        "backends": showing.shown(showing.counted(Backend.objects.all())),
        "held": list(held.only("name", "held_since", "backend")[:MOST_HELD]),
        "plans": _plans(request),
    }


def _plans(request: HttpRequest) -> list[Plan]:
    """Plans that wait, as far as somebody may see them, with whether they may decide."""
    rows = Plan.objects.filter(state=Plan.State.WAITING, expires_at__gt=timezone.now()).select_related("project")
    if not administers(request):
        mine = Q(project__in=[project.id for project in projects_of(request)])
        rows = rows.filter(mine | Q(key__owner=int(request.user.pk or 0)))
    found, may = list(rows[:MOST_PLANS]), {}
    for plan in found:
        if plan.project_id not in may:
            may[plan.project_id] = plans.may_decide(plan, request.user)
        plan.may_decide = may[plan.project_id]  # type: ignore[attr-defined]  # for the template alone
        plan.params = json.dumps(plan.request.get("params", {}), indent=2, ensure_ascii=False)  # type: ignore[attr-defined]  # likewise
    return found


def _calls(request: HttpRequest) -> dict[str, Any]:
    calls = keys.calls_of(keys.person(request.user)).defer("arguments")
    failed = request.GET.get("outcome") == "failed"
    if failed:
        calls = calls.exclude(outcome="ok")
    before = request.GET.get("before", "")
    if (oldest := whole(before)) is not None:
        calls = calls.filter(pk__lt=oldest)
    rows = list(calls[: MOST_CALLS + 1])
    asked = request.GET.copy()
    asked["part"] = "calls"
    return {
        "calls": showing.with_timelines(rows[:MOST_CALLS]),
        "older": rows[MOST_CALLS - 1].pk if len(rows) > MOST_CALLS else None,
        "failed": failed,
        "is_newest": not before,
        "partial": f"{request.path}?{asked.urlencode()}",
    }


# --- one backend -----------------------------------------------------------------------------------------------------


@page
@require_safe
def backend(request: HttpRequest, backend_id: str) -> HttpResponse:
    """A backend with its tools and its latest calls; what moves alone for a request of the page's own script."""
    row = _backend(backend_id)
    tools = row.actions.filter(is_gone=False)
    words = request.GET.get("q", "").strip()[:200]
    for word in words.split()[:10]:
        tools = tools.filter(Q(name__icontains=word) | Q(description__icontains=word))
    some = Paginator(tools, TOOLS_A_PAGE).get_page(request.GET.get("page"))
    for action in some:
        action.tokens = showing.tokens_of(action)  # type: ignore[attr-defined]  # for the template alone
    calls = keys.calls_of(keys.person(request.user)).filter(backend=row.backend_id).defer("arguments")
    context = context_of(
        request,
        shown=showing.shown([row])[0],
        backend=row,
        tools=some,
        words=words,
        gone=row.actions.filter(is_gone=True).count(),
        calls=showing.with_timelines(list(calls[:FEW_CALLS])),
        is_newest=True,
        partial=request.get_full_path(),
        **_known_to_administrators(request, row),
    )
    name = "_backend" if request.headers.get("HX-Request") else "backend"
    return render(request, f"mcpbridge/{name}.html", context)


def _known_to_administrators(request: HttpRequest, row: Backend) -> dict[str, Any]:
    if not administers(request):
        return {}
    return {
        "env_names": backends.secret_names(row, "env"),
        "header_names": backends.secret_names(row, "headers"),
        "warnings": backends.warnings_of(row),
    }


@page
@require_http_methods(["GET", "HEAD", "POST"])
def backend_new(request: HttpRequest) -> HttpResponse:
    """The form; once it is right, the new backend's page with what it said when it was asked."""
    if refusal := refusal_of(request):
        return refusal
    return _form(request, None)


@page
@require_http_methods(["GET", "HEAD", "POST"])
def backend_edit(request: HttpRequest, backend_id: str) -> HttpResponse:
    if refusal := refusal_of(request):
        return refusal
    return _form(request, _backend(backend_id))


def _form(request: HttpRequest, row: Backend | None) -> HttpResponse:
    form = BackendForm(request.POST if request.method == "POST" else None, instance=row)
    if request.method == "POST" and form.is_valid():
        try:
            kept = form.write(person_of(request))
        except DevFlowError as exc:
            form.refuse(exc)
        else:
            for words in kept.warnings:
                messages.warning(request, words)
            _look(request, kept.backend.backend_id)
            return redirect("backend", kept.backend.backend_id)
    context = context_of(request, form=form, backend=row, transports=TRANSPORTS, more=MORE)
    return render(request, "mcpbridge/backend_form.html", context, status=422 if form.errors else 200)


def _look(request: HttpRequest, backend_id: str) -> None:
    looked = looking.look(backend_id)
    if not looked.ok:
        messages.error(request, f"{looked.error} {looked.suggestion}")
        return
    words = f"{backend_id} answers: {looked.tools} tools."
    for title, names in (("New", looked.new), ("Gone", looked.gone), ("Held back", looked.held)):
        if names:
            words += f" {title}: {', '.join(names[:8])}{'…' if len(names) > 8 else ''}."
    messages.success(request, words)


@page
@require_POST
def backend_act(request: HttpRequest, backend_id: str, act: str) -> HttpResponse:
    """Ask it now, switch it on or off, remove it."""
    if refusal := refusal_of(request):
        return refusal
    row, by = _backend(backend_id), person_of(request)
    try:
        if act == "test":
            _look(request, row.backend_id)
        elif act in ("on", "off"):
            backends.change(row.backend_id, by=by, is_enabled=act == "on")
        elif act == "remove":
            backends.remove(row.backend_id, by=by)
            messages.success(request, f"{row} was removed; nothing is called there any more.")
            return redirect("gateway")
        else:
            raise Http404("There is no such action.")
    except DevFlowError as exc:
        complain(request, exc)
    return redirect("backend", row.backend_id)


# --- files of other clients ------------------------------------------------------------------------------------------


@page
@require_http_methods(["GET", "HEAD", "POST"])
def backend_import(request: HttpRequest) -> HttpResponse:
    """A file or its text, what would come of it, then the same again that writes."""
    if refusal := refusal_of(request):
        return refusal
    text, entries, problem = request.POST.get("text", ""), None, ""
    is_go = request.POST.get("do") == "import"
    if request.method == "POST":
        try:
            if (file := request.FILES.get("file")) is not None:
                text = _text_of(file)
            entries = importing.bring_in(text, by=person_of(request) if is_go else None)
        except DevFlowError as exc:
            problem = f"{exc.message} {next((f'It should be {hint}.' for hint in exc.details.values()), '')}"
    good = [entry for entry in entries or () if entry.what in ("create", "change")]
    if is_go and entries is not None and not problem:
        messages.success(
            request, f"{len(good)} of {len(entries)} backends were imported; they are asked within a minute."
        )
        for entry in entries:
            if entry.what == "skip":
                messages.warning(request, f"{entry.id} was skipped: {entry.why}")
        return redirect("gateway")
    context = context_of(request, text=text, entries=entries, problem=problem, good=len(good))
    return render(request, "mcpbridge/backend_import.html", context, status=422 if problem else 200)


def _text_of(file: Any) -> str:
    if file.size > importing.MAX_CHARACTERS:
        raise DevFlowError(ErrorCode.INVALID_INPUT, "The file is too large.", details={"file": "at most a megabyte"})
    try:
        text: str = file.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DevFlowError(ErrorCode.INVALID_INPUT, "The file is no text.", details={"file": "a JSON file"}) from None
    return text


# --- plans -----------------------------------------------------------------------------------------------------------


@page
@require_POST
def plan_act(request: HttpRequest, plan_id: str, act: str) -> HttpResponse:
    """Confirm a plan, which runs it once, or refuse it."""
    plan = Plan.objects.select_related("project", "key").filter(plan_id=plan_id).first()
    if plan is None:
        raise Http404("There is no such plan.")
    if not plans.may_decide(plan, request.user):
        visible = plan.project_id in {project.id for project in projects_of(request)}
        if not visible:
            raise Http404("There is no such plan.")
        return render(request, "403.html", {"why": "Only an admin of its project decides on a plan."}, status=403)
    try:
        if act == "refuse":
            plans.refuse(plan, by=request.user.get_username())
            messages.success(request, "The plan was refused; nothing ran.")
        elif act == "confirm":
            outcome = async_to_sync(orchestrator.confirm_as_person)(plan, request.user)
            if outcome.error is not None:
                raise outcome.error
            messages.success(request, f"The plan ran: {plan}. Its call is below.")
        else:
            raise Http404("There is no such action.")
    except DevFlowError as exc:
        complain(request, exc)
    return redirect("gateway")
