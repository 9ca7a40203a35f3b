"""The TXT line that proves a domain, and the states of a claim."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.trust.domain_claims import (
    OwnershipClaim,
    OwnershipClaims,
    ProofMethod,
    claims_key,
    dump_claims,
    find_covering_claim,
    has_proof_line,
    load_claims,
    make_nonce,
    mark_missed,
    mark_proven,
    parent_domains,
    parse_provable_domain,
)


def claim(
    domain: str = "example.com", method: ProofMethod = "dns", subject: str = "alice", **members: object
) -> OwnershipClaim:
    made = OwnershipClaim(
        domain=domain,
        subject=subject,
        method=method,
        nonce="n0nce",
        state="proven",
        claimed_at=0.0,
        expires_at=100.0,
    )
    return msgspec.structs.replace(made, **members)


@pytest.mark.parametrize("domain", ["example.com", "a.b.example.co.uk", "xn--bcher-kva.example", "Agents.Example.COM."])
def test_a_domain_of_ones_own_can_be_proven(domain: str) -> None:
    """D15."""
    assert parse_provable_domain(domain) == domain.lower().rstrip(".")


@pytest.mark.parametrize(
    "domain",
    [
        "com",
        "co.uk",
        "com.au",
        "github.io",
        "localhost",
        "x.localhost",
        "10.0.0.1",
        "1.1.168.192.in-addr.arpa",
        "::1",
        "[::1]",
        "bücher.example",
        "exa mple.com",
        "-a.example.com",
        "_waypost.example.com",
        f"{'a' * 64}.com",
        ".".join(["a" * 60] * 5),
        "",
        None,
        7,
    ],
)
def test_only_registrable_names_can_be_proven(domain: object) -> None:
    """D15: no address, no single label, no public suffix, A-labels of at most 253 characters."""
    with pytest.raises(InvalidParameter):
        parse_provable_domain(domain)


def test_a_line_is_bound_to_service_domain_subject_and_chance() -> None:
    what = {"service": "registry.example", "domain": "example.com", "subject": "alice"}
    nonce = make_nonce(b"s" * 32, **what)
    assert len(nonce) == 43
    for name in what:
        assert make_nonce(b"s" * 32, **{**what, name: what[name] + "x"}) != nonce
    assert make_nonce(b"t" * 32, **what) != nonce
    moved = {"service": "registry.examplee", "domain": "xample.com", "subject": "alice"}
    assert make_nonce(b"s" * 32, **moved) != nonce


@pytest.mark.parametrize(
    "line",
    [
        "v=waypost1; subject=alice; nonce=n0nce",
        "  v=waypost1;subject=alice;nonce=n0nce ",
        '"v=waypost1; subject=alice; nonce=n0nce"',
    ],
)
def test_the_line_is_found_among_others(line: str) -> None:
    assert has_proof_line(claim(), ["v=spf1 -all", line])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "n0nce",
        "v=waypost1; subject=bob; nonce=n0nce",
        "v=waypost1; subject=alice; nonce=n0nc",
        "v=waypost1; subject=alice; nonce=n0ncee",
        "v=waypost1; nonce=n0nce; subject=alice",
        "v=waypost2; subject=alice; nonce=n0nce",
        "v=waypost1; subject=alice; nonce=n0nce; subject=bob",
        "please publish v=waypost1; subject=alice; nonce=n0nce",
    ],
)
def test_no_other_line_proves_anything(line: str) -> None:
    assert not has_proof_line(claim(), [line])


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_two_subjects_never_share_a_line(one: str, other: str) -> None:
    """A subject cannot be written so that its line is read as another's."""
    first, second = claim(subject=one), claim(subject=other)
    assert has_proof_line(first, [first.line])
    assert has_proof_line(first, [second.line]) is (one == other)
    assert "\n" not in first.line


def test_a_dns_proof_covers_subdomains_and_an_http_proof_only_its_host() -> None:
    for method, below in (("dns", True), ("http", False)):
        held = claim(method=method)  # type: ignore[arg-type]
        assert held.covers("example.com")
        assert held.covers("a.b.example.com") is below
        assert not held.covers("badexample.com")
        assert not held.covers("com")
    assert not claim(state="pending").covers("example.com")
    assert not claim(state="lapsed").covers("example.com")


def test_the_nearest_proven_claim_of_a_subject_is_found() -> None:
    notes = {
        claims_key(held.domain): dump_claims(OwnershipClaims().with_claim(held)) or b""
        for held in (claim("example.com"), claim("a.example.com", "http"), claim("bob.example", subject="bob"))
    }
    assert find_covering_claim("alice", "a.example.com", notes) == claim("a.example.com", "http")
    assert find_covering_claim("alice", "b.a.example.com", notes) == claim("example.com")
    assert find_covering_claim("alice", "bob.example", notes) is None
    assert find_covering_claim("bob", "a.example.com", notes) is None


def test_the_domains_above_end_before_the_last_label() -> None:
    assert parent_domains("a.b.example.com") == ["a.b.example.com", "b.example.com", "example.com"]
    assert parent_domains("localhost") == ["localhost"]
    assert len(parent_domains(".".join("abcdefghijklmnop"))) == limits.PROOF_LEVELS


def test_three_misses_in_a_row_end_a_proof() -> None:
    held = mark_proven(claim(state="pending"), 10.0, 20.0)
    assert (held.state, held.proven_at, held.next_check_at) == ("proven", 10.0, 20.0)
    once = mark_missed(mark_missed(held, 21.0), 22.0)
    assert (once.state, once.failures) == ("proven", 2)
    again = mark_proven(once, 23.0, 30.0)
    assert (again.failures, again.proven_at, again.checked_at) == (0, 10.0, 23.0)
    assert mark_missed(once, 24.0).state == "lapsed"


def test_expired_claims_are_dropped_and_no_claims_are_stored_as_none() -> None:
    note = OwnershipClaims().with_claim(claim(state="pending")).with_claim(claim(subject="bob", state="lapsed"))
    assert set(load_claims(dump_claims(note)).without_expired(50.0).claims) == {"alice"}
    assert dump_claims(note.without_expired(100.0)) is None
