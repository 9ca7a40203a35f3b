"""Valid and broken zones on real servers: our verdict equals that of unbound, an independent validator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.dnssec_cases import ANCHORS, CASES, DATE, NAMES, zone_texts
from support.random_zones import RandomZones
from support.real_dns_servers import NameServer, nsd, unbound
from support.signed_zones import NOW
from waypost.domains.ports import RecordType
from waypost.net.dns.upstreams import UpstreamResolvers
from waypost.net.dns.validator import ValidatingResolver
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors

pytestmark = pytest.mark.judge("unbound", "Debian", "agrees with us on secure, insecure and bogus zones")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with nsd(tmp_path_factory.mktemp("nsd"), zone_texts()) as server:
        yield server


@pytest.fixture(scope="module")
def judge(authority: NameServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    folder = tmp_path_factory.mktemp("unbound")
    with unbound(folder, dict.fromkeys(NAMES, authority), ANCHORS, date=DATE) as server:
        yield server


def asking(server: NameServer) -> ValidatingResolver:
    anchors = TrustAnchors(parse_anchors("\n".join(ANCHORS)), root=False)
    return ValidatingResolver(UpstreamResolvers(server.address, try_seconds=30), anchors, clock=lambda: NOW, seconds=90)


@pytest.mark.parametrize(("name", "kind", "outcome", "security"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
async def test_our_verdict_is_that_of_an_independent_judge(
    authority: NameServer, judge: NameServer, name: str, kind: RecordType, outcome: str, security: str
) -> None:
    for server in (authority, judge):  # asked ourselves, and through a resolver that only passes on
        found = await asking(server).lookup(name, kind)
        assert (found.outcome, found.security) == (outcome, security), found.reason
    assert judge.verdict(name, kind) == security


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
async def test_random_zones_get_the_same_verdict(damaged: bool, tmp_path: Path) -> None:
    made = RandomZones(4, damaged=damaged)
    folders = [tmp_path / name for name in ("nsd", "unbound")]
    for folder in folders:
        folder.mkdir()
    trusted = TrustAnchors(parse_anchors("\n".join(made.anchors)), root=False)
    ours, theirs = {}, {}
    with (
        nsd(folders[0], made.texts) as server,
        unbound(folders[1], dict.fromkeys(made.texts, server), made.anchors, date=DATE) as judge,
    ):
        dns_ = ValidatingResolver(
            UpstreamResolvers(server.address, try_seconds=30), trusted, clock=lambda: NOW, seconds=90
        )
        for name, kind in made.questions(150):
            ours[name, kind] = (await dns_.lookup(name, kind)).security  # type: ignore[arg-type]
            theirs[name, kind] = judge.verdict(name, kind)
    assert ours == theirs
    assert {"secure", "insecure"} | ({"bogus"} if damaged else set()) <= set(ours.values())
