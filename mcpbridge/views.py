"""Pages of the protocol: connect a client, and the list of keys. The gateway's are in `gateway_views`."""

import json
import re
import secrets
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_ratelimit.decorators import ratelimit

from devflow import config
from devflow.digits import whole
from devflow.errors import DevFlowError, ErrorCode
from devflow.ports import KeyScope
from devflow.shell import page, project_of
from mcpbridge import access, keys
from mcpbridge.access import Identity
from mcpbridge.clients import local_command, snippets
from mcpbridge.gateway.composed import composed
from mcpbridge.gateway.federation import federation
from mcpbridge.keys import Issuer
from mcpbridge.models import ToolCall
from mcpbridge.registry import registry, spelled
from mcpbridge.tooling import Exposed, Scope

KEYS_PER_MINUTE = "20/m"
NO_KEY = "YOUR_API_KEY"
FRESH_FOR = timedelta(days=1)
"""How long after it was shown a snippet's agent is looked for."""

MOST_CALLS = 50
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def base_url(request: HttpRequest) -> str:
    """The address clients use, without a slash at its end."""
    return config.current().public_url.rstrip("/") or request.build_absolute_uri("/").rstrip("/")


def _command(request: HttpRequest) -> list[str]:
    """How a client starts `devflow`: by its path here for a browser on this machine, by its name for all others."""
    is_local = not config.current().public_url and request.get_host().rpartition(":")[0] in LOOPBACK
    return local_command() if is_local else ["devflow"]


def token_costs() -> list[dict[str, Any]]:
    """What each exposure costs a client's context: characters of its real listing, a quarter of them as tokens.

    Backend tools in the main list and composites count (blocks)."""
    identity = Identity(
        scope=KeyScope(key_id=0),
        name="estimate",
        scopes=frozenset({Scope.ADMIN}),
        rate_per_minute=0,
        toolsets=frozenset(),
        expose="",
        names="",
        expires_at=None,
    )
    federation.look()
    composed.look()
    costs = []
    for expose, means in (
        ("direct", "Every tool is listed"),
        ("search", "Two tools that find and call the others"),
        ("intent", "One tool that runs any action by intent"),
    ):
        caller = access.caller_for(identity, transport="rest", exposed=Exposed(expose=expose))
        shown = registry.shown(caller)
        listing = [
            {
                "name": spelled(tool.name, "dotted"),
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
                "annotations": tool.annotations(),
            }
            for tool in shown
        ]
        size = len(json.dumps(listing, ensure_ascii=False, separators=(",", ":")))
        costs.append({"name": expose, "means": means, "tools": len(shown), "characters": size, "tokens": size // 4})
    return costs


def _limited(request: HttpRequest) -> HttpResponse | None:
    if getattr(request, "limited", False):
        why = "That were many keys in one minute."
        response = render(request, "429.html", {"wait": 60, "why": why}, status=429)
        response["Retry-After"] = "60"
        return response
    return None


def _not_stored(response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@ratelimit(key="user", rate=KEYS_PER_MINUTE, method="POST", block=False)
def connect(request: HttpRequest) -> HttpResponse:
    """Snippets for every client; POST makes a fresh key and shows it inside them, this once."""
    if limited := _limited(request):
        return limited
    issuer, fresh, problem = keys.person(request.user), "", ""
    projects = keys.projects_of(issuer)
    if request.method == "POST":
        try:
            _, fresh = keys.issue(
                issuer,
                name=f"client of {request.user.get_username()}",
                scopes=["read", "write", "execute"],
                project=request.POST.get("project") or None,
            )
        except DevFlowError as exc:
            problem = exc.message
    unique = secrets.token_hex(3)
    watched = next((item for item in projects if item.slug == request.POST.get("project")), project_of(request)[0])
    context = {
        "snippets": snippets(base_url(request), fresh or NO_KEY, unique, _command(request)),
        "unique": unique,
        "watched": watched,
        "fresh": fresh,
        "problem": problem,
        "projects": projects,
        "costs": token_costs(),
        "base_url": base_url(request),
        "here": "connect",
    }
    return _not_stored(render(request, "mcpbridge/connect.html", context))


@page
@require_safe
def connect_light(request: HttpRequest, unique: str) -> HttpResponse:
    """Whether a client with an id of one showing of the connect page has called: what its light shows."""
    if not re.fullmatch(r"[0-9a-f]{6}", unique):
        raise Http404("No page was shown with these ids.")
    context = {"arrived": arrived(keys.person(request.user), unique)}
    return render(request, "mcpbridge/_light.html", context)


def arrived(issuer: Issuer, unique: str) -> list[ToolCall]:
    """The latest call of every agent whose id ends so, as far as `issuer` may see it."""
    names = [snippet.agent for snippet in snippets("", NO_KEY, unique)]
    calls = keys.calls_of(issuer).filter(agent_name__in=names, at__gte=timezone.now() - FRESH_FOR)
    latest: dict[str, ToolCall] = {}
    for call in calls[:MOST_CALLS]:
        latest.setdefault(call.agent_name, call)
    return list(latest.values())


def _whole(text: str, name: str) -> int | None:
    if not text.strip():
        return None
    number = whole(text, digits=6)
    if number is None:
        raise DevFlowError(ErrorCode.INVALID_INPUT, f"{name} is a whole number, or nothing.")
    return number


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@ratelimit(key="user", rate=KEYS_PER_MINUTE, method="POST", block=False)
def keys_page(request: HttpRequest) -> HttpResponse:
    """The keys somebody may see; POST makes one and shows it in the answer, this once."""
    if limited := _limited(request):
        return limited
    issuer = keys.person(request.user)
    fresh, problem, made = "", "", None
    if request.method == "POST":
        try:
            made, fresh = keys.issue(
                issuer,
                name=request.POST.get("name", ""),
                scopes=request.POST.getlist("scopes"),
                project=request.POST.get("project") or None,
                expires_in_days=_whole(request.POST.get("expires_in_days", ""), "The number of days"),
                rate_per_minute=_whole(request.POST.get("rate_per_minute", ""), "The rate"),
            )
        except DevFlowError as exc:
            problem = exc.message
    context = {
        "keys": keys.visible_to(issuer)[:200],
        "scopes": [scope for scope in keys.SCOPES if scope in issuer.may_give],
        "projects": keys.projects_of(issuer),
        "fresh": fresh,
        "made": made,
        "problem": problem,
        "here": "keys",
    }
    return _not_stored(render(request, "mcpbridge/keys.html", context, status=422 if problem else 200))


@login_required
@require_POST
def revoke_key(request: HttpRequest, pk: int) -> HttpResponse:
    key = get_object_or_404(keys.visible_to(keys.person(request.user)), pk=pk)
    keys.revoke(key)
    messages.success(request, f"{key.name} was revoked; it stops working everywhere within 5 seconds.")
    return redirect("keys")
