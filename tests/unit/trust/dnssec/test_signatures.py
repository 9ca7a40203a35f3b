"""A record set, its signatures and zone keys: when a signature counts (RFC 4035 §5.3), and the work of a hostile zone (D13)."""

from __future__ import annotations

from typing import Any

import dns.dnssec
import dns.name
import dns.rdata
import dns.rdatatype
import dns.rrset
import pytest
from dns.rdtypes.ANY.RRSIG import RRSIG

from support.signed_zones import DAY, NOW, ZoneKey, key, new_key
from waypost import limits
from waypost.trust.dnssec.validation import (
    DEFAULT_POLICY,
    SecurityStatus,
    SignedRRset,
    SigningZone,
    ValidationBudget,
    VerifiedRRset,
    keys_by_tag,
    usable_ds_records,
    validate_zone_keys,
    verify_rrset,
    zone_keys,
)

ZONE = dns.name.from_text("agent.test.")
OWN = key(13, "unit")


def rrset(name: str = "www.agent.test.", *texts: str) -> dns.rrset.RRset:
    return dns.rrset.from_text(name, 300, "IN", "TXT", *(f'"{text}"' for text in texts or ("hello",)))


def sign(records: dns.rrset.RRset, by: ZoneKey = OWN, **how: Any) -> RRSIG:
    how.setdefault("inception", int(NOW - DAY))
    how.setdefault("expiration", int(NOW + DAY))
    how.setdefault("signer", ZONE)
    signer = how.pop("signer")
    return dns.dnssec.sign(records, by.private, signer, by.record, deterministic=False, **how)


def verify(
    records: dns.rrset.RRset,
    *signatures: RRSIG,
    keys: Any = (OWN,),
    now: float = NOW,
    effort: ValidationBudget | None = None,
) -> VerifiedRRset | SecurityStatus:
    zone = SigningZone(name=ZONE, keys=keys_by_tag(zone_keys([one.record for one in keys])))
    return verify_rrset(
        SignedRRset(rrset=records, signatures=signatures), zone, now, effort or ValidationBudget(), DEFAULT_POLICY
    )


def reason(result: VerifiedRRset | SecurityStatus) -> str:
    assert isinstance(result, SecurityStatus)
    assert result.security == "bogus"
    return result.reason


@pytest.mark.parametrize("algorithm", [8, 10, 13, 14, 15, 16])
def test_a_signature_of_every_algorithm_is_invalid_after_one_changed_byte(algorithm: int) -> None:
    signer = key(algorithm, "unit")
    records = rrset()
    signature = sign(records, signer)
    assert verify(records, signature, keys=[signer]) == VerifiedRRset(ttl=300)
    assert "is invalid" in reason(verify(rrset("www.agent.test.", "hallo"), signature, keys=[signer]))
    bad = signature.replace(signature=bytes([signature.signature[0] ^ 1]) + signature.signature[1:])
    assert "is invalid" in reason(verify(records, bad, keys=[signer]))


def test_order_case_and_time_to_live_of_the_records_do_not_matter() -> None:
    signature = sign(rrset("www.agent.test.", "one", "two"))
    changed = rrset("WWW.Agent.Test.", "two", "one")
    changed.ttl = 17
    assert verify(changed, signature) == VerifiedRRset(ttl=17)


def test_a_ttl_never_exceeds_the_signed_ttl_or_the_validity_of_the_signature() -> None:
    records = rrset()
    signature = sign(records)
    records.ttl = 10**6
    assert verify(records, signature) == VerifiedRRset(ttl=300)
    assert verify(records, sign(records, expiration=int(NOW + 20)), now=NOW) == VerifiedRRset(ttl=20)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"expiration": int(NOW - 1)}, "has expired"),
        ({"inception": int(NOW + 1)}, "is not valid yet"),
        ({"signer": dns.name.from_text("test.")}, "is not signed by its zone"),
        ({"signer": dns.name.from_text("other.test.")}, "is not signed by its zone"),
    ],
)
def test_a_signature_counts_at_its_time_and_for_its_zone(how: dict[str, Any], told: str) -> None:
    assert told in reason(verify(rrset(), sign(rrset(), **how)))


def test_a_signature_at_the_edge_of_its_time_still_counts() -> None:
    signature = sign(rrset(), inception=int(NOW), expiration=int(NOW))
    assert isinstance(verify(rrset(), signature), VerifiedRRset)


def test_the_clock_of_signatures_turns_over() -> None:
    """RFC 4034 §3.1.5: the numbers wrap around in 2106."""
    turn = 2.0**32
    signature = sign(rrset(), inception=int(turn - DAY), expiration=int(turn - 1)).replace(expiration=DAY)
    assert "is invalid" in reason(
        verify(rrset(), signature, now=turn + 5)
    )  # within the validity, but not the signed data
    assert "has expired" in reason(verify(rrset(), signature, now=turn + 2 * DAY))


def test_a_signature_of_another_type_or_with_more_labels_than_the_name_does_not_count() -> None:
    signature = sign(rrset())
    assert "another RRset" in reason(verify(rrset(), signature.replace(type_covered=dns.rdatatype.A)))
    assert "labels" in reason(verify(rrset(), signature.replace(labels=4)))
    assert "labels" in reason(verify(rrset(), signature.replace(labels=1)))


def test_a_signature_over_a_wildcard_tells_where_it_stands() -> None:
    wild = rrset("*.agent.test.")
    signature = sign(wild)
    assert verify(wild, signature) == VerifiedRRset(ttl=300)
    assert verify(rrset("a.b.agent.test."), signature) == VerifiedRRset(ttl=300, encloser=ZONE)


@pytest.mark.parametrize("algorithm", [1, 3, 5, 7, 12, 250])
def test_an_algorithm_that_is_not_known_proves_nothing(algorithm: int) -> None:
    assert "unsupported algorithm" in reason(verify(rrset(), sign(rrset()).replace(algorithm=algorithm)))


@pytest.mark.parametrize("flags", [0, 1, 128, 384, 385])
def test_a_key_that_is_revoked_or_not_for_zones_signs_nothing(flags: int) -> None:
    other = new_key(13, flags=flags)
    assert "no key of the zone" in reason(verify(rrset(), sign(rrset(), other), keys=[other]))


# --- Hostile zones (D13) --------------------------------------------------------------------------


def colliding(count: int) -> list[ZoneKey]:
    """Keys with the tag of our own: a tag is the sum of a key's pairs of bytes, whatever their order."""
    data = OWN.record.key
    turned = [OWN.record.replace(key=data[2 * number :] + data[: 2 * number]) for number in range(1, count)]
    assert {dns.dnssec.key_id(record) for record in turned} == {OWN.tag}
    return [OWN, *(ZoneKey(None, record) for record in turned)]


def test_keys_that_share_a_tag_are_tried_but_only_a_few() -> None:
    few = colliding(12)
    assert len(few) > limits.DNSSEC_COLLIDING_KEYS == 4
    last = [*few[1:4], OWN]
    assert isinstance(verify(rrset(), sign(rrset()), keys=last), VerifiedRRset)
    effort = ValidationBudget()
    assert "too many keys share the tag" in reason(verify(rrset(), sign(rrset()), keys=few, effort=effort))
    assert effort.signatures == limits.DNSSEC_SIGNATURES_PER_LOOKUP  # none was tried


def test_eight_signatures_are_tried_for_one_set_and_no_more() -> None:
    bad = sign(rrset("other.agent.test."))
    good = sign(rrset())
    assert isinstance(verify(rrset(), *[bad] * 7, good), VerifiedRRset)
    effort = ValidationBudget()
    assert "too many signatures to try" in reason(verify(rrset(), *[bad] * 8, good, effort=effort))
    assert limits.DNSSEC_SIGNATURES_PER_LOOKUP - effort.signatures == limits.DNSSEC_SIGNATURES == 8


def test_the_work_of_one_lookup_is_limited() -> None:
    effort = ValidationBudget(signatures=1)
    assert isinstance(verify(rrset(), sign(rrset()), effort=effort), VerifiedRRset)
    assert "too many signatures to try" in reason(verify(rrset(), sign(rrset()), effort=effort))


def test_too_many_signatures_are_not_all_verified() -> None:
    strange = sign(rrset()).replace(key_tag=(OWN.tag + 1) % 65536)
    assert "tag" in reason(verify(rrset(), *[strange] * 500, sign(rrset())))


def test_a_zone_with_more_keys_than_any_needs_is_not_entered() -> None:
    keys = dns.rrset.from_rdata_list(ZONE, 300, [OWN.record.replace(key=bytes([n]) * 64) for n in range(65)])
    anchor = dns.dnssec.make_ds(ZONE, OWN.record, "SHA256")
    result = validate_zone_keys(ZONE, [anchor], SignedRRset(rrset=keys), NOW, ValidationBudget(), DEFAULT_POLICY)
    assert "has too many keys" in reason(result)  # type: ignore[arg-type]


@pytest.mark.parametrize("material", [b"", b"\x00", b"\x01", b"\x00\x00\x00", b"\xff" * 3, b"\x00" * 64, b"\xff" * 300])
@pytest.mark.parametrize("algorithm", [8, 13, 15, 16])
def test_a_key_of_nonsense_signs_nothing(algorithm: int, material: bytes) -> None:
    made = OWN.record.replace(key=material, algorithm=algorithm)
    signature = sign(rrset()).replace(algorithm=algorithm, key_tag=dns.dnssec.key_id(made))
    assert "is invalid" in reason(verify(rrset(), signature, keys=[ZoneKey(None, made)]))


# --- DS records -----------------------------------------------------------------------------------


def ds(text: str) -> Any:
    return dns.rdata.from_text("IN", "DS", text)


def test_sha_1_does_not_count_beside_better() -> None:
    weak, strong, stronger = ds("1 13 1 " + "00" * 20), ds("1 13 2 " + "00" * 32), ds("1 13 4 " + "00" * 48)
    assert usable_ds_records([weak, strong, stronger], DEFAULT_POLICY) == (strong, stronger)
    assert usable_ds_records([weak], DEFAULT_POLICY) == (weak,)


def test_ds_records_of_unknown_algorithms_or_digests_cannot_be_followed() -> None:
    assert (
        usable_ds_records(
            [ds("1 5 2 " + "00" * 32), ds("1 13 3 " + "00" * 32), ds("1 250 2 " + "00" * 32)], DEFAULT_POLICY
        )
        == ()
    )
