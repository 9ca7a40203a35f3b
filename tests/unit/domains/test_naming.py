"""Accepted names of agents (D15), and the paths that are followed (D9)."""

from __future__ import annotations

import pytest

from waypost.domains.target import find_well_known_path, is_domain, is_same_organisation, parse_target
from waypost.errors import InvalidParameter


@pytest.mark.parametrize(
    ("text", "domain", "url"),
    [
        ("alice.example.com", "alice.example.com", ""),
        (" Alice.Example.COM. ", "alice.example.com", ""),
        ("agent:alice.example.com", "alice.example.com", ""),
        ("AGENT:alice.example.com", "alice.example.com", ""),
        ("https://alice.example.com", "alice.example.com", ""),
        ("https://alice.example.com/", "alice.example.com", ""),
        ("https://alice.example.com:8443/x.json", "alice.example.com", "https://alice.example.com:8443/x.json"),
        ("https://alice.example.com/?a=b#c", "alice.example.com", "https://alice.example.com/?a=b"),
        ("chat._agents.example.com", "chat._agents.example.com", ""),
        ("xn--mnchen-3ya.de", "xn--mnchen-3ya.de", ""),
        ("alice.agents.test", "alice.agents.test", ""),
    ],
)
def test_a_domain_an_agent_uri_and_an_address_are_read(text: str, domain: str, url: str) -> None:
    asked = parse_target(text)
    assert (asked.domain, asked.url) == (domain, url)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "com",
        "localhost",
        "co.uk",
        "com.au",
        "github.io",
        "pages.dev",
        "127.0.0.1",
        "1.2.3.4.",
        "0x7f.1",
        "a.0x7f000001",
        "[::1]",
        "::1",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://2130706433/",
        "http://alice.example.com/",
        "ftp://alice.example.com/",
        "https://user@alice.example.com/",
        "https://alice.example.com\\@evil.example.net/",
        "https://alice.example.com:99999/",
        "münchen.de",
        "alice..example.com",
        "-alice.example.com",
        "alice-.example.com",
        "al ice.example.com",
        "alice.example.com/x",
        "alice.example.com\nx",
        "a" * 64 + ".example.com",
        ".".join(["a" * 60] * 5),
        "agent:",
        "agent:agent:alice.example.com",
    ],
)
def test_an_invalid_target_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter):
        parse_target(text)
    assert not is_domain(text)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("agent.json", "/.well-known/agent.json"),
        ("a/b.json", "/.well-known/a/b.json"),
        ("/other/card.json", "/other/card.json"),
        ("", None),
        ("/", None),
        ("..", None),
        ("../x", None),
        ("a/./b", None),
        ("//evil.example.net/x", None),
        ("/x//y", None),
        ("https://evil.example.net/x", None),
        ("x%2fy", None),
        ("x?y", None),
        ("x#y", None),
        ("x y", None),
        ("x\\y", None),
        ("a" * 129, None),
    ],
)
def test_a_path_stays_on_its_host(value: str, path: str | None) -> None:
    assert find_well_known_path(value) == path


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("index.example.com", "example.com", True),
        ("example.com", "example.net", False),
        ("a.co.uk", "b.co.uk", False),
        ("x.a.co.uk", "a.co.uk", True),
        ("a.github.io", "b.github.io", False),
        ("example.com.evil.net", "example.com", False),
    ],
)
def test_hosts_of_one_registrable_domain_are_one_organisation(one: str, other: str, *, same: bool) -> None:
    assert is_same_organisation(one, other) is same
