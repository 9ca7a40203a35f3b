"""Other parsers read what the strict parser accepts in the same way."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from support.records import CODECS
from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import parse_json

_EXAMPLES = [example for codec in CODECS.values() for example in codec.examples()]
_TEXTS = [
    *(json.dumps(example).encode() for example in _EXAMPLES),
    *(json.dumps(example, ensure_ascii=False, indent=1).encode() for example in _EXAMPLES),
    json.dumps({"a": [1, 2.5, {"b": None, "c": [{}], "d": 'é\n"q'}], "e": -3, "f": {}, "g": [[]]}).encode(),
]
_PIECES = (
    b'{"a":1,"a":2}', b"1e5", b"-0", b"-0.0", b"NaN", b"Infinity", b"\\ud83d", b"\\u00e9", b'"', b"\\", b"{", b"}", b"[",
    b"]", b",", b":", b"9007199254740993", b"123456789012345", b"0.1", b"1.", b".5", b"01", b"\xff", b"\xc3\xa9",
    b"\xed\xa0\x80", b"\x00", b"\t", b" ", b"null", b"true", b'"x":', b"\xef\xbb\xbf", b"\\x", b"\\/", b"1-2", b"+1",
)  # fmt: skip


def _damaged(seed: int) -> list[bytes]:
    dice = random.Random(seed)
    made = []
    for _ in range(2000):
        text = bytearray(dice.choice(_TEXTS))
        for _ in range(dice.randint(1, 2)):
            at = dice.randrange(len(text) + 1)
            text[at : at + dice.choice((0, 0, 1, 3))] = dice.choice((*_PIECES, bytes((dice.randrange(256),))))
        made.append(bytes(text))
    return made


def test_documents_are_read_as_other_readers_read_them() -> None:
    for text in _TEXTS:
        assert parse_json(text) == json.loads(text) == msgspec.json.decode(text)


def test_a_damaged_text_is_refused_or_read_as_other_readers_read_it() -> None:
    accepted = 0
    for text in _damaged(7):
        try:
            found = parse_json(text)
        except WaypostError:
            continue
        assert found == json.loads(text) == msgspec.json.decode(text), text
        accepted += 1
    assert accepted > 100


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"b":{"a":1},"a":2}',
        b'{"\\u0061":1,"a":2}',
        b"[1e400]",
        b"[9007199254740992]",
        b'["\\udead"]',
        b"[NaN]",
        b'["\n"]',
        b"[" * 33 + b"]" * 33,
        b"{" + b",".join(b'"%d":0' % number for number in range(limits.JSON_OBJECT_KEYS + 1)) + b"}",
        b"[" + b",".join([b"0"] * (limits.JSON_ARRAY_ITEMS + 1)) + b"]",
        b'{"a":' * 600,
        b"]" * 10,
        b'["\\',
        b'["\\u12',
        b"",
    ],
)
def test_json_that_parsers_read_differently_is_refused(text: bytes) -> None:
    with pytest.raises(WaypostError):
        parse_json(text)
