"""The strict URL parser (S3)."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.vectors import load_own_vectors
from waypost import limits
from waypost.errors import InvalidParameter
from waypost.net.address_policy import AddressPolicy
from waypost.net.url import DENIED_PORTS, is_same_site, join_url, parse_url

VECTORS = load_own_vectors("ssrf_targets")
NAMES = ("localhost", "LOCALHOST", "foo.localhost", "ip6-localhost", "metadata.google.internal", "metadata")


@pytest.mark.parametrize("url", VECTORS["deny_urls"])
def test_odd_addresses_are_refused(url: str) -> None:
    """S3."""
    with pytest.raises(InvalidParameter):
        parse_url(url)


@pytest.mark.parametrize("host", [host for host in VECTORS["deny_hosts_text"] if host not in NAMES])
def test_odd_hosts_are_refused_by_the_parser_or_denied_by_their_number(host: str) -> None:
    """S3. Only plain names remain; their addresses are checked."""
    try:
        target = parse_url(f"http://{host}/")
    except InvalidParameter:
        return
    assert target.address is not None
    assert AddressPolicy().find_reason(target.address) is not None


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com./",
        "https://example.com:0443/",
        "https://example.com:/",
        "https://example.com/a b",
        "https://example.com/a\\b",
        "https://example.com/#part",
        "https://exämple.com/",
        "https://-example.com/",
        "https://example..com/",
        "https://[2001:DB8:0:0::1]/",
        "https://1.2.3/",
        "https://1.2.3.0x4/",
        "https://1.2.3.04/",
        "https://example.com:27017/",
        "https:example.com",
        "https:/example.com",
        " https://example.com/",
        "https://example.com\n/",
        "https://example.com/\n",
        f"https://example.com/{'x' * limits.FETCH_URL_CHARS}",
    ],
)
def test_a_non_canonical_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidParameter):
        parse_url(url)


def test_a_plain_address_is_read() -> None:
    target = parse_url("HTTPS://Agents.Example.com:8443/a/b?c=d%20e")
    assert (target.scheme, target.host, target.port, target.target) == (
        "https",
        "agents.example.com",
        8443,
        "/a/b?c=d%20e",
    )
    assert str(target) == "https://agents.example.com:8443/a/b?c=d%20e"
    assert str(parse_url("http://example.com")) == "http://example.com/"
    assert str(parse_url("http://example.com?x=1")) == "http://example.com/?x=1"
    assert parse_url("https://[2606:4700::1111]/").authority == "[2606:4700::1111]"
    assert str(parse_url("http://8.8.8.8:80/").address) == "8.8.8.8"


def test_https_can_be_demanded() -> None:
    with pytest.raises(InvalidParameter, match="https"):
        parse_url("http://example.com/", https_only=True)


def test_only_web_ports_and_unprivileged_ports_are_allowed() -> None:
    for port in (80, 443, 1024, 8080, 65535):
        assert parse_url(f"http://example.com:{port}/").port == port
    for port in (1, 22, 25, 1023, *DENIED_PORTS):
        with pytest.raises(InvalidParameter, match="port"):
            parse_url(f"http://example.com:{port}/")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("example.com", "example.com", True),
        ("example.com", "www.example.com", True),
        ("www.example.com", "example.com", True),
        ("a.example.com", "b.example.com", False),
        ("example.com", "badexample.com", False),
        ("example.com", "example.org", False),
        ("com", "example.com", False),
        ("8.8.8.8", "8.8.8.8", True),
        ("8.8.8.8", "8.8.4.4", False),
    ],
)
def test_a_site_is_a_host_and_its_subdomains(one: str, other: str, same: bool) -> None:
    """S6."""
    assert is_same_site(parse_url(f"https://{one}/"), parse_url(f"https://{other}/")) is same


def test_a_redirect_is_absolute_or_begins_with_a_slash() -> None:
    base = parse_url("https://example.com/a")
    assert join_url(base, "/b?u=https://x/") == "https://example.com/b?u=https://x/"
    assert join_url(base, "//other.example/b") == "https://other.example/b"
    assert join_url(base, "http://169.254.169.254/") == "http://169.254.169.254/"
    for odd in ("b", "", "../b", "javascript:alert(1)"):
        with pytest.raises(InvalidParameter):
            join_url(base, odd)


@given(st.text(alphabet=st.sampled_from("htps:/@[]\\#?%.0x17aZ-_~ \t\n①。é%"), max_size=40) | st.text(max_size=60))
@example("http://example.com:80@127.0.0.1/")
def test_whatever_is_read_is_read_alike_by_others(text: str) -> None:
    """S3: no second reading of an address that was accepted, with and without a scheme before it."""
    for url in (text, f"http://{text}", f"https://example.com{text}"):
        try:
            target = parse_url(url)
        except InvalidParameter:
            continue
        other = urlsplit(str(target))
        assert other.hostname == target.host
        assert (other.port or {"http": 80, "https": 443}[target.scheme]) == target.port
        assert other.username is None
        assert not other.fragment
        assert str(target).isascii()
        assert str(target).isprintable()
        assert parse_url(str(target)) == target
