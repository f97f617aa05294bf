"""Addresses outside: one spelling per URL, and which of them may be talked to at all."""

import ipaddress
import re
from collections.abc import Callable
from urllib.parse import SplitResult, quote, urlsplit

MAX_URL = 2000
PORTS = {"http": 80, "https": 443}

_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")

# Inside 2000::/3, the part of IPv6 that is routed, these lead elsewhere: protocol assignments with Teredo,
# documentation, 6to4. NAT64, mapped, site-local and the rest lie outside it.
_IPV6_GLOBAL = ipaddress.IPv6Network("2000::/3")
_IPV6_REFUSED = [ipaddress.IPv6Network(net) for net in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
_IPV4_REFUSED = ipaddress.IPv4Network("192.88.99.0/24")  # 6to4 relays


MayBePrivate = Callable[[str, int], bool]
"""Whether a host (name or address, and port) may be at an address that is not public."""


class UrlError(ValueError):
    """The URL cannot be used; the message says why."""


def check(url: str, *, may_be_private: MayBePrivate) -> str:
    """Give the one spelling of a URL whose host, as it is written, may be talked to. Names are not resolved here.

    Raises `UrlError` for what `normalise` refuses and for addresses that are not public, unless they may be.
    """
    spelled = normalise(url)
    parts = urlsplit(spelled)
    host = parts.hostname or ""
    allowed = may_be_private(host, port_of(parts))
    local = host == "localhost" or host.endswith(".localhost")
    if (local and not allowed) or (_is_literal(host) and not is_allowed(host, allow_private=allowed)):
        raise UrlError(f"{host} is not a public address")
    return spelled


def port_of(parts: SplitResult) -> int:
    """The port a split http or https URL leads to."""
    return parts.port or PORTS[parts.scheme]


def normalise(url: str) -> str:
    """Give the one spelling of a URL: ASCII only, no fragment, no default port, no dot segments.

    Raises `UrlError` for what is not http or https, carries credentials, or writes its host in an odd way.
    """
    url = url.strip()
    if len(url) > MAX_URL:
        raise UrlError(f"it is longer than {MAX_URL:,} characters")
    if any(char < " " or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in url):
        raise UrlError("it contains control characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UrlError("its host or port is not written as one") from None
    if parts.scheme not in PORTS:
        raise UrlError("its scheme is not http or https")
    if "@" in parts.netloc:
        raise UrlError("it carries credentials")
    if port == 0:
        raise UrlError("its port is 0")
    host = _host(parts)
    where = f"[{host}]" if ":" in host else host
    if port not in (None, PORTS[parts.scheme]):
        where += f":{port}"
    query = "?" + _escaped(parts.query, safe="/?%:@!$&'()*+,;=~[]") if parts.query else ""
    spelled = f"{parts.scheme}://{where}{_path(parts.path)}{query}"
    if len(spelled) > MAX_URL:
        raise UrlError(f"it is longer than {MAX_URL:,} characters")
    return spelled


def is_allowed(address: str, *, allow_private: bool) -> bool:
    """Whether an IP address may be talked to. Link-local ones (cloud metadata) never are, whatever is allowed."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        return allow_private and is_allowed(str(found.ipv4_mapped), allow_private=True)
    if allow_private:
        return not (found.is_link_local or found.is_multicast or found.is_unspecified)
    if isinstance(found, ipaddress.IPv6Address):
        return found in _IPV6_GLOBAL and not any(found in network for network in _IPV6_REFUSED)
    return found.is_global and not found.is_multicast and not found.is_reserved and found not in _IPV4_REFUSED


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if "[" in parts.netloc:
        try:
            return str(ipaddress.IPv6Address(host)) if "%" not in host else _refuse_host()
        except ValueError:
            return _refuse_host()
    if not host.isascii():
        import idna

        try:
            host = idna.encode(host[:255], uts46=True).decode()
        except idna.IDNAError:
            return _refuse_host()
    host = host.removesuffix(".")
    if len(host) > 253 or not _HOST.fullmatch(host):
        return _refuse_host()
    # 2130706433, 0x7f.1 and 127.1 are 127.0.0.1 to a resolver: a host that ends in a number must be written in full.
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", host.rpartition(".")[2]) and not _is_literal(host):
        return _refuse_host()
    return host


def _refuse_host() -> str:
    raise UrlError("its host is missing or oddly written")


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _escaped(text: str, *, safe: str) -> str:
    def unescape(match: re.Match[str]) -> str:
        char = chr(int(match[1], 16))
        return char if _UNRESERVED.fullmatch(char) else match[0].upper()

    return _ESCAPE.sub(unescape, quote(text, safe=safe))


def _path(path: str) -> str:
    kept: list[str] = []
    segments = _escaped(path, safe="/%:@!$&'()*+,;=~").split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)
