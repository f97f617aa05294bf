"""Logging in: limited per address and per name, so that guessing does not pay."""

from typing import Any

from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django_ratelimit.core import get_usage

RATE = "10/m"


def _wait(request: HttpRequest) -> int:
    """Count a try. Seconds to wait once there were more than 10 in a minute from this address or for this name."""
    waits = [0]
    for key in ("ip", "post:username"):
        usage = get_usage(request, group="login", key=key, rate=RATE, method="POST", increment=True)
        if usage and usage["should_limit"]:
            waits.append(max(1, int(usage["time_left"])))
    return max(waits)


class Login(LoginView):
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if wait := _wait(request):
            why = "There were too many attempts to log in from here, or for this name."
            response = render(request, "429.html", {"wait": wait, "why": why}, status=429)
            response["Retry-After"] = str(wait)
            return response
        return super().post(request, *args, **kwargs)
