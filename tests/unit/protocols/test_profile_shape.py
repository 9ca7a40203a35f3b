"""The fast check and the decoder agree: a document that passes one passes the other."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.protocols import record_reader
from waypost.protocols.profile.codec import PROFILE
from waypost.protocols.record_reader import is_valid_record

FULL = PROFILE.examples()[0] | {
    "auth": {"type": "none"},
    "constraints": {"region": "eu"},
    "signature": {"alg": "EdDSA"},
    "extra": 1,
}
PLACES = (
    ("id",), ("name",), ("description",), ("tags",), ("tags", 0), ("examples",), ("examples", 0), ("examples", 0, "id"),
    ("examples", 0, "text"), ("examples", 0, "tags"), ("examples", 0, "tags", 0), ("examples", 0, "input_schema"),
    ("examples", 0, "output_schema"), ("examples", 0, "language"), ("bindings",), ("bindings", 0),
    ("bindings", 0, "protocol"), ("bindings", 0, "endpoint"), ("bindings", 0, "media_types"),
    ("bindings", 0, "media_types", 0), ("bindings", 0, "interaction_model"), ("bindings", 0, "priority"), ("auth",),
    ("constraints",), ("signature",), ("status",), ("version",),
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 1.0, 2.5, "", " ", "\t\n", "\u2003", "\x1c", "a b", "a\u00a0b", "a\x7fb", "a\u200bb", "ok",
    "active", "x" * 64, "x" * 65, "x" * 128, "x" * 129, "x" * 255, "x" * 256, "x" * 257, "x" * 512, "x" * 513,
    "x" * 1024, "x" * 1025, "x" * 2048, "x" * 2049, "x" * 10_001, "x" * 100_001, [], {}, [None], [""], [" "], ["ok"],
    [1], [{}], [[]], {"x": 1}, ["x"] * limits.TAGS, ["x"] * (limits.TAGS + 1), ["x"] * (limits.FILTER_VALUES + 1),
    [{"text": "x"}] * (limits.EXAMPLES + 1), [{"protocol": "https", "endpoint": "x"}] * (limits.BINDINGS + 1),
)  # fmt: skip


def _reader_accepts(document: JsonObject) -> bool:
    try:
        record_reader._check_members(document, "$")
    except InvalidDocument:
        return False
    return True


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_every_document_that_the_quick_check_accepts_is_accepted_by_the_decoder(place: tuple[Any, ...]) -> None:
    for value in VALUES:
        document: Any = copy.deepcopy(FULL)
        target = document
        for step in place[:-1]:
            target = target[step]
        target[place[-1]] = value
        assert not is_valid_record(document) or _reader_accepts(document), f"{place}: {value!r:.40}"


def test_the_usual_document_passes_the_quick_look() -> None:
    assert is_valid_record(FULL)
    assert all(is_valid_record(example) for example in PROFILE.examples())


@pytest.mark.parametrize("name", ["id", "name", "description"])
def test_a_document_without_a_required_member_is_invalid(name: str) -> None:
    assert not is_valid_record({key: value for key, value in FULL.items() if key != name})
