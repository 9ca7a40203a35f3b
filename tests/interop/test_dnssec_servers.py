"""Zones of other servers: knot signs automatically, bind serves signed zones; and a thousand names at a time."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.dnssec
import dns.rrset
import pytest

from support.certificates import Authority
from support.dnssec_cases import ANCHORS, DATE, zone_texts
from support.ports import free_port
from support.real_dns_servers import NameServer, bind, knot, nsd, unbound
from support.signed_zones import NOW, SignedZone, key
from waypost import limits
from waypost.domains.ports import RecordType
from waypost.net.dns.upstreams import UpstreamResolvers
from waypost.net.dns.validator import ValidatingResolver
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors

pytestmark = pytest.mark.judge("knot, nsd, bind9", "Debian", "zones that they sign are validated here")

BODY = 'www TXT "hello"\n*.wild TXT "any"\nalias CNAME www\n'
SELF_SIGNED: list[tuple[str, RecordType, str]] = [
    ("www.agent.test", "TXT", "found"),
    ("www.agent.test", "A", "nodata"),
    ("nothing.agent.test", "TXT", "nxdomain"),
    ("any.wild.agent.test", "TXT", "found"),
    ("alias.agent.test", "TXT", "found"),
]


def anchors_of(server: NameServer, zone: str) -> list[str]:
    [keys] = [rrset for rrset in server.ask(zone, "DNSKEY").answer if rrset.rdtype == dns.rdatatype.DNSKEY]
    return [f"{zone} DS {dns.dnssec.make_ds(zone, row, 'SHA256')}" for row in keys if row.flags == 257]


@pytest.mark.parametrize(("algorithm", "nsec3"), [("ed25519", "on"), ("rsasha256", "off"), ("ecdsap256sha256", "on")])
async def test_a_zone_that_knot_signs_by_itself_is_proven(algorithm: str, nsec3: str, tmp_path: Path) -> None:
    plain = SignedZone("agent.test.", BODY)
    (tmp_path / "knot").mkdir()
    (tmp_path / "unbound").mkdir()
    with knot(tmp_path / "knot", {plain.name: plain.text()}, policy={"algorithm": algorithm, "nsec3": nsec3}) as server:
        anchors = anchors_of(server, plain.name)
        trusted = TrustAnchors(parse_anchors("\n".join(anchors)), root=False)
        dns_ = ValidatingResolver(
            UpstreamResolvers(server.address, try_seconds=30), trusted, clock=time.time, seconds=90
        )
        with unbound(tmp_path / "unbound", {plain.name: server}, anchors) as judge:
            for name, kind, outcome in SELF_SIGNED:
                found = await dns_.lookup(name, kind)
                assert (found.outcome, found.security) == (outcome, "secure"), found
                assert judge.verdict(name, kind) == "secure"


async def test_zones_served_by_bind_get_the_same_verdicts(tmp_path: Path) -> None:
    served = zone_texts("test.", "nsec.test.", "nsec3.test.", "plain.test.")
    with bind(tmp_path, served) as server:
        trusted = TrustAnchors(parse_anchors("\n".join(ANCHORS)), root=False)
        dns_ = ValidatingResolver(
            UpstreamResolvers(server.address, try_seconds=30), trusted, clock=lambda: NOW, seconds=90
        )
        for zone, security in (("nsec", "secure"), ("nsec3", "secure"), ("plain", "insecure")):
            for name, kind, outcome in SELF_SIGNED:
                found = await dns_.lookup(name.replace("agent", zone), "MX" if kind == "A" else kind)  # type: ignore[arg-type]
                assert (found.outcome, found.security) == (outcome, security), found


async def test_resolvers_over_tls_and_https_are_used_and_their_ad_bit_can_be_trusted(tmp_path: Path) -> None:
    """unbound as a resolver over HTTP/2: its answers are validated here, or trusted because it validated them."""
    agent = SignedZone("agent.test.", BODY, [key(13, "agent")])
    anchors = [f"agent.test. DS {line}" for line in agent.ds_lines()]
    authority = Authority(tmp_path)
    certificate, private = authority.server_files("dns.test", "127.0.0.1")
    over_tls, over_https = free_port(), free_port()
    more = (
        f"  interface: 127.0.0.1@{over_tls}\n  interface: 127.0.0.1@{over_https}\n  tls-port: {over_tls}\n"
        f"  https-port: {over_https}\n  tls-service-key: '{private}'\n  tls-service-pem: '{certificate}'\n"
    )
    folders = [tmp_path / name for name in ("nsd", "unbound")]
    for folder in folders:
        folder.mkdir()
    resolvers = (f"tls://127.0.0.1:{over_tls}#dns.test", f"https://127.0.0.1:{over_https}/dns-query")
    trusted = TrustAnchors(parse_anchors("\n".join(anchors)), root=False)
    with (
        nsd(folders[0], {agent.name: agent.text()}) as server,
        unbound(folders[1], {agent.name: server}, anchors, date=DATE, more=more),
    ):
        for resolver, trust_ad in itertools.product(resolvers, (False, True)):
            upstreams = UpstreamResolvers(resolver, ca_file=authority.certificate)
            dns_ = ValidatingResolver(upstreams, trusted, clock=lambda: NOW, trust_ad=trust_ad, seconds=90)
            for name, kind, outcome in SELF_SIGNED:
                found = await dns_.lookup(name, kind)
                assert (found.outcome, found.security) == (outcome, "secure"), found
                assert found.validated is not trust_ad
            await dns_.aclose()


@contextmanager
def few_files() -> Iterator[None]:
    """The number of open files may grow by the number of concurrent queries and a few more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + limits.DNS_CONCURRENT_QUERIES + 10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_thousand_names_are_looked_up_at_once_with_few_files(tmp_path: Path) -> None:
    many = SignedZone("many.test.", "".join(f'a{number} TXT "{number}"\n' for number in range(1000)))
    top = SignedZone("test.", f"ns A 127.0.0.1\n{many.delegation()}\n", [key(13, "many")])
    trusted = TrustAnchors(parse_anchors(f"test. DS {top.ds_lines()[0]}"), root=False)
    with nsd(tmp_path, {zone.name: zone.text() for zone in (top, many)}) as server, few_files():
        dns_ = ValidatingResolver(UpstreamResolvers(server.address), trusted, clock=lambda: NOW, seconds=90)
        found = await asyncio.gather(*(dns_.lookup(f"a{number}.many.test", "TXT") for number in range(1000)))
        await dns_.aclose()
    assert {(one.outcome, one.security) for one in found} == {("found", "insecure")}
    assert [one.records[0][1:] for one in found] == [str(number).encode() for number in range(1000)]
