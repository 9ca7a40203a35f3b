"""The development name server: answers, proofs, and updates."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.tsig
import dns.update
import pytest

from support.nameserver import EXAMPLE, Running, nameserver
from waypost import limits
from waypost.errors import ConfigurationError, InvalidDocument, InvalidParameter
from waypost.net.clock import SystemClock
from waypost.net.dns.upstreams import UpstreamResolvers
from waypost.net.dns.validator import ValidatingResolver, load_trust_anchors
from waypost.net.dns.zone_client import parse_tsig
from waypost.net.nameserver.signed_zone import SIGNED_SECONDS, ZoneFolder

ALICE = "alice.example.test"
NOW = 1_780_000_000.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with nameserver(tmp_path) as running:
        yield running


def _validator(server: Running) -> ValidatingResolver:
    return ValidatingResolver(
        UpstreamResolvers(server.address),
        load_trust_anchors(server.folder.anchors),
        clock=SystemClock().now,
        trust_ad=False,
    )


# --- Answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "outcome"),
    [
        (ALICE, "SVCB", "found"),
        (f"_agent.{ALICE}", "TXT", "found"),
        ("x.wild.example.test", "TXT", "found"),
        ("alias.example.test", "SVCB", "found"),
        ("example.test", "DNSKEY", "found"),
        (ALICE, "TXT", "nodata"),
        ("between.example.test", "A", "nodata"),
        ("x.wild.example.test", "A", "nodata"),
        ("nobody.example.test", "SVCB", "nxdomain"),
        ("zzz.example.test", "A", "nxdomain"),
        ("_x.alice.example.test", "TXT", "nxdomain"),
    ],
)
@pytest.mark.parametrize("algorithm", ["ed25519", "ecdsa"])
async def test_our_own_validator_finds_every_answer_proven(
    tmp_path: Path, algorithm: str, name: str, kind: str, outcome: str
) -> None:
    async with nameserver(tmp_path, algorithm=algorithm) as server:
        found = await _validator(server).lookup(name, kind)  # type: ignore[arg-type]
        assert (found.outcome, found.security) == (outcome, "secure"), found.reason


async def test_a_zone_that_is_not_signed_is_insecure_or_unproven(tmp_path: Path) -> None:
    async with nameserver(tmp_path, algorithm="none") as server:
        answer = await server.ask(ALICE, "SVCB")
        assert len(answer.answer) == 1
        assert server.folder.anchors.read_text() == ""


async def test_dnssec_records_are_sent_only_on_request(server: Running) -> None:
    plain = await server.ask(ALICE, "SVCB", dnssec=False)
    assert [rrset.rdtype for rrset in plain.answer] == [dns.rdatatype.SVCB]
    denied = await server.ask("nobody.example.test", "A", dnssec=False)
    assert [rrset.rdtype for rrset in denied.authority] == [dns.rdatatype.SOA]
    assert plain.flags & dns.flags.AA
    assert not plain.flags & dns.flags.RA


async def test_a_delegation_is_answered_with_ns_and_ds_or_nsec(server: Running) -> None:
    safe = await server.ask("www.safe.example.test", "A")
    assert {rrset.rdtype for rrset in safe.authority} >= {dns.rdatatype.NS, dns.rdatatype.DS, dns.rdatatype.RRSIG}
    plain = await server.ask("www.sub.example.test", "A")
    assert {rrset.rdtype for rrset in plain.authority} >= {dns.rdatatype.NS, dns.rdatatype.NSEC}
    assert not plain.flags & dns.flags.AA


async def test_an_alias_chain_ends_at_a_loop_or_outside_the_zone(server: Running) -> None:
    assert (await server.ask("loop.example.test", "A")).rcode() == dns.rcode.NOERROR
    out = await server.ask("out.example.test", "A")
    assert out.answer[0][0].target.to_text() == "www.example.net."


@pytest.mark.parametrize(("name", "kind"), [("example.net", "A"), ("example.test", "AXFR"), ("test", "SOA")])
async def test_foreign_zones_and_zone_transfers_are_refused(server: Running, name: str, kind: str) -> None:
    query = dns.message.make_query(name, kind if kind != "AXFR" else "A")
    if kind == "AXFR":
        query.question[0].rdtype = dns.rdatatype.AXFR
        wire = server.server.reply(query.to_wire(), None)
        assert wire is not None
        answer = dns.message.from_wire(wire, one_rr_per_rrset=True)
    else:
        answer = await server.send(query)
    assert answer.rcode() == dns.rcode.REFUSED


async def test_an_answer_that_does_not_fit_is_had_over_tcp(tmp_path: Path) -> None:
    long = "".join(f'big 60 IN TXT "{number:03d}{"x" * 240}"\n' for number in range(12))
    async with nameserver(tmp_path, long) as server:
        over_udp = await server.ask("big.example.test", "TXT")
        assert over_udp.flags & dns.flags.TC
        over_tcp = await server.ask("big.example.test", "TXT", tcp=True)
        assert len(over_tcp.answer[0]) == 12
        found = await _validator(server).lookup("big.example.test", "TXT")
        assert (len(found.records), found.security) == (12, "secure")


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 11, b"\0\1\x80\0" + b"\0" * 8])
async def test_an_invalid_dns_query_gets_no_response(server: Running, data: bytes) -> None:
    assert server.server.reply(data, limits.DNS_UDP_BYTES) is None


@pytest.mark.parametrize("data", [b"\0\7\0\0\0\1\0\0\0\0\0\0", b"\0\7\0\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1"])
async def test_an_unreadable_query_is_answered_with_an_error(server: Running, data: bytes) -> None:
    answered = server.server.reply(data, limits.DNS_UDP_BYTES)
    assert answered is not None
    assert (answered[:2], answered[3] & 15) == (b"\0\7", dns.rcode.FORMERR)


async def test_a_port_in_use_is_reported(server: Running, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigurationError):
            await server.server.__class__(server.server.zones, None, SystemClock().now).start(
                "127.0.0.1", taken.getsockname()[1]
            )


async def test_signatures_are_renewed_before_they_expire(server: Running) -> None:
    now = SystemClock().now()
    assert not server.zone.is_stale(now)
    assert server.zone.is_stale(now + SIGNED_SECONDS / 2 + 60)
    serial = server.zone.serial
    server.zone.resign(now)
    assert server.zone.serial == serial + 1


# --- Updates --------------------------------------------------------------------------------------


def _update(server: Running, key: dns.tsig.Key | None = None) -> dns.update.UpdateMessage:
    key = key or server.key
    return dns.update.UpdateMessage("example.test", keyring={key.name: key}, keyname=key.name)


async def test_an_update_by_the_key_is_served_signed_and_kept(server: Running, tmp_path: Path) -> None:
    message = _update(server)
    message.add("bob", 60, "TXT", "hello")
    assert (await server.send(message)).rcode() == dns.rcode.NOERROR
    found = await _validator(server).lookup("bob.example.test", "TXT")
    assert (found.outcome, found.security) == ("found", "secure")
    again = ZoneFolder(tmp_path).open("example.test", "ed25519", SystemClock().now())
    assert 'bob.example.test. 60 IN TXT "hello"' in again.text()
    assert again.serial == 2
    assert again.anchor() == server.zone.anchor()


async def test_an_update_is_made_whole_or_not_at_all(server: Running) -> None:
    message = _update(server)
    message.absent("alice", "A")
    message.add("bob", 60, "TXT", "hello")
    assert (await server.send(message)).rcode() == dns.rcode.YXRRSET
    assert (await server.ask("bob.example.test", "TXT")).rcode() == dns.rcode.NXDOMAIN
    assert server.zone.serial == 1


@pytest.mark.parametrize(
    ("prepare", "code"),
    [
        (lambda message: message.present("bob"), dns.rcode.NXDOMAIN),
        (lambda message: message.present("alice", "TXT"), dns.rcode.NXRRSET),
        (lambda message: message.present("alice", "A", "127.0.0.2"), dns.rcode.NXRRSET),
        (lambda message: message.absent("alice"), dns.rcode.YXDOMAIN),
        (lambda message: message.present("alice", "A", "127.0.0.1"), dns.rcode.NOERROR),
        (lambda message: message.add("x.example.net.", 60, "TXT", "no"), dns.rcode.NOTZONE),
    ],
    ids=["name", "set", "value", "absent", "held", "elsewhere"],
)
async def test_an_update_is_refused_if_its_prerequisites_are_not_met(
    server: Running, prepare: object, code: int
) -> None:
    message = _update(server)
    assert callable(prepare)
    prepare(message)
    assert (await server.send(message)).rcode() == code


async def test_an_update_removes_the_named_records_but_not_soa_and_ns(server: Running) -> None:
    message = _update(server)
    message.delete("alice", "A", "127.0.0.1")
    message.delete("_agent.alice")
    message.delete("@", "SOA")
    message.delete("@", "NS")
    assert (await server.send(message)).rcode() == dns.rcode.NOERROR
    assert not (await server.ask(ALICE, "A")).answer
    assert (await server.ask(ALICE, "SVCB")).answer
    assert (await server.ask(f"_agent.{ALICE}", "TXT")).rcode() == dns.rcode.NXDOMAIN
    assert (await server.ask("example.test", "NS")).answer
    assert (await server.ask("example.test", "SOA")).answer


async def test_an_update_that_changes_nothing_leaves_the_serial(server: Running) -> None:
    message = _update(server)
    message.replace("alice", 60, "A", "127.0.0.1")
    assert (await server.send(message)).rcode() == dns.rcode.NOERROR
    assert server.zone.serial == 1


async def test_an_update_without_the_key_changes_nothing(server: Running) -> None:
    unsigned = dns.update.UpdateMessage("example.test")
    unsigned.add("bob", 60, "TXT", "hello")
    assert (await server.send(unsigned)).rcode() == dns.rcode.REFUSED
    for other in (
        dns.tsig.Key("waypost-update.", b"another secret, just as long ...", "hmac-sha256"),
        dns.tsig.Key("somebody.", b"another secret, just as long ...", "hmac-sha256"),
    ):
        message = _update(server, other)
        message.add("bob", 60, "TXT", "hello")
        answered = server.server.reply(message.to_wire(), None)
        assert answered is not None
        assert answered[3] & 15 == dns.rcode.NOTAUTH
    elsewhere = dns.update.UpdateMessage("example.net", keyring={server.key.name: server.key}, keyname=server.key.name)
    elsewhere.add("bob", 60, "TXT", "hello")
    assert (await server.send(elsewhere)).rcode() == dns.rcode.NOTAUTH
    assert server.zone.serial == 1


# --- Files ----------------------------------------------------------------------------------------


def test_keys_are_for_their_owner_alone_and_stay(tmp_path: Path) -> None:
    folder = ZoneFolder(tmp_path)
    first = folder.open("example.test", "ed25519", NOW, text=EXAMPLE)
    key = folder.load_update_key()
    assert folder.open("example.test", "ed25519", NOW).anchor() == first.anchor()
    assert folder.load_update_key().secret == key.secret
    assert {path.stat().st_mode & 0o777 for path in folder.path.iterdir()} == {0o600}


@pytest.mark.parametrize("name", ["../x", "a b", "", "-", "x/../../y"])
def test_no_name_of_a_zone_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidParameter):
        ZoneFolder(tmp_path).open(name, "ed25519", NOW)


@pytest.mark.parametrize("text", ["alice 60 IN SVCB x", "alice 60 IN", "$INCLUDE /etc/passwd", '@ 60 IN TXT "x'])
def test_an_invalid_zone_is_refused_without_file_contents(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidDocument) as told:
        ZoneFolder(tmp_path).open("example.test", "ed25519", NOW, text=text)
    assert "passwd" not in told.value.message.replace("/etc/passwd", "")


@pytest.mark.parametrize(
    "text",
    [
        'key "k.example" {\n algorithm hmac-sha512;\n secret "c2VjcmV0c2VjcmV0";\n};\n',
        "hmac-sha512:k.example:c2VjcmV0c2VjcmV0",
    ],
)
def test_a_tsig_key_is_read_as_others_write_it(text: str) -> None:
    key = parse_tsig(text)
    assert (key.name.to_text(), key.algorithm.to_text(), key.secret) == ("k.example.", "hmac-sha512.", b"secretsecret")


@pytest.mark.parametrize("text", ["", "key x {", "hmac-md5:k:c2VjcmV0", "k:***", "-----BEGIN PRIVATE KEY-----"])
def test_an_invalid_tsig_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_tsig(text)
