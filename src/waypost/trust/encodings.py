"""Bytes as text: base64 in the forms that specifications allow, and hex. One value has one reading.

A signature that could be written in two ways could be counted as two, so bits after the last byte, white space, a
mixture of alphabets and wrong padding are all refused. Everything here raises ValueError; who calls says what it means.
"""

from __future__ import annotations

import base64
import re

_HEX = re.compile(r"(?:[0-9a-f]{2})*\Z")


def encode_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Bytes of base64url without padding (RFC 7515 §2)."""
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if encode_base64url(data) != text:
        raise ValueError("base64url has one form only: without padding, without bits after the last byte")
    return data


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_base64(text: str) -> bytes:
    """Bytes of base64 in either alphabet, padded or not (announce.md P-9), and in no other form."""
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


def decode_hex(text: str) -> bytes:
    """Bytes of lower-case hex, as key ids and digests are written."""
    if not _HEX.match(text):
        raise ValueError("not lower-case hex")
    return bytes.fromhex(text)
