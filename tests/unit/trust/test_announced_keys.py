"""Keys in announcements: PEM, certificate, base64."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from support.signing import KINDS, NOW, agent, key_of
from waypost import limits
from waypost.errors import InvalidDocument, InvalidKey
from waypost.trust.announce.signed_announcement import (
    certificate_validity,
    parse_announced_key,
    parse_signed_announcement,
    sign_announcement,
)
from waypost.trust.checks.announce import check_announcement
from waypost.trust.checks.bound_key import BoundKey
from waypost.trust.encodings import encode_base64
from waypost.trust.keys.private_key import PrivateKey

BEGINS = datetime.fromtimestamp(NOW - 3600, UTC)
ENDS = BEGINS + timedelta(days=1)


def certificate(key: PrivateKey) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "agent")])
    builder = x509.CertificateBuilder(name, name, key.native.public_key(), 1, BEGINS, ENDS)
    algorithm = None if key.public.kind == "ed25519" else SHA256()
    return builder.sign(key.native, algorithm).public_bytes(Encoding.PEM).decode()


@pytest.mark.parametrize("kind", KINDS)
def test_the_key_of_a_certificate_is_extracted_and_the_certificate_kept(kind: str) -> None:
    found = parse_announced_key(certificate(key_of(kind)))
    assert found == key_of(kind).public
    assert found.certificate is not None
    assert certificate_validity(found.certificate) == (BEGINS.timestamp(), ENDS.timestamp())
    assert key_of(kind).public.certificate is None


def test_a_bare_key_is_read_as_base64() -> None:
    assert parse_announced_key(encode_base64(key_of().public.spki)) == key_of().public


@pytest.mark.parametrize(
    "text",
    [
        "",
        7,
        None,
        ["x"],
        "-----BEGIN PUBLIC KEY-----",
        "é",
        "x" * (limits.KEY_BYTES + 1),
        key_of().pem().decode(),
        certificate(key_of()).replace("CERTIFICATE", "CERTIFICATE REQUEST"),
        certificate(key_of()).replace("CERTIFICATE", "PUBLIC KEY"),
        certificate(key_of()) * 2,
        key_of().public.pem().replace("PUBLIC KEY", "CERTIFICATE"),
    ],
)
def test_an_invalid_announced_key_is_refused_with_its_path(text: Any) -> None:
    with pytest.raises(InvalidKey) as refused:
        parse_announced_key(text)
    assert refused.value.path == "$.agent.public_key"


@pytest.mark.parametrize(("moment", "reason"), [(-7200, "not valid yet"), (86_400, "has expired")])
def test_a_certificate_is_good_between_its_dates_only(moment: float, reason: str) -> None:
    key = key_of()
    message = sign_announcement(agent(public_key=certificate(key)), key)
    bound = (BoundKey(key.public, "pin"),)
    for keys in ((), bound):
        [found] = check_announcement(message, keys, NOW + moment)
        assert (found.state, reason in found.reason) == ("failed", True)
    assert check_announcement(message, bound, NOW)[0].state == "passed"


def test_a_message_without_an_agent_is_refused() -> None:
    for message in ({}, {"agent": None}, {"agent": "x"}):
        with pytest.raises(InvalidDocument) as refused:
            parse_signed_announcement(message)
        assert refused.value.path == "$.agent"
