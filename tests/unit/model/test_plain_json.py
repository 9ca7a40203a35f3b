"""Most documents are read by a quick reader, after a look that says whether all readers see the same in them. Whatever it
reads, the strict one reads alike; whatever it refuses, the strict one refuses in the same words."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from waypost import limits
from waypost.dialects import CODECS
from waypost.errors import WaypostError
from waypost.model import plain_taking
from waypost.model.json import parse_json, parse_strictly

taking = pytest.importorskip("waypost.compiled.taking", reason="it was not compiled")

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


def _read(read: Any, data: bytes) -> str:
    try:
        return repr(read(data))
    except WaypostError as error:
        return f"{type(error).__name__} {error.message} {error.path} {error.hint}"


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


def test_the_quick_reader_reads_what_the_strict_one_reads() -> None:
    for text in _TEXTS:
        assert _read(parse_json, text) == _read(parse_strictly, text)


def test_most_documents_are_plain() -> None:
    plain = [taking.plainness(text, limits.JSON_DEPTH, limits.JSON_ARRAY_ITEMS, 16) != taking.ODD for text in _TEXTS]
    assert sum(plain) > 0.8 * len(plain)


def test_a_damaged_text_is_read_or_refused_alike_by_both() -> None:
    for text in _damaged(7):
        assert _read(parse_json, text) == _read(parse_strictly, text), text


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"b":{"a":1},"a":2}',
        b'{"\\u0061":1,"a":2}',
        b"[1e400]",
        b"[9007199254740992]",
        b'["\\udead"]',
        b'["\\uD83D\\uDE00"]',
        b"[NaN]",
        b'["\n"]',
        b"[" * 33 + b"]" * 33,
        b"{" + b",".join(b'"%d":0' % number for number in range(49)) + b"}",
        b"[" + b",".join([b"0"] * 1001) + b"]",
        b'{"a":' * 600,
        b"]" * 10,
        b'["\\',
        b'["\\u12',
        b"",
    ],
)
def test_what_readers_may_see_otherwise_is_left_to_the_strict_one(text: bytes) -> None:
    assert taking.plainness(text, limits.JSON_DEPTH, limits.JSON_ARRAY_ITEMS, 16) in (taking.ODD, taking.PLAIN)
    assert _read(parse_json, text) == _read(parse_strictly, text)


def test_words_are_found_as_one_by_one() -> None:
    words = ("ignor", "<|", "@", "you must", "忽略", "rank")
    quick, plain, dice = taking.Cues(words), plain_taking.Cues(words), random.Random(3)
    parts = ("Ignore", "igno", "r", "<", "|", "@", "YOU ", "must", " ", "rAnK", "忽略", "ran", "k", "é", "")
    for _ in range(500):
        text = "".join(dice.choices(parts, k=dice.randint(0, 6)))
        assert quick.are_in(text) is plain.are_in(text), text


def test_words_that_have_no_room_are_refused() -> None:
    with pytest.raises(ValueError, match="cues"):
        taking.Cues(["x" * 33])
    with pytest.raises(ValueError, match="cues"):
        taking.Cues([f"word {number}" for number in range(65)])
