"""The OpenAPI document and Swagger UI, served from this machine under a strict CSP."""

from csp.constants import SELF
from csp.decorators import csp_update
from django.utils.decorators import method_decorator
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import IsAuthenticated

from devflow.rest import KeyFirst


class SchemaView(KeyFirst, SpectacularAPIView):
    permission_classes = (IsAuthenticated,)


@method_decorator(csp_update({"style-src": [SELF, "'unsafe-inline'"]}), name="dispatch")
class DocsView(KeyFirst, SpectacularSwaggerSplitView):
    """Swagger UI writes style attributes of its own; this page alone allows them."""

    permission_classes = (IsAuthenticated,)
    template_name = "mcpbridge/swagger_ui.html"
