"""For any input the name server answers or is silent, and its zone does not change."""

from __future__ import annotations

import time

import dns.message
import dns.update
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.nameserver import EXAMPLE
from waypost import limits
from waypost.net.nameserver.responder import ZoneSet
from waypost.net.nameserver.server import Nameserver
from waypost.net.nameserver.signed_zone import ZoneFolder

NAMES = (
    "alice.example.test",
    "x.wild.example.test",
    "nobody.example.test",
    "alias.example.test",
    "sub.example.test",
    "x",
)
KINDS = ("A", "SVCB", "ANY", "DS", "RRSIG", "NSEC", "TSIG", "OPT")


def _seeds() -> list[bytes]:
    asked = [dns.message.make_query(name, kind, want_dnssec=True).to_wire() for name in NAMES for kind in KINDS]
    update = dns.update.UpdateMessage("example.test")
    update.present("alice")
    update.add("mallory", 60, "TXT", "x")
    return [*asked, update.to_wire()]


SEEDS = _seeds()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Nameserver:
    folder = ZoneFolder(tmp_path_factory.mktemp("zone"))
    zone = folder.open("example.test", "ed25519", time.time(), text=EXAMPLE)
    return Nameserver(ZoneSet([zone]), folder.load_update_key(), time.time)


@given(data=st.data())
def test_distorted_messages_are_answered_or_passed_over(server: Nameserver, data: st.DataObject) -> None:
    message = bytearray(data.draw(st.sampled_from(SEEDS)))
    for at, octet in data.draw(st.lists(st.tuples(st.integers(0, len(message) - 1), st.integers(0, 255)), max_size=6)):
        message[at] = octet
    cut = data.draw(st.integers(0, len(message)))
    tail = data.draw(st.binary(max_size=20))
    (zone,) = server.zones
    before = zone.text()
    answered = server.reply(bytes(message[:cut]) + tail, limits.DNS_UDP_BYTES)
    assert answered is None or 12 <= len(answered) <= limits.DNS_UDP_BYTES
    assert zone.text() == before
