"""Strict base64 and base64url: one spelling per value.

A signature with two spellings could count as two signatures, so bits after the last byte, white space, mixed alphabets
and wrong padding are rejected. All functions raise ValueError.
"""

from __future__ import annotations

import base64


def encode_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Decode base64url without padding (RFC 7515 §2)."""
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if encode_base64url(data) != text:
        raise ValueError("not canonical base64url: it must have no padding and no bits after the last byte")
    return data


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_base64(text: str) -> bytes:
    """Decode base64 in either alphabet, padded or not (announce.md P-9)."""
    bare = text.rstrip("=")
    padding = len(text) - len(bare)
    if padding not in (0, -len(bare) % 4):
        raise ValueError("wrong padding")
    if not set(bare).isdisjoint("-_"):
        return decode_base64url(bare)
    data = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    if encode_base64(data).rstrip("=") != bare:
        raise ValueError("bits after the last byte")
    return data
