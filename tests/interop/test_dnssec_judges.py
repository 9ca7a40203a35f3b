"""Zones that are right or wrong in many ways, on real servers: our verdict is the one that unbound, an independent judge,
gives by the way it answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.dns_servers import NameServer, nsd, unbound
from support.dnssec_cases import ANCHORS, CASES, DATE, NAMES, zone_texts
from support.signed_zones import NOW
from waypost.domains.ports import RecordType
from waypost.net.dns.upstreams import Upstreams
from waypost.net.dns.validating import ValidatingDns
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with nsd(tmp_path_factory.mktemp("nsd"), zone_texts()) as server:
        yield server


@pytest.fixture(scope="module")
def judge(authority: NameServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    folder = tmp_path_factory.mktemp("unbound")
    with unbound(folder, dict.fromkeys(NAMES, authority), ANCHORS, date=DATE) as server:
        yield server


def asking(server: NameServer) -> ValidatingDns:
    anchors = TrustAnchors(parse_anchors("\n".join(ANCHORS)), root=False)
    return ValidatingDns(Upstreams(server.address, try_seconds=10), anchors, clock=lambda: NOW)


@pytest.mark.parametrize(("name", "kind", "outcome", "security"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
async def test_our_verdict_is_that_of_an_independent_judge(
    authority: NameServer, judge: NameServer, name: str, kind: RecordType, outcome: str, security: str
) -> None:
    for server in (authority, judge):  # asked ourselves, and through a resolver that only passes on
        found = await asking(server).lookup(name, kind)
        assert (found.outcome, found.security) == (outcome, security), found.reason
    assert judge.verdict(name, kind) == security
