"""Documents inside documents are extracted byte for byte."""

from __future__ import annotations

import msgspec
import pytest

from waypost.protocols.dialects import unpack_documents


@pytest.mark.parametrize(
    "content",
    [
        b'[{"a": 1.0}, {"b":2}]',
        b'{"specVersion": "1.0", "entries": [{"a": 1.0}, {"b":2}]}',
        b'{"servers": [{"a": 1.0}, {"b":2}], "metadata": {}}',
        b'{"agents": [{"a": 1.0}, {"b":2}], "page": 1, "total": 2}',
        b'{"agents": [{"a": 1.0}, {"b":2}]}',
    ],
)
def test_an_array_a_catalog_and_a_page_are_taken_apart(content: bytes) -> None:
    assert unpack_documents(content) == [b'{"a": 1.0}', b'{"b":2}']


@pytest.mark.parametrize(
    "content", [b'{"id": "x", "agents": [1]}', b"{}", b'"text"', b"7", b"null", b'{"entries": 7, "specVersion": "1.0"}']
)
def test_anything_else_is_one_document(content: bytes) -> None:
    assert unpack_documents(content) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[1", b"<html>", b'{"\xff": 1}', b'["\xff"]'])
def test_invalid_json_is_reported(content: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        unpack_documents(content)


def test_a_catalog_in_a_catalog_is_taken_apart_down_to_a_depth() -> None:
    def catalog(*entries: bytes, version: bytes = b"1.0") -> bytes:
        return b'{"specVersion": "%s", "entries": [%s]}' % (version, b", ".join(entries))

    def nest(inner: bytes, member: bytes = b"type") -> bytes:
        return b'{"%s": "application/ai-catalog+json", "data": %s}' % (member, inner)

    linked = b'{"type": "application/ai-catalog+json", "url": "https://example.com/more.json"}'
    empty, newer = nest(catalog()), nest(catalog(b"{}", version=b"2.0"))
    deep = nest(catalog(b'{"a": 1.0}', nest(catalog(b'{"b":2}'), b"mediaType")))
    content = catalog(deep, linked, empty, newer, b"7")
    assert unpack_documents(content, 3) == [b'{"a": 1.0}', b'{"b":2}', linked, empty, newer, b"7"]
    assert unpack_documents(content) == [deep, linked, empty, newer, b"7"]
    assert unpack_documents(content, 2)[1] == nest(catalog(b'{"b":2}'), b"mediaType")  # type: ignore[index]
