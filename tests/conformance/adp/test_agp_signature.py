"""The signature of a message (adp.md §6.5)."""

from __future__ import annotations

import pytest

from waypost.protocols.adp.agp.messages import sign, signing_input, verify
from waypost.trust.keys.private_key import new_private_key
from waypost.trust.keys.public_key import parse_pem

KEY = new_private_key("ed25519", bytes(range(32)))
INPUT = b"11111111-2222-4333-8444-555555555555\nagent:alice.example.com\nagent:bob.example.com\nchat\n2026-06-18T10:00:00Z\nhello"
SIGNATURE = "ed25519:NW2kxDQ59j1hR5e91R9IjGFgY3PM0L91dbqpA5Fgjbe3tUihUjltWDNmwygEu-bqRYf232TAenduqpX1f9OsBQ"
PEM = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n-----END PUBLIC KEY-----\n"


@pytest.mark.req("ADP-42", "ADP-43")
def test_the_published_vector_is_signed_and_verified() -> None:
    covered = signing_input(
        "11111111-2222-4333-8444-555555555555",
        "agent:alice.example.com",
        "agent:bob.example.com",
        "chat",
        "2026-06-18T10:00:00Z",
        "hello",
    )
    key = parse_pem(PEM)
    assert covered == INPUT
    assert key.raw == bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
    assert key.fingerprint() == KEY.public.fingerprint() == "ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw"
    assert sign(KEY, covered) == SIGNATURE
    assert verify(key, SIGNATURE, covered)
