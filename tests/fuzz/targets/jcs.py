"""Canonical JSON (RFC 8785): one text per value, and the short cut gives the same text as the library."""

from __future__ import annotations

import json

import rfc8785

from waypost.errors import WaypostError
from waypost.model.json import parse_json
from waypost.trust.document_signatures import canonicalize, canonicalize_legacy, canonicalize_parsed


def fuzz(data: bytes) -> None:
    try:
        value = parse_json(data)
    except WaypostError:
        return
    text = canonicalize(value)
    assert text == canonicalize_parsed(value) == rfc8785.dumps(value)
    assert json.loads(text, parse_int=float) == value  # ECMAScript writes a large double as an integer
    assert json.loads(canonicalize_legacy(value)) == value
