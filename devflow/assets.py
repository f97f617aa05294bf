"""Static files under ASGI: WhiteNoise finds and describes them, and they are sent whole instead of as a stream."""

from typing import TYPE_CHECKING

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware

if TYPE_CHECKING:
    from whitenoise.responders import StaticFile


class Assets(WhiteNoiseMiddleware):  # type: ignore[misc]  # whitenoise has no types
    """WhiteNoise answers with a file that is read step by step, which Django under ASGI does with a warning and a
    thread per step. Ours are small (the largest is Swagger UI's bundle, 1.5 MB), so one read does."""

    @staticmethod
    def serve(static_file: "StaticFile", request: HttpRequest) -> HttpResponse:
        found = static_file.get_response(request.method, request.META)
        content = b""
        if found.file is not None:
            with found.file:
                content = found.file.read()
        response = HttpResponse(content, status=int(found.status))
        del response["content-type"]
        for name, value in found.headers:
            response[name] = value
        return response
