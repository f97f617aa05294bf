"""Django settings, derived from the typed configuration (`devflow.config`) and nothing else."""

import re
import secrets
from typing import Any
from urllib.parse import unquote, urlsplit

from devflow import __version__, config
from devflow.config import PROJECT_ROOT, ConfigError
from devflow.logs import logging_config

CONFIG = config.current()
HOME = config.home()
HOME.mkdir(parents=True, exist_ok=True, mode=0o700)
(HOME / "static").mkdir(exist_ok=True)  # whitenoise warns where it is missing


def _secret_key() -> str:
    if given := CONFIG.secret_key.get_secret_value():
        return given
    path = HOME / "secret_key"
    if not path.exists():
        fresh = path.with_name(f"secret_key.{secrets.token_hex(4)}")
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_urlsafe(50))
        try:
            path.hardlink_to(fresh)  # two first starts at once agree on one key
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return path.read_text()


def _database(url: str) -> dict[str, Any]:
    """A Django DATABASES entry for `postgres://` or `sqlite:///`; empty means SQLite in the data directory."""
    parts = urlsplit(url)
    if parts.scheme in ("", "sqlite"):
        return {
            "ENGINE": "devflow.sqlite",
            "NAME": config.sqlite_path(url),
            # A file, not the usual memory: threads of a test share it, and it has the journal of the real one.
            "TEST": {"NAME": HOME / "test.sqlite3"},
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": (
                    f"PRAGMA journal_mode=WAL; PRAGMA synchronous={CONFIG.sqlite_synchronous}; "
                    "PRAGMA cache_size=-16000; PRAGMA temp_store=MEMORY;"
                ),
            },
            "CONN_MAX_AGE": None,
        }
    if parts.scheme not in ("postgres", "postgresql"):
        raise ConfigError(f"database_url: the scheme {parts.scheme!r} is not postgres or sqlite.")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
        "CONN_MAX_AGE": 0,
        "OPTIONS": {
            "pool": {"min_size": 2, "max_size": CONFIG.call_threads + 16, "timeout": 10},
            "options": "-c statement_timeout=5s -c lock_timeout=2s -c idle_in_transaction_session_timeout=10s",
        },
    }


SECRET_KEY = _secret_key()
DEBUG = CONFIG.debug
VERSION = __version__

_public = urlsplit(CONFIG.public_url)
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", *CONFIG.allowed_hosts]
if _public.hostname:
    ALLOWED_HOSTS.append(_public.hostname)
CSRF_TRUSTED_ORIGINS = [origin for origin in (CONFIG.public_url.rstrip("/"), *CONFIG.allowed_origins) if origin]

INSTALLED_APPS = [
    # Its import costs half a second and Twisted's memory, and all it adds is its own `runserver`.
    *(["daphne"] if CONFIG.server == "daphne" else []),
    "django.contrib.admin.apps.SimpleAdminConfig",  # `devflow.urls` looks for the admins: commands need none
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "import_export",
    "django_htmx",
    "django_structlog",
    "devflow.apps.KernelConfig",
    "devflow.vectors.apps.VectorsConfig",
    "workflow.apps.WorkflowConfig",
    "mcpbridge.apps.McpBridgeConfig",
    "memory.apps.MemoryConfig",
    "knowledge.apps.KnowledgeConfig",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "devflow.assets.Assets",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "django_structlog.middlewares.RequestMiddleware",
]

ROOT_URLCONF = "devflow.urls"
ASGI_APPLICATION = "devflow.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [PROJECT_ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": _database(CONFIG.database_url)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CHANNEL_LAYERS: dict[str, Any] = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        # redis-py's default socket timeout ends idle consumers after 5 s.
        "CONFIG": {"hosts": [{"address": CONFIG.redis_url, "socket_timeout": None}], "prefix": "devflow"},
    }
    if CONFIG.redis_url
    else {"BACKEND": "channels.layers.InMemoryChannelLayer", "CONFIG": {"capacity": 1000}}
}

_cache: dict[str, Any] = (
    {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": CONFIG.redis_url}
    if CONFIG.redis_url
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
)
CACHES = {
    "default": {**_cache, "KEY_PREFIX": "devflow"} | ({} if CONFIG.redis_url else {"LOCATION": "default"}),
    "doors": {**_cache, "KEY_PREFIX": "devflow-doors"} | ({} if CONFIG.redis_url else {"LOCATION": "doors"}),
}
RATELIMIT_USE_CACHE = "doors"
# In memory the doors' limits hold because the embedded profile is one process; devflow.E003 refuses more without Redis.
SILENCED_SYSTEM_CHECKS = ["django_ratelimit.E003", "django_ratelimit.W001"]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = HOME / "static"
STATICFILES_DIRS = [PROJECT_ROOT / "devflow" / "static"]
WHITENOISE_USE_FINDERS = True
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": HOME / "uploads"}},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

# Whoever may not see rows in the admin may not export them either.
IMPORT_EXPORT_EXPORT_PERMISSION_CODE = "view"
IMPORT_EXPORT_IMPORT_PERMISSION_CODE = "add"

DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024
FILE_UPLOAD_HANDLERS = ["devflow.multipart.BoundedUpload"]
DATA_UPLOAD_MAX_NUMBER_FILES = 200  # a form takes 100 and says so in words; past this Django answers 400
# Paths whose bodies may be larger than 4 MiB, because files are sent there.
UPLOAD_PATHS = (
    r"/knowledge/(?:add|sources/[0-9]+/files)/?$|/api/v1/sources/(?:upload|(?:source-)?[0-9]+/files)/?$"
    r"|/projects/(?:[-a-zA-Z0-9_]+/)?import/?$"
)
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = True
# Ports do not separate cookies: two instances on one host need names of their own.
_instance = re.sub(r"[^0-9]", "", str(CONFIG.mcp_gateway.port))
SESSION_COOKIE_NAME = f"devflow_session_{_instance}"
CSRF_COOKIE_NAME = f"devflow_csrf_{_instance}"
if CONFIG.production:
    SECURE_SSL_REDIRECT = True
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SESSION_COOKIE_NAME = "__Host-devflow_session"
    CSRF_COOKIE_NAME = "__Host-devflow_csrf"
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "manifest-src": ["'self'"],
    }
}

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "mcpbridge.api.authentication.ApiKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_FILTER_BACKENDS": [
        "django_filters.rest_framework.DjangoFilterBackend",
        "rest_framework.filters.SearchFilter",
        "rest_framework.filters.OrderingFilter",
    ],
    "DEFAULT_PAGINATION_CLASS": "mcpbridge.api.pagination.BoundedLimitOffset",
    "PAGE_SIZE": 50,
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "mcpbridge.api.problems.problem_handler",
    "DEFAULT_PARSER_CLASSES": ["mcpbridge.api.parsers.BoundedJSONParser"],
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "DevFlow",
    "DESCRIPTION": (
        "Tools are called at `/mcp/execute` and `/mcp/batch`; `/api/v1/` reads and changes the rows behind them. "
        "Your login counts here; elsewhere send an API key as `X-API-Key`."
    ),
    "VERSION": __version__,
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "ENUM_NAME_OVERRIDES": {
        "SourceStatus": "knowledge.models.Source.Status",
        "DocumentStatus": "knowledge.models.Document.Status",
        "MemoryCategory": "memory.models.Category",
        "MemoryCategoryWord": "memory.models.KNOWN_CATEGORIES",
        "BoardColumn": "workflow.selectors.board.COLUMN_NAMES",
        "FirstColumn": "workflow.selectors.board.FIRST_COLUMNS",
        "TaskStatus": "workflow.models.Status",
        "ItemKind": "workflow.models.Kind",
        "ItemCategory": "workflow.models.Category",
        "Severity": "workflow.models.Severity",
        "Urgency": "workflow.models.Urgency",
        "TaskPriority": "workflow.api.serializers.PRIORITIES",
        "BackendStatus": "mcpbridge.models.Backend.Status",
        "ActionEffect": "mcpbridge.models.EffectChoice",
        "ActionIntent": "mcpbridge.models.IntentChoice",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "mcpbridge.api.openapi.add_tools",
    ],
}

LOGGING = logging_config(CONFIG.log_level, CONFIG.log_format)
LOGGING_CONFIG = "devflow.logs.configure"
DJANGO_STRUCTLOG_COMMAND_LOGGING_ENABLED = False
