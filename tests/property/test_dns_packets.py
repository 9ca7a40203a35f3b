"""Any DNS response is parsed or refused; a changed signed response is never secure."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import dns.message
import dns.name
import dns.rdatatype
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.memory_name_server import ZoneBook
from support.signed_zones import NOW, Nsec3, SignedZone, key
from waypost.net.dns.message import DnsFailure, DnsQuery, parse_message
from waypost.net.dns.validator import ValidatingResolver
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors

ZONE = SignedZone("test.", 'www TXT "hello"\n*.wild TXT "any"\nalias CNAME www\n', [key(13, "fuzz")])
HASHED = SignedZone("test.", ZONE.body, ZONE.keys, nsec3=Nsec3(iterations=2))
ANCHORS = TrustAnchors(parse_anchors(f"test. DS {ZONE.ds_lines()[0]}"), root=False)
PLAIN_BOOK, HASHED_BOOK = ZoneBook(ZONE), ZoneBook(HASHED)
QUESTION = DnsQuery(name=dns.name.from_text("www.test"), type=dns.rdatatype.TXT)


class Book(ZoneBook):
    """Every message arrives with some of its bytes changed, after the question."""

    def __init__(self, like: ZoneBook, changes: list[tuple[int, int]]) -> None:
        super().__init__()
        self._zones = like._zones
        self._changes = changes

    def wire(self, response: dns.message.Message) -> bytes:
        data = bytearray(super().wire(response))
        start = 12 + len(response.question[0].name.to_wire() or b"") + 4
        for place, value in self._changes:
            data[start + place % (len(data) - start)] ^= value
        return bytes(data)


def _wires() -> list[bytes]:
    book = Book(PLAIN_BOOK, [])
    return [
        book.wire(book.response(msgspec.structs.replace(QUESTION, name=dns.name.from_text(name))))
        for name in ("www.test", "no.test")
    ]


MESSAGES = _wires()


@settings(deadline=None)
@given(st.binary(max_size=600))
def test_any_bytes_are_read_as_a_message_or_refused(data: bytes) -> None:
    with suppress(DnsFailure):
        parse_message(data)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255)), max_size=8), st.integers(0, 600))
def test_any_change_of_a_message_is_read_or_refused(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(MESSAGES[len(changes) % len(MESSAGES)])
    for place, value in changes:
        data[place % len(data)] ^= value
    with suppress(DnsFailure):
        parse_message(bytes(data[: len(data) - cut if cut % 3 == 0 else len(data)]))


@settings(max_examples=examples(50), deadline=None)
@given(
    st.sampled_from(["www.test", "a.wild.test", "nothing.test", "alias.test"]),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 255)), min_size=1, max_size=3),
)
def test_altered_packets_yield_the_true_answer_or_none(name: str, hashed: bool, changes: list[tuple[int, int]]) -> None:
    """A change may hit unsigned data, such as a TTL; then the records must still be right."""
    book = HASHED_BOOK if hashed else PLAIN_BOOK
    true = asyncio.run(ValidatingResolver(Book(book, []), ANCHORS, clock=lambda: NOW).lookup(name, "TXT"))
    assert true.security == "secure"
    found = asyncio.run(ValidatingResolver(Book(book, changes), ANCHORS, clock=lambda: NOW).lookup(name, "TXT"))
    if found.security == "secure":
        assert (found.outcome, found.records) == (true.outcome, true.records)
