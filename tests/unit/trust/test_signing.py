"""Private keys and the documents that they sign."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from support.signing import KINDS, NOW, agent, key_of, seed_key
from waypost.errors import InvalidKey
from waypost.trust.announce.signed_announcement import parse_signed_announcement, sign_announcement
from waypost.trust.document_signatures import sign_adp_public_key
from waypost.trust.encodings import decode_base64
from waypost.trust.keys.private_key import from_native_private, load_private_key, new_private_key


def test_a_key_follows_from_the_randomness_that_it_was_given() -> None:
    assert new_private_key("ed25519", bytes(32)).public == new_private_key("ed25519", bytes(32)).public
    assert new_private_key("p-256", b"\1" * 48).public == new_private_key("p-256", b"\1" * 48).public
    assert new_private_key("p-256", b"\1" * 48).public != new_private_key("p-256", b"\2" * 48).public
    assert new_private_key("p-256", bytes(48)).public.kind == "p-256"
    for kind, random in (("ed25519", b""), ("ed25519", bytes(31)), ("p-256", bytes(32)), ("rsa", b"x")):
        with pytest.raises(ValueError, match="random bytes"):
            new_private_key(kind, random)
    with pytest.raises(InvalidKey):
        new_private_key("dsa")


def test_a_new_rsa_key_is_one_that_is_accepted() -> None:
    key = new_private_key("rsa")
    assert key.public.kind == "rsa"
    assert key.public.verify(key.sign(b"data"), b"data")


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_comes_back_from_its_pem(kind: str) -> None:
    key = key_of(kind)
    again = load_private_key(key.pem())
    assert again.public == key.public
    assert key.pem().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert "PRIVATE" not in repr(key)


def test_an_invalid_locked_or_unsupported_private_key_is_refused() -> None:
    native = key_of().native
    locked = native.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    foreign = ec.generate_private_key(ec.SECP256K1())
    for pem in (b"", b"text", key_of().public.pem().encode(), locked):
        with pytest.raises(InvalidKey) as refused:
            load_private_key(pem)
        assert "waypost keys new" in str(refused.value.hint)
    with pytest.raises(InvalidKey):
        from_native_private(foreign)
    with pytest.raises(InvalidKey):
        from_native_private(object())


@pytest.mark.parametrize("kind", ["p-256", "p-384", "p-521"])
def test_ecdsa_signatures_have_the_lower_s(kind: str) -> None:
    key = key_of(kind)
    assert isinstance(key.native, ec.EllipticCurvePrivateKey)
    order = {"p-256": 256, "p-384": 384, "p-521": 521}[kind]
    for number in range(8):
        _, s = decode_dss_signature(key.sign(bytes([number])))
        assert s < 2 ** (order - 1)


def test_an_announcement_brings_its_key_along_and_holds() -> None:
    for kind in KINDS:
        message = sign_announcement(agent(), key_of(kind))
        announced = parse_signed_announcement(message)
        assert announced.key == key_of(kind).public
        assert announced.signature is not None
        assert announced.prove(key_of(kind).public, announced.signature) is not None
        assert message["protocol_version"] == "v1.0"


def test_an_announcement_never_names_another_key_than_its_signer() -> None:
    with pytest.raises(InvalidKey, match="is not the key"):
        sign_announcement(agent(public_key=key_of(number=1).public.pem()), key_of(number=2))


def test_a_sequence_and_a_time_are_signed_where_there_are_none() -> None:
    metadata = sign_announcement(agent(), key_of(), now=NOW)["agent"]["metadata"]
    assert metadata["__seq"] == int(NOW * 1000)
    assert metadata["__iat"] == "2026-05-28T20:26:40Z"
    assert metadata["note"] == "é"
    kept = sign_announcement(agent(metadata={"__seq": 7, "__iat": "x"}), key_of(), now=NOW)["agent"]["metadata"]
    assert kept == {"__seq": 7, "__iat": "x"}
    assert sign_announcement(agent(metadata=None), key_of(), now=NOW)["agent"]["metadata"]["__seq"] == int(NOW * 1000)


def test_readers_that_know_one_salt_only_are_served_on_request() -> None:
    key = key_of("rsa")
    assert isinstance(key.native, rsa.RSAPrivateKey)
    message = sign_announcement(agent(), key, older_readers=True)
    longest = padding.PSS(padding.MGF1(SHA256()), padding.PSS.MAX_LENGTH)
    signature = decode_base64(message["signature"])
    key.native.public_key().verify(signature, parse_signed_announcement(message).signing_input, longest, SHA256())
    assert key.public.verify(signature, parse_signed_announcement(message).signing_input)


def test_adp_takes_ed25519_only() -> None:
    assert sign_adp_public_key(seed_key(), "a.example")["fingerprint"] == seed_key().public.fingerprint()
    with pytest.raises(InvalidKey):
        sign_adp_public_key(key_of("p-256"), "a.example")
