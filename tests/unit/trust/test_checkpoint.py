"""Signed checkpoints: written ones verify, changed ones do not."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from waypost.errors import BadSignature, InvalidDocument, InvalidKey
from waypost.trust.document_signatures import adp_payload
from waypost.trust.encodings import encode_base64url
from waypost.trust.jose import InvalidJws
from waypost.trust.jwt import service_key, sign_jwt, verify_jwt
from waypost.trust.transparency_log import (
    Checkpoint,
    VerifierKey,
    log_origin,
    parse_checkpoint,
    parse_verifier_key,
    sign_checkpoint,
    verify_checkpoint,
)

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
RAW = PRIVATE.public_key().public_bytes_raw()
KEY = VerifierKey(log_origin(RAW), RAW)
CHECKPOINT = Checkpoint(KEY.name, 20_852_163, hashlib.sha256(b"root").digest())
NOTE = sign_checkpoint(CHECKPOINT, KEY, PRIVATE.sign)

# From the documentation of the format (C2SP signed-note): a note, and the key that signed it.
EXAMPLE_KEY = "example.com/foo+530d903f+AX6jaMCOi+ZmJGKQSjrbW2xn5fFOOqHZFQ5UM4QMFYYb"


def test_a_note_has_the_lines_that_the_format_asks_for() -> None:
    lines = NOTE.split("\n")
    assert lines[:4] == [CHECKPOINT.origin, "20852163", "SBNJTRN+FjG7owHVrKtue7eqdM4RhdRWVl71HXN2d7I=", ""]
    assert lines[4].startswith(f"\u2014 {KEY.name} ")
    assert lines[5:] == [""]


def test_a_signed_checkpoint_verifies_beside_unknown_witnesses() -> None:
    assert verify_checkpoint(NOTE, KEY) == parse_checkpoint(NOTE) == CHECKPOINT
    other = NOTE[:-1] + "\n\u2014 witness.example AAAAAAAAAAAAAAAA\n"
    assert verify_checkpoint(other, KEY) == CHECKPOINT


def test_a_verifier_key_survives_its_text() -> None:
    assert parse_verifier_key(KEY.text()) == KEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        KEY.text().replace("+", " "),
        EXAMPLE_KEY.replace("530d903f", "530d9030"),
        "a" * 300 + EXAMPLE_KEY[15:],
        KEY.text()[:-1],
    ],
)
def test_other_texts_are_no_verifier_keys(text: str) -> None:
    with pytest.raises((InvalidKey, InvalidDocument)):
        parse_verifier_key(text)


def test_any_changed_character_is_noticed() -> None:
    for place, character in enumerate(NOTE):
        changed = NOTE[:place] + ("B" if character != "B" else "C") + NOTE[place + 1 :]
        with pytest.raises((BadSignature, InvalidDocument)):
            verify_checkpoint(changed, KEY)


def test_another_key_of_the_same_name_is_another_signer() -> None:
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    forged = sign_checkpoint(CHECKPOINT, VerifierKey(KEY.name, other.public_key().public_bytes_raw()), other.sign)
    with pytest.raises(BadSignature, match="not signed by"):
        verify_checkpoint(forged, KEY)


@pytest.mark.parametrize(
    "note",
    [
        "",
        "origin\n1\nAAAA\n",
        "origin\n01\nSBNJTRN+FjG7owHVrKtue7eqdM4RhdRWVl71HXN2d7I=\n\n\u2014 a AAAAAAAA\n",
        "origin\n1\nAAAA\n\n\u2014 a AAAAAAAA\n",
        "origin\n-1\nSBNJTRN+FjG7owHVrKtue7eqdM4RhdRWVl71HXN2d7I=\n\n\u2014 a AAAAAAAA\n",
        "\n1\nSBNJTRN+FjG7owHVrKtue7eqdM4RhdRWVl71HXN2d7I=\n\n\u2014 a AAAAAAAA\n",
        NOTE[:-1],
        NOTE.replace("\u2014", "-"),
        NOTE + "x" * 10_000,
    ],
)
def test_a_malformed_checkpoint_is_refused(note: str) -> None:
    with pytest.raises(InvalidDocument):
        parse_checkpoint(note)


def test_a_signature_for_one_purpose_serves_no_other() -> None:
    """C14: everything that one key signs starts with its purpose, and each verifier requires its own."""
    token = sign_jwt(PRIVATE, {"sub": "alice"}, key_id="k")
    head = token.rpartition(".")[0]
    assert verify_jwt(service_key(PRIVATE.public_key()), token) == {"sub": "alice"}
    signed = (head.encode(), CHECKPOINT.text().encode(), adp_payload("agents.example"), b'{"agent_id":"a"}')
    assert [text[:6] for text in signed] == [b"eyJhbG", b"waypos", b"agent:", b'{"agen']

    note = f"{head}\n\n\u2014 {KEY.name} " + base64.b64encode(KEY.key_id + PRIVATE.sign(head.encode())).decode() + "\n"
    with pytest.raises((BadSignature, InvalidDocument)):
        verify_checkpoint(note, KEY)
    for text in signed[1:]:
        with pytest.raises(InvalidJws):
            verify_jwt(service_key(PRIVATE.public_key()), f"{head}.{encode_base64url(PRIVATE.sign(text))}")
