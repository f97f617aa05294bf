import pytest

from devflow.addresses import UrlError, is_allowed, normalise
from devflow.errors import DevFlowError, ErrorCode
from knowledge.indexing.urls import check_url


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("HTTP://Docs.Example.COM:80", "http://docs.example.com/"),
        ("https://docs.example.com:443/a/../b/./c/#part", "https://docs.example.com/b/c/"),
        ("https://docs.example.com:8443/x", "https://docs.example.com:8443/x"),
        ("https://docs.example.com./x", "https://docs.example.com/x"),
        ("https://example.com/%7euser/a b?q=é&x=%2f", "https://example.com/~user/a%20b?q=%C3%A9&x=%2F"),
        ("https://example.com/%2e%2e/%2E/x/..", "https://example.com/"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://straße.example/", "https://xn--strae-oqa.example/"),
        ("http://[2606:4700:0::1111]/", "http://[2606:4700::1111]/"),
        ("  https://example.com/  ", "https://example.com/"),
        ("https://example.com?x=1", "https://example.com/?x=1"),
        ("https://my_host.example/", "https://my_host.example/"),
    ],
)
def test_a_url_has_one_spelling_and_keeps_it(written: str, spelled: str) -> None:
    assert normalise(written) == spelled
    assert normalise(spelled) == spelled


@pytest.mark.parametrize(
    "url",
    [
        "",
        "docs.example.com",
        "//docs.example.com/",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
        "javascript:alert(1)",
        "data:text/html,x",
        "http:///x",
        "http://",
        "http://user:password@example.com/",
        "http://user@example.com/",
        "http://@example.com/",
        "http://public.example\\@127.0.0.1/",
        "http://public.example\\.evil/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:80a/",
        "http://exa mple.com/",
        "http://example.com/\r\nX-Header: 1",
        "http://example.com/\x00",
        "http://example.com/\ud800",
        "http://a..b/",
        "http://.example.com/",
        "http://%31%32%37.0.0.1/",
        "http://[::1/",
        "http://[1.2.3.4]/",
        "http://[fe80::1%25eth0]/",
        "http://[v1.x]/",
        f"http://{'a' * 64}.example/",
        f"http://{'a.' * 150}example/",
        "http://example.com/" + "a" * 3000,
        "http://example.com/" + "é" * 1000,
        "http://" + "9" * 5000 + "/",
    ],
)
def test_what_is_no_plain_web_address_is_refused(url: str) -> None:
    with pytest.raises(UrlError):
        normalise(url)
    with pytest.raises(DevFlowError) as refused:
        check_url(url, allow_private=True)
    assert refused.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
        "127.0.0.1",
        "127.0.0.1.",
        "①②⑦.0.0.1",
        "127。0。0。1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "api.localhost",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ],
)
def test_private_hosts_are_refused_at_the_door_however_they_are_written(host: str) -> None:
    with pytest.raises(DevFlowError) as refused:
        check_url(f"http://{host}/")
    assert refused.value.code is ErrorCode.INVALID_INPUT


def test_private_hosts_are_taken_where_the_configuration_lets_them_but_never_link_local_ones() -> None:
    assert check_url("http://localhost:8000", allow_private=True) == "http://localhost:8000/"
    assert check_url("http://127.0.0.1/", allow_private=True) == "http://127.0.0.1/"
    assert check_url("http://[::1]/", allow_private=True) == "http://[::1]/"
    for host in ("169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "0.0.0.0", "224.0.0.1"):
        with pytest.raises(DevFlowError):
            check_url(f"http://{host}/", allow_private=True)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254"),
        *("169.254.169.254", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1"),
        *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
        *(
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::1",
            "100::1",
        ),
        *("2001::1", "2001:db8::1", "2002:808:808::", "3fff::1", "5f00::1", "fc00::1", "fd00::1", "fe80::1"),
        *("fe80::1%eth0", "fec0::1", "ff02::1", "not an address", ""),
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert not is_allowed(address, allow_private=False)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00::1"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_allowed(address, allow_private=False)
    assert is_allowed(address, allow_private=True)
