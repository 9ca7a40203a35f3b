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
from waypost.model.principal import Principal
from waypost.model.registration import Registration, SourceDocument, verdicts_of
from waypost.model.verdict import Verdict, VerdictState, level_of, states_of
from waypost.registry import write_rules
from waypost.registry.audit_trail import audit_reverification
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.ports import Clock, Command, Decision, RegistrationChange, Store, StoreState
from waypost.registry.publication import Publication
from waypost.registry.reader import RegistryReader
from waypost.registry.trust_store import announced_record_id, revocation_subject
from waypost.trust.announce.admission import PIN_CHECK, SIGNATURE_CHECK, revoked_error
from waypost.trust.announce.allow_list import find_agent_id
from waypost.trust.announce.key_pins import PinnedKey, decode_pin, pin_note_key
from waypost.trust.checks.adp import check_adp
from waypost.trust.checks.announce import check_announcement
from waypost.trust.checks.bound_key import BoundKey, make_verdict
from waypost.trust.checks.signed_documents import check_ard_entry, check_card, check_profile
from waypost.trust.keys.public_key import PublicKey, parse_der

Check = Callable[[JsonObject, Sequence[BoundKey], float], tuple[Verdict, ...]]

Decide = Callable[[StoreState], Decision]


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
    claim = make_verdict("dns", "not_checked", "the document says this of itself", now, claimed=claimed)
    return (*checks, claim)


def _fingerprints(found: Sequence[Verdict]) -> dict[str, str]:
    """The key that the domain's DNS names, where that was looked up and held."""
    rungs = [verdict for verdict in found if verdict.check == _KEY_RUNG and verdict.state == "passed"]
    return {str(verdict.evidence.get("fingerprint")): "dns" for verdict in rungs}


CHECKS: dict[str, Check] = {
    "profile": check_profile,
    "a2a": check_card,
    "adp": _check_adp,
    "ard": check_ard_entry,
    "announce": check_announcement,
}

_JUDGED = frozenset((SIGNATURE_CHECK, PIN_CHECK))  # of announcements: both are judged, or neither holds

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


class DocumentVerification:
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
        def decide(held: StoreState) -> Decision:
            current = write_rules.find_current(self._publication, held)
            verdicts = self._judged(current, held.notes)
            return publish(msgspec.structs.replace(self._publication, verdicts=verdicts))(held)

        return decide

    def _judged(self, current: Registration | None, notes: Mapping[str, bytes]) -> tuple[Verdict, ...]:
        """A document that joins a record speaks for that record: only keys bound to the record's own id count."""
        agent_id = current.id if current is not None else self._publication.decoded.record.id
        keys, dead = bound_keys(agent_id, notes, self._now)
        found = (*self._publication.verdicts, *write_rules.domain_verdicts(self._publication, current))
        verdicts = _checked(self._publication.dialect, self._document, (*keys, *dead), self._now, found)
        named = {verdict.evidence.get("key_id") for verdict in verdicts}
        if not named.isdisjoint(key.key.key_id for key in dead) or not named.isdisjoint(self._revoked):
            raise revoked_error("The key that signed this was revoked.", "$.signature")
        return (*self._publication.verdicts, *verdicts)


@lru_cache(limits.BOUND_KEY_CACHE)
def key_notes(agent_id: str) -> tuple[str, ...]:
    """The notes in which keys for this agent may be: of its id, and of the domain that its id is in."""
    domain = domain_of(agent_id)
    own = pin_note_key(find_agent_id(agent_id) or agent_id)
    return (own,) if domain is None else (own, pin_note_key(domain))


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
    pin = decode_pin(note)
    return pin.agent_id, tuple((held, parse_der(held.spki)) for held in pin.keys)


def recheck_sources(registration: Registration, notes: Mapping[str, bytes], now: float) -> tuple[SourceDocument, ...]:
    """The documents of an agent, each judged with the keys that are bound now. What cannot be judged from here stays."""
    keys, dead = bound_keys(registration.id, notes, now)
    return tuple(_recheck_source(source, keys, dead, now) for source in registration.sources)


def run_document_checks(
    dialect: str, document: bytes, agent_id: str, notes: Mapping[str, bytes], now: float
) -> tuple[Verdict, ...]:
    """The checks of any document; none for a dialect that knows no signatures."""
    return check_with_keys(dialect, document, *bound_keys(agent_id, notes, now), now)


def check_with_keys(
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
    return (*found, *(_pinned(each) for each in found if each.check == SIGNATURE_CHECK and each.state == "passed"))


def _checked(
    dialect: str, document: JsonObject, keys: Sequence[BoundKey], now: float, known: Sequence[Verdict]
) -> tuple[Verdict, ...]:
    if dialect == "adp":
        return _check_adp(document, keys, now, known)
    return CHECKS[dialect](document, keys, now)


def _recheck_source(
    source: SourceDocument, keys: Sequence[BoundKey], dead: Sequence[BoundKey], now: float
) -> SourceDocument:
    if not source.document:
        return source
    new = check_with_keys(source.dialect, source.document, keys, dead, now, source.verdicts)
    others = [each for each in source.verdicts if each.check not in {*_JUDGED, *(verdict.check for verdict in new)}]
    return msgspec.structs.replace(source, verdicts=(*new, *others))


def _pinned(verdict: Verdict) -> Verdict:
    """An announcement that a bound key signed is by that key."""
    evidence = {"key_id": verdict.evidence["key_id"], "via": verdict.evidence["bound_by"]}
    return msgspec.structs.replace(verdict, check=PIN_CHECK, evidence=evidence)


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


class Reverification(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as answers show it, and as it is judged now."""

    held: Registration
    now: Registration
    at: float

    @property
    def is_changed(self) -> bool:
        return _verdict_states(self.held) != _verdict_states(self.now)


class RegistryVerifier:
    """Checks documents again. Verdicts are made when a document is published; without this, a key that is bound later would
    count only from the next document on."""

    def __init__(self, reader: RegistryReader, store: Store, catalog: Catalog, clock: Clock) -> None:
        self._reader = reader
        self._store = store
        self._catalog = catalog
        self._clock = clock

    async def verify(self, principal: Principal, key: str) -> Reverification:
        """Run every check of every document of an agent now. Writes nothing."""
        held = await self._reader.get(principal, key)
        now = self._clock.now()
        judged = msgspec.structs.replace(held, sources=recheck_sources(held, await self._key_notes(held.id), now))
        return Reverification(held=held, now=judged, at=now)

    async def verify_document(self, dialect: str, document: bytes, agent_id: str) -> tuple[Verdict, ...]:
        """The checks of a document that is not registered, with the keys that are bound to its agent here."""
        return run_document_checks(dialect, document, agent_id, await self._key_notes(agent_id), self._clock.now())

    async def _key_notes(self, agent_id: str) -> dict[str, bytes]:
        notes: dict[str, bytes] = {}
        for name in key_notes(agent_id):
            notes.update(await self._store.notes(name))
        return notes

    async def reverify(self, name: str) -> list[str]:
        """Write the verdicts that a newly bound key changes, for the agent of this name or all ids of this domain.
        Returns the ids of the changed agents."""
        changed: list[str] = []
        for agent_id in self._ids_of(name):
            command = Command(
                keys=(agent_id,), notes=key_notes(agent_id), decide=_update_verdicts(agent_id, self._clock.now())
            )
            if (await self._store.execute(command)).outcome == "judged":
                changed.append(agent_id)
        return changed

    def _ids_of(self, name: str) -> Sequence[str]:
        known = self._catalog.resolve(announced_record_id(name)) or self._catalog.resolve(name)
        if known is not None and revocation_subject(known) == revocation_subject(name):
            return (known,)
        return [agent_id for agent_id in self._catalog.ids() if domain_of(agent_id) == name] if "." in name else ()


def _update_verdicts(agent_id: str, now: float) -> Callable[[StoreState], Decision]:
    def decide(held: StoreState) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None:
            return Decision(outcome="gone")
        judged = msgspec.structs.replace(current, sources=recheck_sources(current, held.notes, now), changed_at=now)
        if _verdict_states(judged) == _verdict_states(current):
            return Decision(outcome="unchanged", registration=current)
        level = level_of(verdicts_of(judged))
        change = RegistrationChange(type="updated", at=now, registration=judged, before=current.scopes)
        return Decision(
            outcome="judged", change=change, audit=(audit_reverification(judged.id, judged.etag, level, now),)
        )

    return decide


def _verdict_states(registration: Registration) -> list[set[tuple[str, VerdictState]]]:
    return [states_of(source.verdicts) for source in registration.sources]
