"""Strict encodings: one value has one spelling."""

from __future__ import annotations

import pytest

from waypost.trust.encodings import decode_base64, decode_base64url, encode_base64, encode_base64url

BYTES = bytes([0xFB, 0xFF, 0xFE, 0x01])  # -_ in one alphabet, +/ in the other


def test_base64_is_read_in_both_alphabets_padded_or_not() -> None:
    forms = ["+//+AQ==", "+//+AQ", "-__-AQ==", "-__-AQ"]
    assert {decode_base64(form) for form in forms} == {BYTES}
    assert encode_base64(BYTES) == forms[0]


def test_base64url_is_read_without_padding_only() -> None:
    assert decode_base64url("-__-AQ") == BYTES
    assert encode_base64url(BYTES) == "-__-AQ"
    assert decode_base64url("") == b""


@pytest.mark.parametrize(
    "text", ["-__-AQ==", "+//+AQ", "-__-AR", "-__-A", "-__-AQ\n", " -__-AQ", "-__-AQ.", "-__-AQé", "=", "A"]
)
def test_base64url_in_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 — the caller gives the words
        decode_base64url(text)


@pytest.mark.parametrize(
    "text",
    [
        "+_/+AQ==",
        "-/_-AQ",
        "+//+AQ=",
        "+//+AQ===",
        "+//+AR==",
        "+//+AR",
        "+//+ AQ==",
        "+//+AQ==\n",
        "+//=+AQ=",
        "é",
        "A",
        "=",
    ],
)
def test_base64_in_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_base64(text)
