"""A plain question is read in one step, and as the rules of every request would read it; all else is left to them."""

from __future__ import annotations

import random

import pytest

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import parse_object
from waypost.model.query import Query
from waypost.server.api.profile.api import parse_discovery_request
from waypost.server.api.profile.plain_question import find_plain_question

_BYTES = b'"{}[]:,0123456789.eE-+ \n\t\x0b\x00\xff\xc3\xed\xa0\\/untrlimqey'


def strictly(data: bytes) -> tuple[Query, list[str]] | None:
    try:
        return parse_discovery_request(parse_object(data))
    except WaypostError:
        return None


@pytest.mark.parametrize(
    "data",
    [
        b'{"query":"find a flight"}',
        b' {"limit": 3 , "query":"\xc3\xbcber \xf0\x9f\x98\x80"}\n',
        b'{"query":"","limit":50}',
    ],
)
def test_words_and_a_limit_are_read_in_one_step(data: bytes) -> None:
    assert strictly(data) == (find_plain_question(data), [])


@pytest.mark.parametrize(
    "data",
    [
        b'{"query":"a","query":"b"}', b'{"query":5,"query":"b"}', b'{"query":"a","query":5}',
        b'{"limit":1,"limit":2,"query":"a"}', b'{"query":"\\ud800"}', b'{"query":"a\nb"}', b'{"query":"\xff"}',
        b'\xef\xbb\xbf{"query":"a"}', b'{"query":"a","limit":0}', b'{"query":"a","limit":1e1}', b'{"query":"a","limit":true}',
        b'{"query":"a","limit":%d}' % (limits.DISCOVER_LIMIT_MAX + 1), b'{"query":"a","detail":"full"}', b'["a",3]', b"",
        b'{"query":"%s"}' % (b"a" * (limits.QUERY_CHARS + 1)),
    ],
)  # fmt: skip
def test_what_is_unusual_or_wrong_is_left_to_the_rules_of_every_request(data: bytes) -> None:
    assert find_plain_question(data) is None


def test_what_is_read_in_one_step_would_be_read_alike() -> None:
    chance, read = random.Random(7), 0
    for _ in range(4000):
        data = bytearray(chance.choice((b'{"query":"find me","limit":10}', b'{"query":"x"}')))
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(2)] = bytes([chance.choice(_BYTES)])
        found = find_plain_question(bytes(data))
        if found is not None:
            read += 1
            assert strictly(bytes(data)) == (found, []), bytes(data)
    assert read > 100
