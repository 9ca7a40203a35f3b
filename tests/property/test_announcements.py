"""No sequence of announcements lets a key that is not bound to an id change its record (P7, C4, C6, C10, C15).

The oracle knows the keys of each id at any time. Messages combine keys, proofs, sequences, times, versions, subjects and APIs;
every accepted message must be signed by one of those keys, and no accepted or older message may be accepted again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Coroutine
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.announce import announcement, body, key
from support.examples import examples
from support.registry_model import ALICE, BOB
from support.service import NOW
from waypost.errors import WaypostError
from waypost.model.principal import Principal
from waypost.net.clock import ManualClock
from waypost.registry.admission import AnnouncementOptions
from waypost.registry.publication import Publication, PublicationReceipt
from waypost.registry.registry import Registry, RegistryOptions
from waypost.registry.trust_store import RevocationEntry
from waypost.search.ranker import HybridRanker
from waypost.server.auth.authenticator import ADMIN
from waypost.stores.memory import MemoryStore

IDS = ("00000001-1fc2-4f7b-8d8c-5e3e6f5c9c1d", "00000002-1fc2-4f7b-8d8c-5e3e6f5c9c1d")
KEYS = tuple(key(name) for name in ("one", "two", "three"))
HOUR, DAY = 3600, 86_400

ids = st.sampled_from(IDS)
keys = st.sampled_from(KEYS)
words = st.sampled_from(("red", "green", "blue"))
others = st.sampled_from((ALICE, ALICE, BOB, ADMIN))
# One thing at a time is wrong with a message, so that nothing hides behind another refusal. None: only its keys may be.
FLAWS = (None, "older", "same sequence", "signed long ago", "signed tomorrow", "tampered", "unsigned", "carried id")
flaws = st.sampled_from((*FLAWS, None, None, None))


class Bound:
    """Which keys stand behind an id: one that is active, those in their grace, those that are out for good."""

    def __init__(self) -> None:
        self.active: str | None = None
        self.grace: dict[str, float] = {}
        self.out: set[str] = set()
        self.rotated_at = -1e12
        self.highest: dict[str, int] = {}  # by key

    @property
    def known(self) -> bool:
        return self.active is not None or bool(self.grace) or bool(self.out)

    def stands(self, key_id: str, now: float) -> bool:
        return key_id not in self.out and (key_id == self.active or now < self.grace.get(key_id, 0.0))

    def rotate(self, key_id: str, now: float) -> None:
        if self.active is not None:
            self.grace[self.active] = now + DAY
        self.active, self.rotated_at = key_id, now


class Announcements(RuleBasedStateMachine):
    @initialize(mode=st.sampled_from(("allowlist-tofu", "tofu")), unsigned=st.sampled_from(("reject", "untrusted")))
    def start(self, mode: str, unsigned: str) -> None:
        self.runner = asyncio.Runner()
        self.clock = ManualClock(NOW)
        options = RegistryOptions(announcements=AnnouncementOptions(trust_mode=mode, unsigned=unsigned))
        self.store = MemoryStore()
        self.registry = Registry(self.store, partial(HybridRanker, None), self.clock, options)
        self.run(self.registry.start())
        self.run(self.registry.trust.allow(ADMIN, "*"))
        self.bound = {agent_id: Bound() for agent_id in IDS}
        self.revoked: set[str] = set()
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.owners: dict[str, Principal] = {}
        self.seq = 1000

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        if hasattr(self, "registry"):
            self.run(self.registry.stop())
            self.runner.close()

    # --- Time and operators ----------------------------------------------------------------------

    @rule(seconds=st.sampled_from((1, 30, 130, HOUR, DAY)))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.run(self.registry.leader.expire_leases())

    @rule(signer=keys)
    def revoke(self, signer: Any) -> None:
        if len(self.revoked) == len(KEYS) - 1:
            return  # one key must be left to announce
        key_id = signer.public.key_id
        self.run(
            self.registry.trust.revoke(ADMIN, RevocationEntry(kind="key", name=key_id, revoked_at=self.clock.now()))
        )
        self.revoked.add(key_id)
        for bound in self.bound.values():
            if key_id == bound.active:
                bound.active = None
                bound.out.add(key_id)
            elif key_id in bound.grace:
                bound.out.add(key_id)

    @rule(agent_id=ids, signer=keys)
    def trust(self, agent_id: str, signer: Any) -> None:
        bound, key_id = self.bound[agent_id], signer.public.key_id
        try:
            _, outcome = self.run(self.registry.trust.trust(ADMIN, agent_id, signer.public))
        except WaypostError:
            assert key_id in self.revoked
            return
        if outcome == "trusted":
            bound.out |= {*bound.grace, *({bound.active} if bound.active else ())}
            bound.out.discard(key_id)
            bound.grace.clear()
            bound.active = key_id

    @rule(agent_id=ids, subject=others)
    def withdraw(self, agent_id: str, subject: Principal) -> None:
        with contextlib.suppress(WaypostError):
            self.run(self.registry.withdraw(subject, f"urn:uuid:{agent_id}", repeat_ok=True))

    # --- Announcing ------------------------------------------------------------------------------

    @rule(agent_id=ids, word=words, gated=st.booleans())
    def announce_properly(self, agent_id: str, word: str, gated: bool) -> None:
        """The key that is bound, the next sequence, now: always taken."""
        bound = self.bound[agent_id]
        signer = next((held for held in KEYS if held.public.key_id == bound.active), None)
        owner = self.owner(agent_id)
        if signer is None or signer.public.key_id in self.revoked:
            return
        message = self.message(agent_id, signer, word=word)
        assert self.publish(message, owner, gated=gated) is not None, "what is in order was refused"
        bound.highest[signer.public.key_id] = self.seq
        self.taken.append((agent_id, message))

    @rule(agent_id=ids, signer=keys, vouching=st.none() | keys, word=words, flaw=flaws, gated=st.booleans())
    def attack(self, agent_id: str, signer: Any, vouching: Any, word: str, flaw: str | None, gated: bool) -> None:
        """Any key, vouched for by any key, with one flaw or none, in the name of the owner."""
        now, bound, key_id = self.clock.now(), self.bound[agent_id], signer.public.key_id
        message = self.message(agent_id, signer, vouching, word=word, flaw=flaw)
        before = self.show(agent_id)
        if self.publish(message, self.owner(agent_id), gated=gated) is None:
            assert self.show(agent_id) == before, "what was refused changed something"
            return
        assert flaw not in ("tampered", "carried id"), f"{flaw} was taken"
        if flaw == "unsigned":
            assert not bound.known, "an id with a key was changed without a signature"
            return
        assert key_id not in self.revoked, "a revoked key was taken"
        if bound.known or gated:
            assert flaw not in ("signed long ago", "signed tomorrow"), f"what was {flaw} was taken"
        self.check_key(bound, key_id, vouching, now, gated=gated)
        if bound.known:  # by now
            told = message["agent"]["metadata"]["__seq"]
            last = next((said["agent"] for held, said in reversed(self.taken) if held == agent_id), None)
            assert told > bound.highest.get(key_id, 0) or last == message["agent"], "what is not news was taken"
            bound.highest[key_id] = told
        self.taken.append((agent_id, message))

    @rule(data=st.data(), subject=others, gated=st.booleans())
    def replay(self, data: Any, subject: Principal, gated: bool) -> None:
        """Replay accepted messages from any subject: no content changes."""
        if not self.taken:
            return
        agent_id, message = data.draw(st.sampled_from(self.taken[-12:]))
        bound, before = self.bound[agent_id], self.show(agent_id)
        if not bound.known:
            return  # no key is bound: it counts as a registration
        self.publish(message, subject, gated=gated)
        after = self.show(agent_id)
        assert after == before or (after is not None and self.words(after) == self.words(message)), "it came back"
        if after != before:  # it had run out: only what its key signed last raises it again
            signer = next(held for held in KEYS if held.public.pem() == message["agent"]["public_key"])
            assert message["agent"]["metadata"]["__seq"] >= bound.highest.get(signer.public.key_id, 0)

    def words(self, said: Any) -> list[str]:
        return sorted((said if isinstance(said, dict) else json.loads(said))["agent"]["capabilities"])

    def owner(self, agent_id: str) -> Principal:
        """The owner of the record, also for a while after its end."""
        return self.owners.get(agent_id, ALICE)

    def message(
        self, agent_id: str, signer: Any, vouching: Any = None, *, word: str, flaw: str | None = None
    ) -> dict[str, Any]:
        now = self.clock.now()
        self.seq += 1
        carried = {"members": {"id": f"urn:uuid:{IDS[1 - IDS.index(agent_id)]}"}}
        highest = self.bound[agent_id].highest.get(signer.public.key_id, self.seq)
        message = announcement(
            signer,
            seq={"older": max(1, highest - 1), "same sequence": highest}.get(flaw or "", self.seq),
            at=now + {"signed long ago": -301, "signed tomorrow": 90}.get(flaw or "", 0),
            previous=vouching,
            agent_id=agent_id,
            capabilities={word: "1.0"},
            metadata={"org.waypost.record": carried} if flaw == "carried id" else {},
        )
        message["protocol_version"] = "v1.1"
        if flaw == "tampered":
            message["agent"]["transport"]["endpoint"] = "10.6.6.6:66"
        if flaw == "unsigned":
            del message["signature"]
        return message

    def check_key(self, bound: Bound, key_id: str, vouching: Any, now: float, *, gated: bool) -> None:
        if bound.stands(key_id, now):
            return
        if not bound.known:
            if gated:
                bound.active = key_id
            return
        assert vouching is not None, "a key that nobody vouched for was taken"
        assert vouching.public.key_id == bound.active, "a key that is not active vouched for another"
        assert vouching.public.key_id not in self.revoked
        assert key_id not in bound.out
        assert key_id not in bound.grace
        assert now >= bound.rotated_at + HOUR
        bound.rotate(key_id, now)

    def publish(self, message: dict[str, Any], subject: Principal, *, gated: bool) -> PublicationReceipt | None:
        document = body(message)
        try:
            dialect, decoded = self.registry.decode(document, dialect="announce")
            publication = Publication(
                dialect=dialect, document=document, decoded=decoded, principal=subject, gated=gated
            )
            receipt: PublicationReceipt = self.run(self.registry.publish(publication))
        except WaypostError:
            return None
        if receipt.created:
            self.owners[message["agent"]["agent_id"]] = subject
        return receipt

    def show(self, agent_id: str) -> bytes | None:
        found = self.run(self.store.fetch([f"urn:uuid:{agent_id}"])).get(f"urn:uuid:{agent_id}")
        return None if found is None else found.sources[0].document

    @invariant()
    def nothing_of_a_revoked_key_is_shown(self) -> None:
        if not hasattr(self, "registry"):
            return
        for agent_id in IDS:
            shown = self.show(agent_id)
            for signer in KEYS:
                if shown is not None and signer.public.key_id in self.revoked and b'"signature"' in shown:
                    escaped = signer.public.pem().replace("\n", "\\n").encode()
                    assert escaped not in shown, "a record of a revoked key is still there"


TestAnnouncements = Announcements.TestCase
TestAnnouncements.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
