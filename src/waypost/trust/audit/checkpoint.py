"""Signed checkpoints of a log: its name, size and root in three lines (C2SP tlog-checkpoint), in a signed note (C2SP
signed-note) with an Ed25519 key.

Whoever keeps a checkpoint can show later that the log was rewritten. Knows no log, no clock and no network.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from typing import NamedTuple

from waypost import limits
from waypost.errors import BadSignature, InvalidDocument, InvalidKey
from waypost.trust.audit.merkle import HASH_BYTES
from waypost.trust.keys import ed25519

_ED25519 = b"\x01"  # the kind of key, in a note's key id and in a verifier key
_KEY_BYTES = 32
_KEY_ID_BYTES = 4
_DASH = "\u2014 "  # an em dash and a space begin each signature line
_NAME = re.compile(r"[^\s+]{1,256}\Z")
_SIZE = re.compile(r"(?:0|[1-9][0-9]{0,18})\Z")
_VERIFIER = re.compile(r"([^\s+]{1,256})\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})\Z")


class Checkpoint(NamedTuple):
    origin: str  # which log
    size: int
    root: bytes

    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{_encode(self.root)}\n"


class VerifierKey(NamedTuple):
    """A public key with the name that signs under it."""

    name: str
    raw: bytes

    @property
    def key_id(self) -> bytes:
        return hashlib.sha256(self.name.encode() + b"\n" + _ED25519 + self.raw).digest()[:_KEY_ID_BYTES]

    def text(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{_encode(_ED25519 + self.raw)}"


def log_origin(key: bytes) -> str:
    """The name of a log that only its key tells from others: it stays when addresses change."""
    return f"waypost/{hashlib.sha256(key).hexdigest()[:16]}"


def sign_checkpoint(checkpoint: Checkpoint, key: VerifierKey, sign: Callable[[bytes], bytes]) -> str:
    """The note. `sign` is the private half of the key."""
    text = checkpoint.text()
    return f"{text}\n{_DASH}{key.name} {_encode(key.key_id + sign(text.encode()))}\n"


def parse_checkpoint(note: str) -> Checkpoint:
    """What a note says, whoever signed it. Lines after the third belong to others."""
    text, _ = _split_note(note)
    lines = text.split("\n")
    if len(lines) < 4 or not lines[0] or not _SIZE.match(lines[1]):
        raise _malformed("a checkpoint has an origin, a size and a root")
    root = _decode(lines[2])
    if len(root) != HASH_BYTES:
        raise _malformed("the root of a checkpoint has 32 bytes")
    return Checkpoint(lines[0], int(lines[1]), root)


def verify_checkpoint(note: str, key: VerifierKey) -> Checkpoint:
    """What a note says that this key signed."""
    text, signatures = _split_note(note)
    for name, key_id, signature in signatures:
        if (name, key_id) == (key.name, key.key_id):
            if not ed25519.verify(key.raw, signature, text.encode()):
                raise BadSignature("The signature of the checkpoint does not hold.", path="checkpoint")
            return parse_checkpoint(note)
    raise BadSignature(f"The checkpoint is not signed by {key.name}.", path="checkpoint")


def parse_verifier_key(text: str) -> VerifierKey:
    found = _VERIFIER.match(text)
    raw = _decode(found[3]) if found else b""
    if found is None or len(raw) != 1 + _KEY_BYTES or raw[:1] != _ED25519:
        raise InvalidKey("This is not the verifier key of an Ed25519 note.", path="key", hint="Use NAME+ID+KEY.")
    key = VerifierKey(found[1], raw[1:])
    if key.key_id.hex() != found[2]:
        raise InvalidKey("The id in the verifier key is that of another key.", path="key")
    return key


def _split_note(note: str) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    """The signed text, with its last newline, and the signatures after the blank line."""
    if len(note) > limits.CHECKPOINT_BYTES:
        raise _malformed(f"a checkpoint has at most {limits.CHECKPOINT_BYTES} characters")
    text, blank, rest = note.rpartition("\n\n")
    if not blank or not rest.endswith("\n"):
        raise _malformed("a signed note ends with its signatures, after a blank line")
    return text + "\n", [_signature(line) for line in rest[:-1].split("\n")]


def _signature(line: str) -> tuple[str, bytes, bytes]:
    name, space, data = line.removeprefix(_DASH).partition(" ")
    if not line.startswith(_DASH) or not space or not _NAME.match(name):
        raise _malformed("a signature line is a dash, a name and base64")
    raw = _decode(data)
    if len(raw) <= _KEY_ID_BYTES:
        raise _malformed("a signature is too short")
    return name, raw[:_KEY_ID_BYTES], raw[_KEY_ID_BYTES:]


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _malformed("base64 is expected") from None
    if _encode(data) != text:
        raise _malformed("base64 has one form only")
    return data


def _malformed(why: str) -> InvalidDocument:
    return InvalidDocument(f"This is not a signed checkpoint: {why}.", path="checkpoint")
