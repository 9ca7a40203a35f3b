"""Which domain an id names, and which ids are the same."""

from __future__ import annotations

import pytest

from waypost.model.names import canonical_id, domain_of, equivalent_ids

UUID = "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d"


@pytest.mark.parametrize(
    "agent_id",
    [
        "agent:bank.example",
        "AGENT:Bank.Example",
        "agent:bank.example.",
        "agent:b%61nk.example",
        "agent:%62ank%2Eexample",
        "agent://bank.example/x",
        "agent:bank.example:8443",
        "agent:me@bank.example",
        "agent:\uff42ank.example",  # full-width b
        "agent:bank\u00ad.example",  # soft hyphen
        "https://ba\u200bnk.example\ufeff/",
        "https://bank.example/agent",
        "HTTPS://BANK.EXAMPLE/agent",
        "https://bank.example:8443/agent",
        "https://user:secret@bank.example/agent",
        "https://evil.example@bank.example/",
        "https://bank.example\\@evil.example/",
        "https://bank.example?@evil.example",
        "https://bank.example#@evil.example",
        "https://bank\u3002example/",
        "urn:air:bank.example:teller",
        "URN:AIR:Bank.Example:teller",
        "did:web:bank.example%3A8443:teller",
        "dns:_agent.bank.example",
        " agent:bank.example ",
    ],
)
def test_every_spelling_names_the_domain(agent_id: str) -> None:
    assert domain_of(agent_id) == "bank.example"


@pytest.mark.parametrize(
    ("agent_id", "domain"),
    [
        ("agent:b\u0430nk.example", "xn--bnk-6cd.example"),  # a Cyrillic a
        ("agent:xn--bnk-6cd.example", "xn--bnk-6cd.example"),
        ("https://bank.example.evil.example/", "bank.example.evil.example"),
        ("https://evil.example/bank.example", "evil.example"),
        ("agent:stra\u00dfe.example", "xn--strae-oqa.example"),
        ("https://[2001:db8::1]:8443/a", "2001:db8::1"),
        ("teller", None),
        (f"urn:uuid:{UUID}", None),
        ("urn:example:bank.example", None),
        ("agent:", None),
        ("https:///path", None),
        ("u-YWdlbnQ6YmFuay5leGFtcGxl", None),
    ],
)
def test_another_domain_is_another_domain(agent_id: str, domain: str | None) -> None:
    assert domain_of(agent_id) == domain


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (UUID, f"urn:uuid:{UUID}"),
        (UUID.upper(), f"URN:UUID:{UUID}"),
        (UUID.replace("-", ""), UUID),
        (f"urn:uuid:{UUID.replace('-', '')}", f"urn:uuid:{UUID}"),
        (f"urn:uuid:{UUID.replace('-', '').upper()}", UUID),
        (f"{{{UUID.upper()}}}", f"urn:uuid:{{{UUID}}}"),
        (f"{{{UUID}}}", UUID),
        ("agent:BANK.example.", "agent:bank.example"),
        ("https://Bank.example:443/a", "https://bank.example/a"),
        ("URN:AIR:Bank.example:a", "urn:air:bank.example:a"),
    ],
)
def test_spellings_of_one_id_are_equal(one: str, other: str) -> None:
    assert canonical_id(one) == canonical_id(other)
    assert canonical_id(canonical_id(one)) == canonical_id(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://bank.example/a", "https://bank.example/A"),
        ("https://bank.example/a", "https://bank.example:8443/a"),
        ("https://bank.example/a", "http://bank.example/a"),
        ("did:web:bank.example%3A8443", "did:web:bank.example"),
        ("urn:air:bank.example:a", "urn:air:bank.example:A"),
        ("teller", "Teller"),
        (UUID.replace("-", "")[1:], UUID[1:]),
        (f"{{{UUID}", UUID),
        (f"urn:uuid:urn:uuid:{UUID}", UUID),
        ("agent:bank.example", "agent:b\u0430nk.example"),
    ],
)
def test_other_ids_stay_apart(one: str, other: str) -> None:
    assert canonical_id(one) != canonical_id(other)


@pytest.mark.parametrize(
    "end", ["", "/a", "/A?b#c", "\\a", "?a", "#a", ".", "/a ", "/a\n", "\u2003", "/\u00e4", "/a\nb"]
)
def test_a_url_that_needs_no_normalization_is_read_as_any_other(end: str) -> None:
    """The scheme in capitals needs it."""
    plain, capitals = f"https://bank-1.example{end}", f"HTTPS://bank-1.example{end}"
    assert (canonical_id(plain), domain_of(plain)) == (canonical_id(capitals), domain_of(capitals))


def test_a_uuid_has_two_usual_spellings() -> None:
    assert equivalent_ids(UUID) == (f"urn:uuid:{UUID}",)
    assert equivalent_ids(f"urn:uuid:{UUID}") == (UUID,)
    assert equivalent_ids("teller") == ()
