"""For any zone: resolution ends, a failure never leads to a weaker source, and no trust level is reached without proof."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.fake_dns import Identity, Zones, states
from waypost.domains.ports import PeerCheck
from waypost.domains.resolver import DomainResolver, ResolveOptions
from waypost.errors import FetchFailed
from waypost.net.clock import SystemClock
from waypost.registry.ports import FetchPurpose, FetchResponse

NAMES = ("a.example.com", "b.example.com", "c.example.com")
ALICE = Identity(NAMES[0])
URL = "https://a.example.com/.well-known/agent.json"

SVCB = st.one_of(
    st.just("absent"),
    st.just("fails"),
    st.just("bogus"),
    st.lists(
        st.one_of(
            st.sampled_from([f"0 {name}." for name in NAMES] + ["0 ."]),
            st.sampled_from(["1 . alpn=a2a", "2 host.example.net. alpn=mcp port=8443", "1 _x.example.com. alpn=a2a"]),
            st.just('1 . mandatory=key9 key9="x"'),
        ),
        min_size=1,
        max_size=3,
    ),
)
TXT = st.sampled_from(["absent", "fails", "bogus", "good", "twice", "broken", "aid"])
SECURITY = st.sampled_from(["secure", "insecure", "indeterminate"])
RECORDS: dict[str, tuple[str, ...]] = {
    "good": (ALICE.txt(URL),),
    "twice": (ALICE.txt(URL), Identity(NAMES[0], bytes(32)).txt(URL)),
    "broken": ('"v=ADP1.1; pk=nothing"',),
    "aid": ('"v=aid2;p=mcp;u=https://api.example.com/mcp"',),
}


class Nobody:
    """Where nothing can be fetched, everything that is found was said by the DNS."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def fetch(self, url: str, purpose: FetchPurpose, *, check: PeerCheck | None = None) -> FetchResponse:
        self.asked.append(url)
        raise FetchFailed("Nobody is there.", path="url", details={"reason": "refused"})


def put(zones: Zones, name: str, kind: Any, said: Any) -> None:
    if said in ("fails", "bogus"):
        zones.fail(name, kind, "bogus" if said == "bogus" else "indeterminate")
    elif said != "absent":
        zones.set(name, kind, *said)


@settings(deadline=None)
@given(
    svcb=st.tuples(SVCB, SVCB, SVCB),
    txt=TXT,
    https=st.sampled_from(["absent", "fails", "bogus"]),
    security=SECURITY,
    depth=st.sampled_from(["dns", "document", "key"]),
    legacy=st.booleans(),
)
def test_the_way_ends_and_nothing_weaker_follows_from_a_failure(
    svcb: tuple[Any, Any, Any], txt: str, https: str, security: Any, depth: Any, *, legacy: bool
) -> None:
    zones, nobody = Zones(security), Nobody()
    for name, said in zip(NAMES, svcb, strict=True):
        put(zones, name, "SVCB", said)
    put(zones, f"_agent.{NAMES[0]}", "TXT", RECORDS.get(txt, txt))
    put(zones, NAMES[0], "HTTPS", https)
    resolver = DomainResolver(zones, nobody, SystemClock(), ResolveOptions(legacy_names=legacy))
    found = asyncio.run(resolver.resolve(NAMES[0], depth))

    assert len(zones.asked) <= 24
    rungs = states(found.verdicts)
    assert set(rungs) == {"dns-verified", "dane-verified", "key-verified", "peer-verified"}
    assert rungs["peer-verified"] == "not_checked"
    assert rungs["key-verified"] != "passed"
    assert rungs["dane-verified"] != "passed"
    assert found.level in ("unverified", "dns-verified")
    if depth == "dns":
        assert nobody.asked == []
    if svcb[0] in ("fails", "bogus"):
        assert (found.outcome, found.how) == ("failed", None)
        assert nobody.asked == []
    if svcb[0] == "absent" and (txt in ("fails", "bogus", "twice", "broken") or https in ("fails", "bogus")):
        assert found.outcome == "failed"
        assert nobody.asked == []
    if found.how in ("txt", "aid"):
        assert svcb[0] == "absent"
    if found.outcome == "failed":
        assert found.reason
        assert found.code
    if "failed" in rungs.values():
        assert (found.outcome, found.level) == ("failed", "unverified")
