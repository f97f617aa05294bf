"""Which URLs belong to a web source, and how each is spelled."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Self
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

from devflow.addresses import UrlError, normalise

_NO_PAGE = re.compile(
    r"\.(7z|apk|avi|avif|bmp|bz2|css|csv|deb|dmg|eot|epub|exe|flac|gif|gz|ico|inv|iso|jar|jpe?g|m4a|mov|mp[34]|msi"
    r"|og[gv]|otf|png|pptx?|rar|rpm|rss|svg|tar|tgz|tiff?|ttf|wasm|wav|web[mp]|whl|woff2?|xlsx?|xml|xz|zip|zst)$",
    re.IGNORECASE,
)
_TRACKING = re.compile(r"utm_.*|fbclid|gclid|dclid|msclkid|mc_[ce]id|_ga|igshid|phpsessid|jsessionid", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Scope:
    """An origin, a path everything lies below, and fnmatch patterns on whole URLs."""

    origin: str
    path: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @classmethod
    def below(cls, url: str, *, same_path: bool, include: tuple[str, ...], exclude: tuple[str, ...]) -> Self:
        """Everything below a URL's path; below its directory if the path names a file; the whole host if not
        `same_path`."""
        parts = urlsplit(url)
        names_file = "." in parts.path.rpartition("/")[2]
        path = urljoin(parts.path, ".") if names_file else parts.path.rstrip("/") + "/"
        return cls(f"{parts.scheme}://{parts.netloc}", path if same_path else "/", include, exclude)

    def spell(self, url: str) -> str | None:
        """The one spelling of a link, without what tracks its readers; None if it does not belong here."""
        try:
            parts = urlsplit(normalise(url))
        except UrlError:
            return None
        # Sites that moved to https still carry http links to themselves.
        scheme = "https" if self.origin == f"https://{parts.netloc}" else parts.scheme
        if f"{scheme}://{parts.netloc}" != self.origin or not (parts.path + "/").startswith(self.path):
            return None
        query = parts.query
        if _TRACKING.search(query):
            pairs = parse_qsl(query, keep_blank_values=True)
            query = urlencode([pair for pair in pairs if not _TRACKING.fullmatch(pair[0])])
        spelled = urlunsplit((scheme, parts.netloc, parts.path, query, ""))
        if _NO_PAGE.search(parts.path) or any(fnmatchcase(spelled, pattern) for pattern in self.exclude):
            return None
        if self.include and not any(fnmatchcase(spelled, pattern) for pattern in self.include):
            return None
        return spelled
