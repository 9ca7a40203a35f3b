"""Which document gets which checks, with which keys: from a document that is published to its verdicts.

Keys come from the trust store alone: those that are bound to the agent's id, or to the domain of that id. A key that a
document brings along, names or points to binds nothing. What is read off the document is read before the store's
transaction; keys are taken, and signatures judged, inside it, so that a revocation is never overtaken. Announcements have
their own way (`announcing`), because their keys can be bound by first use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

import msgspec

from waypost import limits
from waypost.model.json import JsonObject, parse_object
from waypost.model.names import domain_of
from waypost.model.registration import Registration, Source
from waypost.model.verdict import Verdict
from waypost.registry import decisions
from waypost.registry.ports import Decision, Held
from waypost.registry.publication import Publication
from waypost.trust.admission import PINNED, SIGNATURE, revoked
from waypost.trust.allowlist import find_agent_id
from waypost.trust.checks.a2a import check_card
from waypost.trust.checks.adp import check_adp
from waypost.trust.checks.announce import check_announcement
from waypost.trust.checks.ard import check_entry
from waypost.trust.checks.bound import BoundKey, told
from waypost.trust.checks.profile import check_profile
from waypost.trust.keys import PublicKey, parse_der
from waypost.trust.pins import PinnedKey, load_row, pin_name

Check = Callable[[JsonObject, Sequence[BoundKey], float], tuple[Verdict, ...]]
Decide = Callable[[Held], Decision]


def _check_adp(
    document: JsonObject, keys: Sequence[BoundKey], now: float, found: Sequence[Verdict] = ()
) -> tuple[Verdict, ...]:
    """With what the document says of its own DNS, which is a claim until we ask the DNS (P11). `found` is what that said."""
    stated = document.get("dns")
    checks = check_adp(document, keys, now, fingerprints=_fingerprints(found))
    if not isinstance(stated, dict) or not stated:
        return checks
    claimed = {name: value is True for name, value in stated.items() if name in _DNS_CLAIMS and isinstance(value, bool)}
    if isinstance(stated.get("dane"), dict):
        claimed["dane"] = stated["dane"].get("supported") is True
    claim = told("dns", "not_checked", "the document says this of itself", now, claimed=claimed)
    return (*checks, claim)


def _fingerprints(found: Sequence[Verdict]) -> dict[str, str]:
    """The key that the domain's DNS names, where that was looked up and held."""
    rungs = [verdict for verdict in found if verdict.check == _KEY_RUNG and verdict.state == "passed"]
    return {str(verdict.evidence.get("fingerprint")): "dns" for verdict in rungs}


CHECKS: dict[str, Check] = {
    "profile": check_profile,
    "a2a": check_card,
    "adp": _check_adp,
    "ard": check_entry,
    "announce": check_announcement,
}
_JUDGED = frozenset((SIGNATURE, PINNED))  # of announcements: both are judged, or neither holds
_MANIFEST = b'"trustManifest"'
_DNS = b'"dns"'
_KEY_RUNG = "key-verified"
_DNS_CLAIMS = ("svcbVerified", "dnssecSigned")


def has_claims(publication: Publication) -> bool:
    """Whether there is anything to check. Most documents bring no signature, and cost nothing here."""
    if publication.dialect == "ard":
        return _MANIFEST in publication.document
    if publication.dialect == "adp" and _DNS in publication.document:
        return True
    return publication.dialect in CHECKS and publication.decoded.record.signature is not None


class Verification:
    """One document with claims. `agent_id` is that of the record it would change, where there is one."""

    def __init__(self, publication: Publication, agent_id: str, revoked_keys: Collection[str], now: float) -> None:
        self._publication = publication
        self._document = publication.decoded.parsed or parse_object(publication.document)
        self._names = tuple(dict.fromkeys((agent_id, publication.decoded.record.id)))
        self._revoked = revoked_keys
        self._now = now

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes that the decision must see."""
        return tuple(dict.fromkeys(note for name in self._names for note in key_notes(name)))

    def decide(self, publish: Callable[[Publication], Decide]) -> Decide:
        def decide(held: Held) -> Decision:
            current = decisions.find_current(self._publication, held)
            verdicts = self._judged(current, held.notes)
            return publish(msgspec.structs.replace(self._publication, verdicts=verdicts))(held)

        return decide

    def _judged(self, current: Registration | None, notes: Mapping[str, bytes]) -> tuple[Verdict, ...]:
        """A document that joins a record speaks for that record: only keys bound to the record's own id count."""
        agent_id = current.id if current is not None else self._publication.decoded.record.id
        keys, dead = bound_keys(agent_id, notes, self._now)
        found = (*self._publication.verdicts, *decisions.proven_by_domain(self._publication, current))
        verdicts = _checked(self._publication.dialect, self._document, (*keys, *dead), self._now, found)
        named = {verdict.evidence.get("key_id") for verdict in verdicts}
        if not named.isdisjoint(key.key.key_id for key in dead) or not named.isdisjoint(self._revoked):
            raise revoked("The key that signed this was revoked.", "$.signature")
        return (*self._publication.verdicts, *verdicts)


@lru_cache(limits.BOUND_KEY_CACHE)
def key_notes(agent_id: str) -> tuple[str, ...]:
    """The notes in which keys for this agent may be: of its id, and of the domain that its id is in."""
    domain = domain_of(agent_id)
    own = pin_name(find_agent_id(agent_id) or agent_id)
    return (own,) if domain is None else (own, pin_name(domain))


def bound_keys(agent_id: str, notes: Mapping[str, bytes], now: float) -> tuple[list[BoundKey], list[BoundKey]]:
    """The keys that are bound to an agent, and those that were and are revoked."""
    keys: list[BoundKey] = []
    dead: list[BoundKey] = []
    for name in key_notes(agent_id):
        note = notes.get(name)
        if note is None:
            continue
        owner, pinned = _pinned_keys(note)
        for held, key in pinned:
            state = held.state_at(now)
            if state == "retired":
                continue
            own = owner == agent_id
            by = held.via if own else f"{held.via}:{owner}"
            (dead if state == "revoked" else keys).append(BoundKey(key, by, own=own and held.via == "trust"))
    return keys, dead


@lru_cache(limits.BOUND_KEY_CACHE)
def _pinned_keys(note: bytes) -> tuple[str, tuple[tuple[PinnedKey, PublicKey], ...]]:
    """What a row of the trust store says, with its keys read. The row is the key of the memory, so it is never out of date."""
    pin = load_row(note)
    return pin.agent_id, tuple((held, parse_der(held.spki)) for held in pin.keys)


def judge_again(registration: Registration, notes: Mapping[str, bytes], now: float) -> tuple[Source, ...]:
    """The documents of an agent, each judged with the keys that are bound now. What cannot be judged from here stays."""
    keys, dead = bound_keys(registration.id, notes, now)
    return tuple(_judged_again(source, keys, dead, now) for source in registration.sources)


def judge_document(
    dialect: str, document: bytes, agent_id: str, notes: Mapping[str, bytes], now: float
) -> tuple[Verdict, ...]:
    """The checks of any document; none for a dialect that knows no signatures."""
    return judge_with(dialect, document, *bound_keys(agent_id, notes, now), now)


def judge_with(
    dialect: str,
    document: bytes,
    keys: Sequence[BoundKey],
    dead: Sequence[BoundKey],
    now: float,
    known: Sequence[Verdict] = (),
) -> tuple[Verdict, ...]:
    """`known` is what was found before, elsewhere than in the document."""
    if dialect not in CHECKS:
        return ()
    checks = _checked(dialect, _message(dialect, document), (*keys, *dead), now, known)
    found = [_unless_revoked(each, dead) for each in checks]
    return (*found, *(_pinned(each) for each in found if each.check == SIGNATURE and each.state == "passed"))


def _checked(
    dialect: str, document: JsonObject, keys: Sequence[BoundKey], now: float, known: Sequence[Verdict]
) -> tuple[Verdict, ...]:
    if dialect == "adp":
        return _check_adp(document, keys, now, known)
    return CHECKS[dialect](document, keys, now)


def _judged_again(source: Source, keys: Sequence[BoundKey], dead: Sequence[BoundKey], now: float) -> Source:
    if not source.document:
        return source
    new = judge_with(source.dialect, source.document, keys, dead, now, source.verdicts)
    others = [each for each in source.verdicts if each.check not in {*_JUDGED, *(verdict.check for verdict in new)}]
    return msgspec.structs.replace(source, verdicts=(*new, *others))


def _pinned(verdict: Verdict) -> Verdict:
    """An announcement that a bound key signed is by that key."""
    evidence = {"key_id": verdict.evidence["key_id"], "via": verdict.evidence["bound_by"]}
    return msgspec.structs.replace(verdict, check=PINNED, evidence=evidence)


def _unless_revoked(verdict: Verdict, dead: Sequence[BoundKey]) -> Verdict:
    if any(key.key.key_id == verdict.evidence.get("key_id") for key in dead):
        return msgspec.structs.replace(verdict, state="failed", reason="the key that signed this was revoked")
    return verdict


def _message(dialect: str, document: bytes) -> JsonObject:
    """A bare announced agent is judged as a message without a signature."""
    parsed = parse_object(document)
    if dialect == "announce" and ("agent" not in parsed or "agent_id" in parsed):
        return {"agent": parsed}
    return parsed
