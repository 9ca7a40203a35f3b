"""The key of a peer comes from its domain, then a pin, then a verified document here, then an invitation."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.agp import ALICE, BOB, StaticKeys, key_of
from support.service import service
from waypost.errors import FingerprintMismatch, UnknownPeer
from waypost.messaging.peers import (
    PeerIdentity,
    PeerKeyChain,
    PeerVerification,
    PinnedKeys,
    RegisteredKeys,
    peer_verdict,
)
from waypost.model.resolution import AgentKey, Resolution
from waypost.model.verdict import Verdict
from waypost.server.api.adp.requesters import DomainKeys
from waypost.server.auth.authenticator import ADMIN
from waypost.trust.document_signatures import sign_adp_public_key


class FakeResolver:
    """A resolver with a fixed result."""

    def __init__(self, **members: object) -> None:
        self.asked: list[str] = []
        self._members = members

    async def resolve(self, name: str) -> Resolution:
        self.asked.append(name)
        told = {"outcome": "resolved", "level": "key-verified", "verdicts": (), **self._members}
        return Resolution(name=name, domain=name[6:], agent=name, **told)  # type: ignore[arg-type]


def published(agent: str) -> AgentKey:
    public = key_of(agent).public
    return AgentKey(fingerprint=public.fingerprint() or "", source=f"_agent.{agent[6:]}", public_key=public.pem())


def document(agent: str) -> dict[str, object]:
    domain = agent.removeprefix("agent:")
    public = sign_adp_public_key(key_of(agent), domain)
    return {
        "protocol": "ADP/1.1",
        "identity": {"id": agent, "domain": domain, "name": domain, "publicKey": public},
        "endpoints": {"wellKnown": f"https://{domain}/.well-known/agent.json"},
        "capabilities": [{"id": "chat", "name": "Chat"}],
    }


async def test_key_sources_rank_domain_then_pin_then_document_and_the_verdict_names_one(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as bench:
        registry, admin = bench.registry, bench.admin()
        invited = StaticKeys({ALICE: "ed25519:" + "i" * 43}, by="invitation")
        rest = (PinnedKeys(registry), RegisteredKeys(registry, ADMIN), invited)

        async def by(*first: object) -> str:
            found = await PeerKeyChain((*first, *rest)).key_of(ALICE)  # type: ignore[arg-type]
            assert found is not None
            return peer_verdict(found, verified=True, now=bench.clock.now()).evidence["key_by"]

        assert await by() == "invitation"
        assert (await bench.as_("somebody").post("/api/v1/agents", json=document(ALICE))).is_success
        assert await by() == "invitation"  # a document that nothing verifies is no source
        assert (await admin.post("/api/v1/agents", json=document(ALICE) | {"name": "served"})).is_success
        assert await by() == "registry"  # an operator has it served under its domain
        pem = key_of(ALICE).public.pem()
        assert (await admin.post("/api/v1/keys", json={"agent_id": ALICE, "public_key": pem})).is_success
        assert await by() == "pin"
        assert await RegisteredKeys(registry, ADMIN).key_of(ALICE) is not None  # the pin verified the document
        assert await by(DomainKeys(FakeResolver(key=published(ALICE)))) == "domain"
        assert await PeerKeyChain(rest).key_of(BOB) is None


async def test_a_document_that_is_served_under_its_domain_tells_its_key_unless_it_contradicts_itself(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as bench:
        keys = RegisteredKeys(bench.registry, ADMIN)
        forged = document(ALICE)
        forged["identity"]["publicKey"]["proof"] = document(BOB)["identity"]["publicKey"]["proof"]  # type: ignore[index]
        assert (await bench.admin().post("/api/v1/agents", json=forged)).is_success
        assert await keys.key_of(ALICE) is None
        assert (await bench.admin().post("/api/v1/agents", json=document(ALICE))).is_success
        found = await keys.key_of(ALICE)
        assert found is not None
        assert (found.by, found.fingerprint) == ("registry", key_of(ALICE).public.fingerprint())
        pin = {"agent_id": ALICE, "public_key": key_of(BOB).public.pem()}
        assert (await bench.admin().post("/api/v1/keys", json=pin)).is_success
        assert await keys.key_of(ALICE) is None  # another key is bound to it


async def test_an_ambiguous_or_bogus_domain_ends_the_lookup() -> None:
    failed = Verdict(check="key-verified", state="failed")
    with pytest.raises(FingerprintMismatch):
        await DomainKeys(FakeResolver(level="unverified", verdicts=(failed,))).key_of(ALICE)
    with pytest.raises(UnknownPeer):
        await DomainKeys(FakeResolver(outcome="failed", level="unverified", dnssec="bogus")).key_of(ALICE)
    assert await DomainKeys(FakeResolver(outcome="not_found", level="unverified")).key_of(ALICE) is None
    for name in ("agent:127.0.0.1", "agent:localhost", "agent:somebody.key.invalid"):
        resolver = FakeResolver(key=published(ALICE))
        assert await DomainKeys(resolver).key_of(name) is None
        assert resolver.asked == []


def test_a_shown_key_counts_only_when_it_is_the_one_that_is_known() -> None:
    public = key_of(ALICE).public
    known = PeerIdentity(agent=ALICE, fingerprint=public.fingerprint() or "", by="given")
    assert known.matched(public.raw).key_id == public.key_id
    with pytest.raises(UnknownPeer):
        known.matched(None)
    with pytest.raises(FingerprintMismatch):
        known.matched(key_of(BOB).public.raw)


async def test_a_meeting_is_noted_on_the_record_once_a_day_and_falls_with_the_document(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin, lifting = bench.admin(), PeerVerification(bench.registry)
        pem = key_of(ALICE).public.pem()
        await admin.post("/api/v1/keys", json={"agent_id": ALICE, "public_key": pem})
        known = PeerIdentity(agent=ALICE, fingerprint=key_of(ALICE).public.fingerprint() or "", by="pin")

        def met() -> Verdict:
            return peer_verdict(known, verified=True, now=bench.clock.now())

        assert not await lifting.record(ALICE, met())  # there is no record
        assert (await admin.post("/api/v1/agents", json=document(ALICE))).is_success
        assert await lifting.record(ALICE, met())
        assert not await lifting.record(ALICE, met())
        bench.clock.advance(90_000)
        assert await lifting.record(ALICE, met())

        async def checks() -> list[str]:
            answer = (await admin.get(f"/api/v1/agents/{ALICE}:verify")).json()
            return [check["check"] for check in answer["trust"]["checks"]]

        assert "peer-verified" in await checks()
        changed = document(ALICE) | {"capabilities": [{"id": "chat", "name": "Another"}]}
        assert (await admin.post("/api/v1/agents", json=changed)).is_success
        assert "peer-verified" not in await checks()
        trail = (await admin.get("/api/v1/audit")).json()
        assert "peer-verified passed" in str(trail)
