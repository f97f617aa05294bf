import gzip
import http.client
import ipaddress
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpcore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from knowledge.indexing.fetching import Fetched, Fetcher, FetchError
from tests.knowledge.loading.conftest import Configure
from tests.knowledge.loading.site import Answer, Internet, Request, Site, misbehaving, serving

PUBLIC = "93.184.216.34"
MB = 1024 * 1024


@contextmanager
def local(**options: object) -> Iterator[Fetcher]:
    with Fetcher(**{"allow_private": True, "timeout": 10, **options}) as fetcher:  # type: ignore[arg-type] # mixed kinds
        yield fetcher


def failure(fetcher: Fetcher, url: str) -> FetchError:
    with pytest.raises(FetchError) as failed:
        fetcher.get(url)
    return failed.value


def test_a_page_comes_with_its_type_and_validators(site: Site) -> None:
    headers = {"Content-Type": "text/html; charset=latin-1", "ETag": '"v1"', "Last-Modified": "yesterday"}
    site.pages["/a?x=1"] = Answer(b"caf\xe9", headers={**headers, "X-Robots-Tag": "noindex"})
    with local() as fetcher:
        page = fetcher.get(f"{site.url}/a?x=1#part")
    assert page == Fetched(
        url=f"{site.url}/a?x=1",
        status=200,
        data=b"caf\xe9",
        media_type="text/html; charset=latin-1",
        etag='"v1"',
        modified="yesterday",
        not_modified=False,
        robots="noindex",
    )
    asked = site.asked[0].headers
    assert asked["user-agent"].startswith("DevFlow/")
    assert asked["host"] == f"127.0.0.1:{site.port}"
    assert not {"cookie", "authorization", "referer"} & asked.keys()


def test_an_unchanged_page_is_not_sent_again(site: Site) -> None:
    def page(request: Request) -> Answer:
        seen = request.headers.get("if-none-match") == '"v1"' and request.headers.get("if-modified-since") == "then"
        return Answer(status=304, headers={"ETag": '"v1"'}) if seen else Answer(b"x")

    site.pages["/"] = page
    with local() as fetcher:
        again = fetcher.get(site.url, etag='"v1"', modified="then")
        assert (again.not_modified, again.data, again.etag) == (True, b"", '"v1"')
        assert not fetcher.get(site.url).not_modified


def test_a_304_that_was_not_asked_for_is_a_failure(site: Site) -> None:
    site.pages["/"] = Answer(status=304)
    with local() as fetcher:
        assert failure(fetcher, site.url).status == 304


def test_cookies_are_not_kept_and_proxies_of_the_environment_are_not_used(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    site.pages["/"] = Answer(b"x", headers={"Set-Cookie": "a=b"})
    with local() as fetcher:
        fetcher.get(site.url)
        fetcher.get(site.url)
    assert "cookie" not in site.asked[1].headers


@pytest.mark.parametrize(("status", "retry"), [(400, False), (403, False), (404, False), (410, False), (204, False)])
def test_a_refusal_is_final(site: Site, status: int, retry: bool) -> None:
    site.pages["/"] = Answer(status=status)
    with local() as fetcher:
        failed = failure(fetcher, site.url)
    assert (failed.status, failed.retry) == (status, retry)
    assert str(status) in str(failed)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_fault_of_the_server_is_worth_a_later_try(site: Site, status: int) -> None:
    site.pages["/"] = Answer(status=status)
    with local() as fetcher:
        failed = failure(fetcher, site.url)
    assert (failed.status, failed.retry, len(site.asked)) == (status, True, 1)


@pytest.mark.parametrize("status", [429, 503])
def test_a_short_time_to_wait_is_waited_for_once(site: Site, status: int) -> None:
    answers = iter([Answer(status=status, headers={"Retry-After": "7"}), Answer(b"fine")])
    site.pages["/"] = lambda request: next(answers)
    waits: list[float] = []
    with local(sleep=waits.append) as fetcher:
        assert fetcher.get(site.url).data == b"fine"
    assert waits == [7]


def test_a_server_that_is_still_busy_is_not_asked_a_third_time(site: Site) -> None:
    site.pages["/"] = Answer(status=503, headers={"Retry-After": "1"})
    waits: list[float] = []
    with local(sleep=waits.append) as fetcher:
        assert failure(fetcher, site.url).retry
    assert (len(site.asked), waits) == (2, [1])


@pytest.mark.parametrize(
    ("named", "waited"),
    [
        ("31", False),
        ("86400", False),
        ("9" * 5000, False),
        ("soon", False),
        ("-1", False),
        ("", False),
        (format_datetime(datetime.now(UTC) - timedelta(hours=1)), True),
        (format_datetime(datetime.now(UTC) + timedelta(days=1)), False),
        ("Wed, 21 Oct 2015 07:28:00", True),
    ],
    ids=lambda value: "date" if "GMT" in str(value) or "+0000" in str(value) else str(value)[:10],
)
def test_only_a_clear_and_short_wait_is_honoured(site: Site, named: str, waited: bool) -> None:
    site.pages["/"] = Answer(status=503, headers={"Retry-After": named})
    waits: list[float] = []
    with local(sleep=waits.append) as fetcher:
        failure(fetcher, site.url)
    assert waits == ([0] if waited else [])


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_to_the_final_address(site: Site, status: int) -> None:
    site.pages["/old"] = Answer(status=status, headers={"Location": "/new/../new?x=1#part"})
    site.pages["/new?x=1"] = Answer(b"here")
    with local() as fetcher:
        assert fetcher.get(f"{site.url}/old").url == f"{site.url}/new?x=1"


def test_five_redirects_are_followed_and_a_loop_ends(site: Site) -> None:
    for step in range(5):
        site.pages[f"/{step}"] = Answer(status=302, headers={"Location": f"/{step + 1}"})
    site.pages["/5"] = Answer(b"here")
    site.pages["/loop"] = Answer(status=302, headers={"Location": "/loop"})
    with local() as fetcher:
        assert fetcher.get(f"{site.url}/0").data == b"here"
        site.asked.clear()
        assert "redirects" in str(failure(fetcher, f"{site.url}/loop"))
    assert len(site.asked) == 6


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "ftp://example.com/",
        "http://user:secret@example.com/",
        "javascript:alert(1)",
        "http://[::1/",
        "http://2130706433/",
        "http://example.com:99999/",
    ],
)
def test_a_redirect_to_what_is_no_web_address_is_refused(site: Site, location: str) -> None:
    site.pages["/"] = Answer(status=302, headers={"Location": location})
    with local() as fetcher:
        failed = failure(fetcher, site.url)
    assert not failed.retry and len(site.asked) == 1
    assert "secret" not in str(failed)


def test_a_redirect_without_a_target_is_an_error(site: Site) -> None:
    site.pages["/"] = Answer(status=302)
    with local() as fetcher:
        assert failure(fetcher, site.url).status == 302


# Addresses


def guarded(site: Site, names: dict[str, list[str]] | Callable[[str, int], list[str]], **options: object) -> Fetcher:
    """A fetcher with its guard on, on a network where every public address is the site."""
    network = options.pop("network", None) or Internet(site.port)
    resolve = names if callable(names) else lambda host, port: names[host]
    return Fetcher(allow_private=False, timeout=10, resolve=resolve, network=network)  # type: ignore[arg-type] # mixed


def test_the_guard_is_on_by_default_and_the_real_resolver_is_asked(site: Site) -> None:
    with Fetcher(timeout=10) as fetcher:
        for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"):
            failed = failure(fetcher, f"http://{host}:{site.port}/")
            assert "not at a public address" in str(failed) and not failed.retry
        for host in ("2130706433", "0x7f.1", "127.1", "0177.0.0.1"):
            assert "oddly written" in str(failure(fetcher, f"http://{host}:{site.port}/"))
    assert site.asked == []


def test_the_configuration_can_allow_private_addresses(site: Site, configure: Configure) -> None:
    configure(knowledge_allow_private_addresses="true", knowledge_max_document_mb=1)
    site.pages["/"] = Answer(b"x" * MB)
    site.pages["/large"] = Answer(b"x" * (MB + 1))
    with Fetcher() as fetcher:
        assert fetcher.get(site.url).status == 200
        assert "larger than 1 MB" in str(failure(fetcher, f"{site.url}/large"))


def test_a_name_is_connected_to_at_the_address_that_was_checked(site: Site) -> None:
    site.pages["/"] = Answer(b"hello")
    internet = Internet(site.port)
    with guarded(site, {"docs.example": [PUBLIC]}, network=internet) as fetcher:
        assert fetcher.get("http://docs.example/").data == b"hello"
    assert internet.connected == [PUBLIC]
    assert site.asked[0].headers["host"] == "docs.example"


def test_a_name_that_changes_its_answer_is_resolved_once_and_never_reaches_a_private_address(site: Site) -> None:
    site.pages["/"] = Answer(b"hello", headers={"Connection": "close"})
    answers = iter([[PUBLIC], ["127.0.0.1"], ["169.254.169.254"]])
    internet = Internet(site.port)
    with guarded(site, lambda host, port: next(answers), network=internet) as fetcher:
        assert fetcher.get("http://rebound.example/").data == b"hello"
        for _ in range(2):
            assert "not at a public address" in str(failure(fetcher, "http://rebound.example/"))
    assert internet.connected == [PUBLIC]


@pytest.mark.parametrize(
    "private", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "64:ff9b::a00:1", "2002:a00:1::"]
)
def test_one_private_address_among_a_names_addresses_refuses_it(site: Site, private: str) -> None:
    internet = Internet(site.port)
    with guarded(site, {"docs.example": [PUBLIC, private]}, network=internet) as fetcher:
        failed = failure(fetcher, "http://docs.example/")
    assert "not at a public address" in str(failed) and private not in str(failed)
    assert internet.connected == []


@pytest.mark.parametrize("target", ["http://inside.example/", "http://127.0.0.1/", "http://[::ffff:10.0.0.1]/"])
def test_a_redirect_to_a_private_address_is_refused(site: Site, target: str) -> None:
    site.pages["/"] = Answer(status=302, headers={"Location": target})
    internet = Internet(site.port)
    names = {
        "docs.example": [PUBLIC],
        "inside.example": ["192.168.0.10"],
        "127.0.0.1": ["127.0.0.1"],
        "::ffff:a00:1": ["::ffff:10.0.0.1"],
    }
    with guarded(site, names, network=internet) as fetcher:
        assert "not at a public address" in str(failure(fetcher, "http://docs.example/"))
    assert internet.connected == [PUBLIC]


def test_the_next_address_is_tried_when_one_does_not_answer(site: Site) -> None:
    site.pages["/"] = Answer(b"hello")
    internet = Internet(site.port, unreachable=("2606:4700::1111",))
    with guarded(site, {"docs.example": ["2606:4700::1111", PUBLIC]}, network=internet) as fetcher:
        assert fetcher.get("http://docs.example/").data == b"hello"
    assert internet.connected == ["2606:4700::1111", PUBLIC]


def test_only_the_first_addresses_of_very_many_are_tried(site: Site) -> None:
    addresses = [f"93.184.216.{last}" for last in range(1, 200)]
    internet = Internet(site.port, unreachable=tuple(addresses))
    with guarded(site, {"docs.example": addresses}, network=internet) as fetcher:
        assert failure(fetcher, "http://docs.example/").retry
    assert len(internet.connected) == 4


def test_an_unknown_name_may_be_known_later(site: Site) -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")

    with guarded(site, unknown) as fetcher:
        failed = failure(fetcher, "http://docs.example/")
    assert failed.retry and "no address" in str(failed)


def test_a_connection_that_is_refused_may_work_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with local() as fetcher:
        assert failure(fetcher, f"http://127.0.0.1:{port}/").retry


# TLS


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site over TLS with a certificate for docs.example that this process trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "docs.example")])
    names = [x509.DNSName("docs.example"), x509.IPAddress(ipaddress.ip_address("192.0.2.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "site.pem"
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with serving(context) as site:
        yield site


def test_a_certificate_is_verified_against_the_name_though_an_address_is_connected_to(certified: Site) -> None:
    certified.pages["/"] = Answer(b"hello")
    internet = Internet(certified.port)
    names = {"docs.example": [PUBLIC], "other.example": [PUBLIC]}
    with guarded(certified, names, network=internet) as fetcher:
        assert fetcher.get("https://docs.example/").data == b"hello"
        failed = failure(fetcher, "https://other.example/")
    assert "certificate" in str(failed)
    assert len(certified.asked) == 1


def test_a_certificate_nobody_vouches_for_is_refused(certified: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with guarded(certified, {"docs.example": [PUBLIC]}) as fetcher:
        assert "certificate" in str(failure(fetcher, "https://docs.example/"))


def test_a_redirect_from_https_to_http_is_refused(certified: Site) -> None:
    certified.pages["/"] = Answer(status=302, headers={"Location": "http://docs.example/plain"})
    with guarded(certified, {"docs.example": [PUBLIC]}) as fetcher:
        assert "from https to http" in str(failure(fetcher, "https://docs.example/"))
    assert len(certified.asked) == 1


# Size and time


def test_a_page_may_be_exactly_as_large_as_the_limit(site: Site) -> None:
    site.pages["/"] = Answer(b"x" * 1000)
    site.pages["/more"] = Answer(b"x" * 1001)
    with local(max_bytes=1000) as fetcher:
        assert len(fetcher.get(site.url).data) == 1000
        failed = failure(fetcher, f"{site.url}/more")
    assert "larger than" in str(failed) and not failed.retry


@pytest.mark.parametrize(
    ("name", "pack"), [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_compressed_pages_are_unpacked_within_the_limit(site: Site, name: str, pack: Callable[[bytes], bytes]) -> None:
    site.pages["/"] = Answer(pack(b"x" * 1000), headers={"Content-Encoding": name})
    site.pages["/bomb"] = Answer(pack(b"x" * 50 * MB), headers={"Content-Encoding": name})
    with local(max_bytes=1000) as fetcher:
        assert fetcher.get(site.url).data == b"x" * 1000
    with local(max_bytes=MB) as fetcher:
        assert "larger than 1 MB" in str(failure(fetcher, f"{site.url}/bomb"))


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b"not gzip at all"),
        ("gzip", gzip.compress(b"x" * 10_000, mtime=0)[:-20]),
        ("gzip", gzip.compress(b"x" * 10_000, mtime=0)[:-8] + b"\0" * 8),
        ("br", b"x"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x", mtime=0), mtime=0)),
        ("zstd", b"x"),
    ],
)
def test_broken_or_unknown_compression_is_an_error(site: Site, encoding: str, body: bytes) -> None:
    site.pages["/"] = Answer(body, headers={"Content-Encoding": encoding})
    with local() as fetcher:
        failure(fetcher, site.url)


def test_what_follows_a_compressed_page_is_left_unread(site: Site) -> None:
    site.pages["/"] = Answer(gzip.compress(b"page") + b"junk" * 100_000, headers={"Content-Encoding": "gzip"})
    with local() as fetcher:
        assert fetcher.get(site.url).data == b"page"


def test_an_empty_page_is_one(site: Site) -> None:
    site.pages["/"] = Answer(b"", headers={"Content-Encoding": "gzip"})
    with local() as fetcher:
        assert fetcher.get(site.url).data == b""


def ended(url: str, *, within: float, **options: object) -> FetchError:
    started = time.monotonic()
    with local(**options) as fetcher:
        failed = failure(fetcher, url)
    assert time.monotonic() - started < within
    return failed


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


def drip(first: bytes, byte: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Send something, then a byte every 20 ms: each in time for a timeout that starts anew with every byte."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(first)
        while not over.wait(0.02):
            connection.sendall(byte)

    return behave


@pytest.mark.parametrize(
    ("first", "byte"),
    [
        (HEAD + b"\r\n", b"x"),
        (HEAD + b"Content-Length: 1000000\r\n\r\n", b"x"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x"),
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b""),
    ],
    ids=["body", "length", "chunks", "chunk extension", "headers", "interim answers", "silence"],
)
def test_a_page_that_never_ends_is_given_up_in_time(first: bytes, byte: bytes) -> None:
    with misbehaving(drip(first, byte)) as url:
        failed = ended(url, within=2, timeout=0.4)
    assert failed.retry and "0.4 seconds" in str(failed)


def test_redirects_share_one_timeout() -> None:
    def behave(connection: socket.socket, over: threading.Event) -> None:
        over.wait(0.15)
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n")

    with misbehaving(behave) as url:
        assert "0.3 seconds" in str(ended(url, within=2, timeout=0.3))


def flood(first: bytes, more: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(first)
        while not over.is_set():
            connection.sendall(more)

    return behave


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (HEAD + b"\r\n", b"x" * 65536),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
        (HEAD + b"Content-Length: 99999999999\r\n\r\n", b"x" * 65536),
        (HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 10 * MB, 9, mtime=0)[:-8], b""),
        (b"HTTP/1.1 200 OK\r\n", b"X-Header: " + b"x" * 8000 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Header: ", b"x" * 65536),
        (b"HTTP/1.1 200 ", b"x" * 65536),
    ],
    ids=["body", "chunks", "length", "gzip", "headers", "header", "reason"],
)
def test_a_flood_is_cut_off(first: bytes, more: bytes) -> None:
    with misbehaving(flood(first, more)) as url:
        ended(url, within=5, timeout=10, max_bytes=MB)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x00",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 999999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX\x00Y: 1\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    ],
)
def test_what_is_no_whole_http_answer_is_a_failure(answer: bytes) -> None:
    with misbehaving(lambda connection, over: connection.sendall(answer)) as url:
        ended(url, within=5, timeout=1)


def test_a_reset_connection_is_a_failure_worth_a_later_try() -> None:
    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\nxx")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with misbehaving(behave) as url:
        assert ended(url, within=5).retry


def test_an_odd_validator_of_another_server_does_not_break_the_request(site: Site) -> None:
    site.pages["/"] = Answer(b"x", headers={"ETag": '"' + "e" * 600 + '"', "Last-Modified": "m" * 600})
    with local() as fetcher:
        page = fetcher.get(site.url)
        assert (page.etag, page.modified) == ("", "")
        assert fetcher.get(site.url, etag='"caf\xe9"').data == b"x"
        with pytest.raises(FetchError):
            fetcher.get(site.url, etag="a\r\nX-Injected: 1")
    assert not any("x-injected" in request.headers for request in site.asked)


def test_connections_are_kept_between_pages_and_given_back_after_failures(site: Site) -> None:
    class Counting(Internet):
        pass

    internet = Counting(site.port)
    site.pages["/"] = Answer(b"x")
    with guarded(site, {"docs.example": [PUBLIC]}, network=internet) as fetcher:
        for _ in range(5):
            fetcher.get("http://docs.example/")
        assert len(internet.connected) == 1
        for _ in range(30):
            failure(fetcher, "http://docs.example/missing")
        assert fetcher.get("http://docs.example/").data == b"x"


def test_threads_share_a_fetcher_each_with_its_own_deadline(site: Site) -> None:
    for number in range(20):
        site.pages[f"/{number}"] = Answer(str(number).encode())
    read: dict[int, bytes] = {}
    with local() as fetcher:

        def fetch(number: int) -> None:
            read[number] = fetcher.get(f"{site.url}/{number}").data

        threads = [threading.Thread(target=fetch, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert read == {number: str(number).encode() for number in range(20)}


def test_the_fake_network_is_a_network() -> None:
    """A control: without the guard, the same resolver and network would reach the private address."""
    with serving() as site:
        site.pages["/"] = Answer(b"secret")
        pool = httpcore.ConnectionPool(network_backend=Internet(site.port))
        with pool:
            assert pool.request("GET", "http://127.0.0.1/").content == b"secret"
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=5)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"secret"
        connection.close()
