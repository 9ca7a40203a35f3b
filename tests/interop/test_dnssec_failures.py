"""Deliberately broken zones from unbound's tests, served by nsd at their date: our verdict equals unbound's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from support.real_dns_servers import NameServer, nsd, unbound
from support.shared import require_shared
from waypost.domains.ports import RecordType
from waypost.net.dns.upstreams import UpstreamResolvers
from waypost.net.dns.validator import ValidatingResolver
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors

FOLDER = require_shared("vectors/dnssec/unbound-ede")
NOW = datetime(2001, 1, 1, 12, tzinfo=UTC)
ANCHORS = [line for line in (FOLDER / "trust-anchors").read_text().splitlines() if not line.startswith(".")]
CASES: list[tuple[str, RecordType, str]] = [
    ("expired.dnssec-failures.test", "TXT", "has expired"),
    ("notyetincepted.dnssec-failures.test", "TXT", "is not valid yet"),
    ("missingrrsigs.dnssec-failures.test", "TXT", "not signed"),
    ("sigsinvalid.dnssec-failures.test", "TXT", "is invalid"),
    ("ns.dnssec-failures.test", "A", ""),
    ("ns.dnssec-failures.test", "TXT", ""),
    ("nothing.dnssec-failures.test", "TXT", ""),
    ("dnskey-failures.test", "TXT", "no signed keys"),
    ("nsec-failures.test", "TXT", "does not prove"),
    ("nsec-failures.test", "A", ""),
    ("rrsig-failures.test", "A", "no signed keys"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    zones = {f"{path.name.removesuffix('.signed')}.": path.read_text() for path in sorted(FOLDER.glob("*.signed"))}
    with nsd(tmp_path_factory.mktemp("nsd"), zones) as server:
        yield server


@pytest.fixture(scope="module")
def judge(authority: NameServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    zones = [line.split()[0] for line in ANCHORS]
    folder = tmp_path_factory.mktemp("unbound")
    with unbound(folder, dict.fromkeys(zones, authority), ANCHORS, date=f"{NOW:%Y%m%d%H%M%S}") as server:
        yield server


@pytest.mark.parametrize(("name", "kind", "reason"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
async def test_a_deliberately_broken_zone_gets_the_verdict_of_unbound(
    authority: NameServer, judge: NameServer, name: str, kind: RecordType, reason: str
) -> None:
    anchors = TrustAnchors(parse_anchors("\n".join(ANCHORS)), root=False)
    dns = ValidatingResolver(
        UpstreamResolvers(authority.address, try_seconds=30), anchors, clock=NOW.timestamp, seconds=90
    )
    found = await dns.lookup(name, kind)
    assert found.security == judge.verdict(name, kind), found
    assert found.security == ("bogus" if reason else "secure"), found
    assert reason in found.reason
