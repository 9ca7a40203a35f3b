"""TLSA records against certificates: usages, selectors, matching types, and unusable records."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.certificates import Authority
from waypost.errors import InvalidDocument
from waypost.protocols.dns_rdata import TlsaRecord, match_any, match_tlsa, parse_tlsa, tlsa_of, write_tlsa


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Leaf and authority, in DER."""
    import ssl

    authority = Authority(tmp_path_factory.mktemp("authority"))
    leaf: Path = authority.server_files("alice.example.com")[0]
    return ssl.PEM_cert_to_DER_cert(leaf.read_text()), ssl.PEM_cert_to_DER_cert(authority.certificate.read_text())


@pytest.mark.parametrize("matching", [0, 1, 2])
@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize("usage", [0, 1, 2, 3])
def test_every_form_matches_its_certificate_and_no_other(
    chain: tuple[bytes, bytes], usage: int, selector: int, matching: int
) -> None:
    leaf, authority = chain
    right, wrong = (leaf, authority) if usage in (1, 3) else (authority, leaf)
    record = tlsa_of(right, usage=usage, selector=selector, matching=matching)
    assert match_tlsa(parse_tlsa(write_tlsa(record)), chain) == "match"
    assert match_tlsa(tlsa_of(wrong, usage=usage, selector=selector, matching=matching), chain) == "mismatch"


@pytest.mark.parametrize(
    "record",
    [
        TlsaRecord(usage=4, selector=1, matching=1, data=bytes(32)),
        TlsaRecord(usage=3, selector=2, matching=1, data=bytes(32)),
        TlsaRecord(usage=3, selector=1, matching=3, data=bytes(32)),
        TlsaRecord(usage=3, selector=1, matching=1, data=bytes(31)),
        TlsaRecord(usage=3, selector=1, matching=2, data=bytes(32)),
        TlsaRecord(usage=3, selector=1, matching=0, data=b""),
        TlsaRecord(usage=255, selector=255, matching=255, data=b""),
    ],
)
def test_unknown_parameters_are_unusable(chain: tuple[bytes, bytes], record: TlsaRecord) -> None:
    assert match_tlsa(record, chain) == "unusable"


def test_an_authority_needs_more_than_the_leaf(chain: tuple[bytes, bytes]) -> None:
    assert match_tlsa(tlsa_of(chain[1], usage=2), chain[:1]) == "unusable"
    assert match_tlsa(tlsa_of(chain[0]), ()) == "unusable"


def test_one_match_is_enough_and_all_comparable_ones_failing_is_a_failure(chain: tuple[bytes, bytes]) -> None:
    good, bad = tlsa_of(chain[0]), tlsa_of(chain[1])
    unusable = TlsaRecord(usage=9, selector=1, matching=1, data=bytes(32))
    assert match_any([bad, unusable, good], chain)[0] == "match"
    assert match_any([unusable, bad], chain)[0] == "mismatch"
    assert match_any([unusable], chain) == ("unusable", None)
    assert match_any([], chain) == ("unusable", None)


def test_tlsa_data_that_is_too_short_is_malformed() -> None:
    with pytest.raises(InvalidDocument):
        parse_tlsa(b"\3\1")
