"""Sources of a peer's key, in order of precedence, and the `peer-verified` verdict of a conversation.

The domain itself comes first (DNS and document), then keys that an operator pinned, then the verified document in this
registry, then an invitation. The first source that knows the agent decides; a source may raise to end the search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from waypost.errors import FingerprintMismatch, InvalidKey, NotFound, UnknownPeer
from waypost.model.json import parse_object
from waypost.model.names import domain_of
from waypost.model.principal import Principal
from waypost.model.registration import Registration, SourceDocument
from waypost.model.resolution import Resolution
from waypost.model.times import find_instant, to_rfc3339
from waypost.model.verdict import Verdict
from waypost.registry.ports import AuditEntry, Command, Decision, RegistrationChange, Rule, StoreState
from waypost.registry.registry import Registry
from waypost.trust.checks.adp import KEY_CHECK, PROOF_CHECK, parse_full_key
from waypost.trust.keys.public_key import PublicKey, parse_der, parse_ed25519_raw

PEER_CHECK = "peer-verified"

_VERDICT_FRESH_SECONDS = 86_400.0

KeySource = Literal["domain", "pin", "registry", "invitation", "given", "token"]


class PeerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The known key of an agent, and its source. Without `key`, the peer sends it, and the fingerprint must match."""

    agent: str
    fingerprint: str
    by: KeySource
    key: PublicKey | None = None
    domain: str = ""
    level: str = ""  # the trust level of the resolution, if there was one

    def matched(self, shown: bytes | None) -> PublicKey:
        """The known key, or the one that the peer sends if its fingerprint matches."""
        if self.key is not None:
            return self.key
        if shown is None:
            raise UnknownPeer(
                f"Only the fingerprint of the key of {self.agent} is known.",
                path="$.body.content.key",
                hint="Send the key in the hello, or publish it as publicKey.full.",
            )
        key = parse_ed25519_raw(shown)
        if key.fingerprint() != self.fingerprint:
            raise FingerprintMismatch(
                f"{self.agent} sent the key {key.fingerprint()}; the known key is {self.fingerprint}.",
                path="$.body.content.key",
                hint="Use the key that the agent's domain publishes.",
            )
        return key


class PeerKeySource(Protocol):
    async def key_of(self, agent: str) -> PeerIdentity | None:
        """The key of `agent:{domain}`; None if it is unknown."""
        ...


class PeerKeyChain:
    """Several sources; the first that knows the agent decides."""

    def __init__(self, sources: Sequence[PeerKeySource]) -> None:
        self._sources = sources

    async def key_of(self, agent: str) -> PeerIdentity | None:
        for source in self._sources:
            found = await source.key_of(agent)
            if found is not None:
                return found
        return None


class UnrevokedKeys:
    """Rejects revoked keys and agents, whatever the source."""

    def __init__(self, others: PeerKeySource, registry: Registry) -> None:
        self._others = others
        self._registry = registry

    async def key_of(self, agent: str) -> PeerIdentity | None:
        self._registry.trust.check_id(agent)
        found = await self._others.key_of(agent)
        if found is not None and found.key is not None:
            self._registry.trust.check_key(found.key.key_id)
        return found


class ObservedKeys:
    """Calls `note` with each key that is found, without a switch to another task in between."""

    def __init__(self, others: PeerKeySource, note: Callable[[PublicKey], None]) -> None:
        self._others = others
        self._note = note

    async def key_of(self, agent: str) -> PeerIdentity | None:
        found = await self._others.key_of(agent)
        if found is not None and found.key is not None:
            self._note(found.key)
        return found


class PinnedKeys:
    """Keys that an operator pinned (`waypost keys trust`)."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def key_of(self, agent: str) -> PeerIdentity | None:
        for pin in await self._registry.trust.pins(agent):
            active = pin.active
            if active is not None and active.kind == "ed25519" and pin.provisioned:
                key = parse_der(active.spki)
                return PeerIdentity(
                    agent=agent, fingerprint=key.fingerprint() or "", by="pin", key=key, domain=domain_of(agent) or ""
                )
        return None


class RegisteredKeys:
    """Keys in ADP documents of this registry that are bound to their agent."""

    def __init__(self, registry: Registry, reader: Principal) -> None:
        self._registry = registry
        self._reader = reader

    async def key_of(self, agent: str) -> PeerIdentity | None:
        try:
            registration = await self._registry.get(self._reader, agent)
        except NotFound:
            return None
        key = find_verified_key(registration, agent)
        if key is None:
            return None
        return PeerIdentity(
            agent=agent, fingerprint=key.fingerprint() or "", by="registry", key=key, domain=domain_of(agent) or ""
        )


def find_verified_key(registration: Registration, agent: str) -> PublicKey | None:
    """The key of the ADP document if its check passed; or if no other key is bound, the document is consistent, and it is
    hosted here under the agent's own domain: an operator, or the owner of the domain, vouches for it."""
    source = registration.source("adp")
    if source is None:
        return None
    states = {each.check: each.state for each in source.verdicts}
    is_hosted = registration.hosted is not None and registration.hosted == domain_of(agent)
    is_consistent = states.get(KEY_CHECK) == "unknown" and states.get(PROOF_CHECK) != "failed"
    if states.get(KEY_CHECK) != "passed" and not (is_hosted and is_consistent):
        return None
    return find_declared_key(registration, agent)


def find_declared_key(registration: Registration, agent: str) -> PublicKey | None:
    """The key in the ADP document, whether or not it is bound to the agent."""
    source = registration.source("adp")
    if source is None or source.id.lower() != agent or source.document is None:
        return None
    identity = parse_object(source.document).get("identity")
    stated = identity.get("publicKey") if isinstance(identity, dict) else None
    try:
        return parse_full_key(stated.get("full")) if isinstance(stated, dict) else None
    except InvalidKey:
        return None


def find_dns_key(agent: str, found: Resolution) -> PeerIdentity | None:
    """The fingerprint in the DNS of an agent's domain, with the matching key of its document."""
    if not found.is_resolved or found.key is None:
        return None
    return PeerIdentity(
        agent=agent,
        fingerprint=found.key.fingerprint,
        by="domain",
        key=parse_full_key(found.key.public_key) if found.key.public_key else None,
        domain=found.domain,
        level=found.level,
    )


def unknown_peer_error(agent: str) -> UnknownPeer:
    return UnknownPeer(
        f"The key of {agent} is unknown.",
        path="$.from",
        hint="Publish it under the domain, pin it (`waypost keys trust`), or connect with the token of its owner.",
    )


def peer_verdict(peer: PeerIdentity, *, verified: bool, now: float) -> Verdict:
    """`peer-verified`: both sides signed, and the peer proved that it is present, with the key of source `by`."""
    evidence = {"agent": peer.agent, "fingerprint": peer.fingerprint, "key_by": peer.by, "key_level": peer.level}
    return Verdict(
        check=PEER_CHECK,
        state="passed" if verified else "unknown",
        reason="" if verified else "the peer used an older handshake, which does not prove that it is present",
        evidence={name: value for name, value in evidence.items() if value},
        at=to_rfc3339(now),
    )


class PeerVerification:
    """Records `peer-verified` verdicts on the source that the key belongs to, the agent's ADP document, at most once a day. The
    verdict is dropped with the document: another document is another claim."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def record(self, agent: str, verdict: Verdict) -> bool:
        """Returns whether the record of the agent changed."""
        entry = self._registry.entries.find_named(agent)
        if entry is None:
            return False
        now = self._registry.clock.now()
        command = Command(keys=(entry.id,), notes=(), decide=_decide_verdict(entry.id, agent, verdict, now))
        return (await self._registry.execute(command)).outcome == "judged"


def _decide_verdict(agent_id: str, agent: str, verdict: Verdict, now: float) -> Rule:
    def decide(state: StoreState) -> Decision:
        current = state.registrations.get(agent_id)
        if current is None:
            return Decision(outcome="gone")
        sources = tuple(_with_verdict(source, agent, verdict, now) for source in current.sources)
        if sources == current.sources:
            return Decision(outcome="unchanged", registration=current)
        updated: Registration = msgspec.structs.replace(current, sources=sources, changed_at=now)
        entry = AuditEntry(
            at=now,
            action="judge",
            subject=agent,
            object=agent_id,
            outcome=f"{PEER_CHECK} {verdict.state}",
            via="agp",
            etag=updated.etag,
        )
        change = RegistrationChange(type="updated", at=now, registration=updated, before=current.scopes)
        return Decision(outcome="judged", change=change, audit=(entry,))

    return decide


def _with_verdict(source: SourceDocument, agent: str, verdict: Verdict, now: float) -> SourceDocument:
    if source.dialect != "adp" or source.id.lower() != agent:
        return source
    before = next((each for each in source.verdicts if each.check == PEER_CHECK), None)
    if (
        before is not None
        and _is_same_verdict(before, verdict)
        and now - (find_instant(before.at) or 0.0) < _VERDICT_FRESH_SECONDS
    ):
        return source
    others = tuple(each for each in source.verdicts if each.check != PEER_CHECK)
    return msgspec.structs.replace(source, verdicts=(*others, verdict))


def _is_same_verdict(before: Verdict, now: Verdict) -> bool:
    return (before.state, before.evidence) == (now.state, now.evidence)
