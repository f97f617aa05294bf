"""The page of one tool: what it says of itself, what is held back, a call by hand; administrators edit and approve.

A call by hand goes through the dispatcher as any other, with the rights of the person's role in the project; what
changes something is shown once more before it runs.
"""

import json
from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods
from django_ratelimit.decorators import ratelimit

from devflow.errors import DevFlowError, ErrorCode
from devflow.ports import KeyScope, ProjectRef
from devflow.shell import may_write, page, person_of, project_of
from mcpbridge import access, dispatcher
from mcpbridge.access import Identity
from mcpbridge.envelopes import gateway_envelope
from mcpbridge.gateway import backends, differences, showing
from mcpbridge.gateway.specs import fingerprint_of
from mcpbridge.gateway_forms import ActionForm
from mcpbridge.gateway_views import administers, complain, context_of, refusal_of
from mcpbridge.models import Action, EffectChoice, ToolCall
from mcpbridge.registry import GATEWAY_EXECUTE
from mcpbridge.tooling import SCOPE_FOR, Effect, Scope

CALLS_PER_MINUTE = "60/m"
MOST_SHOWN = 200_000
"""Characters of an answer that are shown."""


@page
@require_http_methods(["GET", "HEAD", "POST"])
@ratelimit(key="user", rate=CALLS_PER_MINUTE, method="POST", block=False)
def tool(request: HttpRequest, backend_id: str, name: str) -> HttpResponse:
    """One tool: what it says of itself, what is held back, a call by hand; administrators edit and approve."""
    action = Action.objects.select_related("backend").filter(backend__backend_id=backend_id, name=name).first()
    if action is None:
        raise Http404("There is no such tool.")
    if request.method != "POST":
        return _tool(request, action)
    if getattr(request, "limited", False):
        return render(request, "429.html", {"wait": 60, "why": "That were many calls in one minute."}, status=429)
    act = request.POST.get("do", "")
    if act == "try":
        return _try(request, action)
    if refusal := refusal_of(request):
        return refusal
    form = None
    try:
        if act == "approve":
            seen = request.POST.get("fingerprint", "")
            backends.approve(backend_id, name, by=person_of(request), fingerprint=seen)
            messages.success(request, f"{name} was approved as it is now.")
        elif act == "edit":
            form = ActionForm(request.POST, instance=action)
            if not form.is_valid():
                action = Action.objects.select_related("backend").get(pk=action.pk)
                return _tool(request, action, form=form, status=422)
            form.write(person_of(request))
            messages.success(request, "Saved.")
        else:
            raise Http404("There is no such action.")
    except DevFlowError as exc:
        complain(request, exc)
    return redirect("backend-tool", backend_id, name)


def _tool(
    request: HttpRequest,
    action: Action,
    *,
    form: ActionForm | None = None,
    params: Mapping[str, Any] | None = None,
    status: int = 200,
    **more: Any,
) -> HttpResponse:
    simple, others = showing.inputs(action.input_schema, params or {})
    rest = {name: value for name, value in (params or {}).items() if name not in {one.name for one in simple}}
    project = project_of(request)[0]
    context = context_of(
        request,
        action=action,
        backend=action.backend,
        intent=action.intent_override or action.intent,
        effect=action.effect_override or action.effect,
        tokens=showing.tokens_of(action),
        schema=json.dumps(action.input_schema, indent=2, ensure_ascii=False),
        difference=differences.lines(action),
        fingerprint=fingerprint_of(action.held) if action.held else "",
        form=form or (ActionForm(instance=action) if administers(request) else None),
        inputs=simple,
        others=others,
        rest=json.dumps(rest, indent=2, ensure_ascii=False) if rest else "",
        may_call=_may_call(request, project, action),
        is_change=(action.effect_override or action.effect) != EffectChoice.READ_ONLY,
        root=request.POST.get("project_root", ""),
        isolation=request.POST.get("isolation", ""),
        **more,
    )
    return render(request, "mcpbridge/tool.html", context, status=status)


def _scopes(request: HttpRequest, project: ProjectRef | None) -> frozenset[Scope]:
    """What somebody's role in the project allows: a viewer reads, a member also changes and runs."""
    if administers(request):
        return frozenset({Scope.ADMIN})
    if project is not None and may_write(request, project.id):
        return frozenset({Scope.READ, Scope.WRITE, Scope.EXECUTE})
    return frozenset({Scope.READ})


def _may_call(request: HttpRequest, project: ProjectRef | None, action: Action) -> bool:
    effect = Effect(action.effect_override or action.effect)
    return bool({SCOPE_FOR[effect], Scope.ADMIN} & _scopes(request, project))


def _identity(request: HttpRequest, project: ProjectRef | None) -> Identity:
    return Identity(
        scope=KeyScope(key_id=0, user_id=int(request.user.pk or 0)),
        name=request.user.get_username(),
        scopes=_scopes(request, project),
        rate_per_minute=0,  # the page has a limit of its own
        toolsets=frozenset(),
        expose="",
        names="",
        expires_at=None,
    )


def _try(request: HttpRequest, action: Action) -> HttpResponse:
    """Run it as the person; what changes something is shown once more before it runs."""
    project = project_of(request)[0]
    try:
        params = _params(action, request.POST)
    except DevFlowError as exc:
        return _tool(request, action, problem=exc.message, status=422, raw=request.POST.get("params", ""))
    intent, effect = action.intent_override or action.intent, action.effect_override or action.effect
    asked: dict[str, Any] = {"intent": intent, "action": str(action), "effect": effect, "params": params}
    if root := request.POST.get("project_root", "").strip():
        asked["context"] = {"project_root": root}
    if (isolation := request.POST.get("isolation", "")) in ("agent", "subprocess"):
        asked["constraints"] = {"isolation": isolation}
    shown = json.dumps(asked, indent=2, ensure_ascii=False)
    if effect != EffectChoice.READ_ONLY and request.POST.get("sure") != "yes":
        return _tool(request, action, params=params, unsure=shown, sent=json.dumps(params))
    caller = access.caller_for(
        _identity(request, project),
        transport="page",
        query={"project": project.slug} if project else {},
        client="browser",
    )
    outcome = async_to_sync(dispatcher.call)(GATEWAY_EXECUTE, asked, caller)
    answer = gateway_envelope(outcome)
    call = ToolCall(spans=[list(span) for span in outcome.facts.get("spans", ())], duration_ms=outcome.duration_ms)
    return _tool(
        request,
        action,
        params=params,
        request_sent=shown,
        answer=json.dumps(answer, indent=2, ensure_ascii=False)[:MOST_SHOWN],
        is_good=bool(answer.get("ok")),
        error=answer.get("error"),
        took=outcome.duration_ms,
        pieces=showing.timeline(call),
        trace_id=outcome.trace_id,
    )


def _params(action: Action, given: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of a form: its inputs by the schema's types, over those given as JSON. Raises `invalid_input`."""
    raw = given.get("params", "").strip()
    try:
        params = json.loads(raw) if raw else {}
    except (ValueError, RecursionError) as exc:
        raise DevFlowError(ErrorCode.INVALID_INPUT, f"The JSON cannot be read: {exc}.") from None
    if not isinstance(params, dict):
        raise DevFlowError(ErrorCode.INVALID_INPUT, "The JSON must be an object, such as {}.")
    for one in showing.inputs(action.input_schema, {})[0]:
        text = given.get(f"p:{one.name}")
        if text is None or (text == "" and not (one.is_required and one.kind == "text")):
            continue
        if one.kind in ("number", "yes"):
            try:
                params[one.name] = json.loads(text)
            except ValueError:
                raise DevFlowError(ErrorCode.INVALID_INPUT, f"{one.name} must be a {one.kind}.") from None
        else:
            params[one.name] = text
    return params
