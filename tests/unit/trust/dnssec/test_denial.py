"""Denial of existence: valid proofs, and proofs used for more than they say."""

from __future__ import annotations

import dns.dnssec
import dns.name
import dns.rdata
import dns.rdatatype
import dns.rrset
import pytest
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.NSEC import NSEC
from dns.rdtypes.ANY.NSEC3 import NSEC3

from support.signed_zones import DAY, NOW, key
from waypost import limits
from waypost.trust.dnssec.denial import DenialProofs, Nsec3Proofs, NsecProofs
from waypost.trust.dnssec.validation import DEFAULT_POLICY, SignedRRset, SigningZone, ValidationBudget, keys_by_tag

ZONE = dns.name.from_text("agent.test.")
TXT, DS = dns.rdatatype.TXT, dns.rdatatype.DS


def name(text: str) -> dns.name.Name:
    return dns.name.from_text(text, ZONE)


def nsec(*rows: tuple[str, str, str]) -> NsecProofs:
    found = []
    for owner, after, types in rows:
        row = dns.rdata.from_text("IN", "NSEC", f"{name(after)} {types}")
        assert isinstance(row, NSEC)
        found.append((name(owner), row))
    return NsecProofs(ZONE, found)


def test_a_name_between_two_others_does_not_exist_if_no_wildcard_stands_for_it() -> None:
    proofs = nsec(("a", "m", "TXT"), ("@", "a", "SOA NS"))
    assert proofs.nxdomain(name("f")).is_secure
    assert not proofs.nxdomain(name("z")).is_secure
    assert not nsec(("a", "m", "TXT")).nxdomain(name("f")).is_secure  # nothing is said of *.agent.test


def test_the_last_record_of_a_zone_covers_all_that_follows() -> None:
    proofs = nsec(("m", "@", "TXT"), ("@", "a", "SOA NS"))
    assert proofs.nxdomain(name("z")).is_secure
    assert not proofs.nxdomain(name("b")).is_secure


def test_a_record_of_another_zone_proves_nothing() -> None:
    row = dns.rdata.from_text("IN", "NSEC", "z.other.test. TXT")
    assert isinstance(row, NSEC)
    proofs = NsecProofs(ZONE, [(dns.name.from_text("a.other.test."), row)])
    assert not proofs.nxdomain(name("f")).is_secure
    assert not proofs.nodata(dns.name.from_text("a.other.test."), DS).is_secure


@pytest.mark.parametrize(("types", "kind", "proven"), [
    ("A", TXT, True),
    ("A TXT", TXT, False),
    ("CNAME", TXT, False),
    ("NS", TXT, False),  # the parent's side of a cut knows nothing of the child
    ("NS SOA", TXT, True),
    ("NS", DS, True),
    ("NS SOA", DS, False),  # the child's side of a cut knows nothing of the parent
    ("NS DS", DS, False),
])  # fmt: skip
def test_a_type_at_a_zone_cut_is_denied_only_by_the_side_that_owns_it(
    types: str, kind: RdataType, proven: bool
) -> None:
    assert nsec(("www", "z", types)).nodata(name("www"), kind).is_secure is proven


def test_a_name_with_something_below_exists() -> None:
    proofs = nsec(("a", "x.y.deep", "TXT"), ("@", "a", "SOA NS"))
    assert proofs.nodata(name("deep"), TXT).is_secure
    assert proofs.nodata(name("y.deep"), TXT).is_secure
    assert not proofs.nxdomain(name("deep")).is_secure


@pytest.mark.parametrize("types", ["NS", "DNAME"])
def test_a_zone_cannot_deny_names_below_a_delegation_or_dname(types: str) -> None:
    """RFC 6840 §4.1."""
    proofs = nsec(("child", "z", types), ("@", "child", "SOA NS"))
    assert not proofs.nxdomain(name("www.child")).is_secure
    assert proofs.nxdomain(name("cousin")).is_secure


def test_a_wildcard_may_stand_for_a_name_only_where_nothing_is_closer() -> None:
    proofs = nsec(("b.wild", "z", "TXT"))
    assert proofs.expansion(name("c.wild"), name("wild")).is_secure
    assert not proofs.expansion(name("c.wild"), ZONE).is_secure
    assert not proofs.expansion(name("x.b.wild"), name("wild")).is_secure  # b.wild is closer
    assert not proofs.expansion(name("a.wild"), name("wild")).is_secure


def test_a_wildcard_without_the_type_proves_that_there_is_none() -> None:
    rows = (("*.wild", "z", "TXT"), ("@", "*.wild", "SOA NS"))
    assert nsec(*rows).nodata(name("a.wild"), dns.rdatatype.MX).is_secure
    assert not nsec(*rows).nodata(name("a.wild"), TXT).is_secure


def test_a_wildcard_with_nothing_but_something_below_has_no_type() -> None:
    """RFC 4592 §2.2.2: it still stands for every name beside it."""
    assert nsec(("@", "x.*", "SOA NS"), ("b", "z", "A")).nodata(name("q"), TXT).is_secure


def test_a_record_that_leads_to_a_wildcard_does_not_say_which_types_it_has() -> None:
    assert not nsec(("@", "*", "SOA NS"), ("b", "z", "A")).nodata(name("q"), TXT).is_secure


# --- NSEC3 ----------------------------------------------------------------------------------------


def hashed(text: str, iterations: int = 1) -> str:
    return dns.dnssec.nsec3_hash(name(text), b"", iterations, 1).lower()


def nsec3(
    *names: tuple[str, str], flags: int = 0, iterations: int = 1, effort: ValidationBudget | None = None
) -> Nsec3Proofs:
    """A whole zone: every name with its types, in the order of hashes."""
    types = {hashed(text, iterations): kinds for text, kinds in names}
    order = sorted(types)
    rows = []
    for one, after in zip(order, [*order[1:], order[0]], strict=True):
        row = dns.rdata.from_text("IN", "NSEC3", f"1 {flags} {iterations} - {after} {types[one]}")
        assert isinstance(row, NSEC3)
        rows.append((name(one), row))
    return Nsec3Proofs(ZONE, rows, effort or ValidationBudget(), DEFAULT_POLICY)


NAMES = (("@", "SOA NS"), ("www", "TXT"), ("child", "NS"), ("wild", ""), ("*.wild", "TXT"))


def test_nsec3_proves_the_same_denials_as_nsec() -> None:
    proofs = nsec3(*NAMES)
    assert proofs.nxdomain(name("nothing")).is_secure
    assert proofs.nxdomain(name("a.b.nothing")).is_secure
    assert not proofs.nxdomain(name("www")).is_secure
    assert proofs.nodata(name("www"), dns.rdatatype.MX).is_secure
    assert not proofs.nodata(name("www"), TXT).is_secure
    assert proofs.nodata(name("wild"), TXT).is_secure
    assert proofs.nodata(name("a.wild"), dns.rdatatype.MX).is_secure
    assert proofs.expansion(name("a.wild"), name("wild")).is_secure
    assert not proofs.expansion(name("a.wild"), ZONE).is_secure
    assert not proofs.nxdomain(name("www.child")).is_secure
    assert proofs.nodata(name("child"), DS).is_secure
    assert proofs.is_delegation(name("child"))
    assert not proofs.is_delegation(name("www"))


def test_a_zone_that_opts_out_proves_no_absence() -> None:
    proofs = nsec3(*NAMES, flags=1)
    assert proofs.nxdomain(name("nothing")).security == "insecure"
    assert proofs.nodata(name("nothing"), DS).security == "insecure"
    assert proofs.expansion(name("a.wild"), name("wild")).security == "insecure"
    assert proofs.nodata(name("www"), dns.rdatatype.MX).is_secure


def test_more_rounds_than_make_sense_are_not_followed() -> None:
    effort = ValidationBudget()
    most = limits.DNSSEC_NSEC3_ITERATIONS
    assert most == 150
    assert nsec3(*NAMES, iterations=most, effort=effort).nxdomain(name("nothing")).is_secure
    spent = effort.hashes
    proofs = nsec3(*NAMES, iterations=most + 1, effort=effort)
    assert proofs.nxdomain(name("nothing")).security == "insecure"
    assert effort.hashes == spent  # nothing was hashed for it


def test_the_number_of_hashed_names_per_lookup_is_limited() -> None:
    """CVE-2023-50868: each name above the one that was asked costs a hash."""
    effort = ValidationBudget(hashes=4)
    deep = name(".".join("abcdefgh"))
    assert nsec3(*NAMES, effort=effort).nxdomain(deep).security == "bogus"
    assert effort.hashes <= 0


@pytest.mark.parametrize("text", ["2 0 1 - {} TXT", "1 2 1 - {} TXT"])
def test_records_of_an_unknown_kind_of_hash_are_passed_over(text: str) -> None:
    row = dns.rdata.from_text("IN", "NSEC3", text.format(hashed("z")))
    assert isinstance(row, NSEC3)
    proofs = Nsec3Proofs(ZONE, [(name(hashed("www")), row)], ValidationBudget(), DEFAULT_POLICY)
    assert not proofs.nodata(name("www"), dns.rdatatype.MX).is_secure


def test_a_proof_that_a_wildcard_was_stretched_to_denies_nothing() -> None:
    """The record of `*` is signed for every name that `*` may stand for, so its owner can be chosen."""
    signer = key(13, "denial")
    zone = SigningZone(name=ZONE, keys=keys_by_tag([signer.record]))
    true = dns.rrset.from_text("*.agent.test.", 60, "IN", "NSEC", "z.agent.test. TXT RRSIG NSEC")
    times = {"inception": int(NOW - DAY), "expiration": int(NOW + DAY)}
    signature = dns.dnssec.sign(true, signer.private, ZONE, signer.record, deterministic=False, **times)
    for owner, proven in (("*", True), ("b", False)):
        moved = dns.rrset.from_rdata_list(name(owner), 60, list(true))
        denial = DenialProofs(
            zone, [SignedRRset(rrset=moved, signatures=(signature,))], NOW, ValidationBudget(), DEFAULT_POLICY
        )
        assert denial.nodata(name(owner), dns.rdatatype.MX).is_secure is proven
