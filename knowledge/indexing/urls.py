"""Web addresses of sources: which are taken at the door."""

from devflow import config
from devflow.addresses import UrlError, check
from devflow.errors import invalid


def check_url(url: str, *, allow_private: bool | None = None) -> str:
    """Give the one spelling of a web address. For the door, where a source is made: names are not resolved here.

    Raises `invalid_input` for other schemes, credentials, a missing or odd host, and addresses that are not public
    unless `allow_private` (default: the configuration) lets them.
    """
    allowed = config.current().knowledge.allow_private_addresses if allow_private is None else allow_private
    try:
        return check(url, may_be_private=lambda _host, _port: allowed)
    except UrlError as exc:
        raise invalid(f"This address cannot be read: {exc}. Give an http or https address.", url=str(exc)) from None
