"""Verification of documents: which checks a dialect has, and which keys they use.

Keys come from the trust store only: those bound to the id of the agent, or to the domain of that id. A key that a document
contains, names or points to proves nothing. The document is parsed before the transaction of the store; keys are read and
signatures checked inside it, so that a revocation always takes effect. Announcements are handled in
`admission`, because their keys can be pinned on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from waypost.model.json import JsonObject, parse_object
from waypost.model.names import domain_of
from waypost.model.principal import Principal
from waypost.model.registration import Registration, SourceDocument, verdicts_of
from waypost.model.verdict import Verdict, VerdictState, level_of, states_of
from waypost.registry import write_rules
from waypost.registry.audit_trail import audit_reverification
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.ownership import bindings_of, bound_keys, dump_bindings, key_notes, ownership_notes
from waypost.registry.ports import Clock, Command, Decision, RegistrationChange, Rule, Store, StoreState
from waypost.registry.publication import Publication
from waypost.registry.reader import RegistryReader
from waypost.registry.trust_store import announced_record_id, revocation_subject
from waypost.trust.announce.admission import PIN_CHECK, SIGNATURE_CHECK, revoked_error
from waypost.trust.checks.adp import check_adp
from waypost.trust.checks.announce import check_announcement
from waypost.trust.checks.bound_key import BoundKey, make_verdict
from waypost.trust.checks.signed_documents import check_ard_entry, check_card, check_profile

Check = Callable[[JsonObject, Sequence[BoundKey], float], tuple[Verdict, ...]]


def _check_adp(
    document: JsonObject, keys: Sequence[BoundKey], now: float, found: Sequence[Verdict] = ()
) -> tuple[Verdict, ...]:
    """Includes what the document states about its own DNS, which is a claim until the DNS is queried (P11). `found` are the
    verdicts of such a query."""
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
    """The key that the DNS of the domain names, if a lookup has verified it."""
    passed = [verdict for verdict in found if verdict.check == _KEY_LEVEL and verdict.state == "passed"]
    return {str(verdict.evidence.get("fingerprint")): "dns" for verdict in passed}


CHECKS: dict[str, Check] = {
    "profile": check_profile,
    "a2a": check_card,
    "adp": _check_adp,
    "ard": check_ard_entry,
    "announce": check_announcement,
}

_ANNOUNCE_CHECKS = frozenset((SIGNATURE_CHECK, PIN_CHECK))  # always replaced together
_MANIFEST = b'"trustManifest"'
_DNS = b'"dns"'
_KEY_LEVEL = "key-verified"
_DNS_CLAIMS = ("svcbVerified", "dnssecSigned")


def has_claims(publication: Publication) -> bool:
    """Whether there is anything to check. Most documents have no signature."""
    if publication.dialect == "ard":
        return _MANIFEST in publication.document
    if publication.dialect == "adp" and _DNS in publication.document:
        return True
    return publication.dialect in CHECKS and publication.decoded.record.signature is not None


class DocumentVerification:
    """One document with claims. `agent_id` is that of the registration it would change, if there is one."""

    def __init__(self, publication: Publication, agent_id: str, revoked_keys: Collection[str], now: float) -> None:
        self._publication = publication
        self._document = publication.decoded.parsed or parse_object(publication.document)
        self._names = tuple(dict.fromkeys((agent_id, publication.decoded.record.id)))
        self._revoked = revoked_keys
        self._now = now

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes that the rule must see."""
        return tuple(dict.fromkeys(note for name in self._names for note in key_notes(name)))

    def decide(self, publish: Callable[[Publication], Rule]) -> Rule:
        def decide(state: StoreState) -> Decision:
            return publish(self.judge(state))(state)

        return decide

    def judge(self, state: StoreState) -> Publication:
        """The publication with its verdicts."""
        current = write_rules.find_current(self._publication, state)
        return msgspec.structs.replace(self._publication, verdicts=self._check(current, state.notes))

    def _check(self, current: Registration | None, notes: Mapping[str, bytes]) -> tuple[Verdict, ...]:
        """A document that joins an agent speaks for that agent: only keys bound to the agent's own id count. A document whose
        id another subject's agent has as an alias speaks for itself."""
        own_id = self._publication.decoded.record.id
        is_joined = current is not None and current.owner == self._publication.principal.subject
        agent_id = (
            current.id if current is not None and (is_joined or not bound_keys(own_id, notes, self._now)[0]) else own_id
        )
        keys, revoked = bound_keys(agent_id, notes, self._now)
        found = (*self._publication.verdicts, *write_rules.domain_verdicts(self._publication, current))
        verdicts = _run_checks(self._publication.dialect, self._document, (*keys, *revoked), self._now, found)
        used = {verdict.evidence.get("key_id") for verdict in verdicts}
        if not used.isdisjoint(key.key.key_id for key in revoked) or not used.isdisjoint(self._revoked):
            raise revoked_error("The key that signed this was revoked.", "$.signature")
        return (*self._publication.verdicts, *verdicts)


def recheck_sources(registration: Registration, notes: Mapping[str, bytes], now: float) -> tuple[SourceDocument, ...]:
    """The documents of an agent with verdicts by the keys that are bound now. Verdicts of other checks stay."""
    keys, revoked = bound_keys(registration.id, notes, now)
    return tuple(_recheck_source(source, keys, revoked, now) for source in registration.sources)


def run_document_checks(
    dialect: str, document: bytes, agent_id: str, notes: Mapping[str, bytes], now: float
) -> tuple[Verdict, ...]:
    """The verdicts on any document; none for a dialect without signatures."""
    return check_with_keys(dialect, document, *bound_keys(agent_id, notes, now), now)


def check_with_keys(
    dialect: str,
    document: bytes,
    keys: Sequence[BoundKey],
    revoked: Sequence[BoundKey],
    now: float,
    known: Sequence[Verdict] = (),
) -> tuple[Verdict, ...]:
    """`known` are earlier verdicts from outside the document."""
    if dialect not in CHECKS:
        return ()
    verdicts = _run_checks(dialect, _to_message(dialect, document), (*keys, *revoked), now, known)
    found = [_fail_if_revoked(each, revoked) for each in verdicts]
    return (
        *found,
        *(_to_pin_verdict(each) for each in found if each.check == SIGNATURE_CHECK and each.state == "passed"),
    )


def _run_checks(
    dialect: str, document: JsonObject, keys: Sequence[BoundKey], now: float, known: Sequence[Verdict]
) -> tuple[Verdict, ...]:
    if dialect == "adp":
        return _check_adp(document, keys, now, known)
    return CHECKS[dialect](document, keys, now)


def _recheck_source(
    source: SourceDocument, keys: Sequence[BoundKey], revoked: Sequence[BoundKey], now: float
) -> SourceDocument:
    if not source.document:
        return source
    new = check_with_keys(source.dialect, source.document, keys, revoked, now, source.verdicts)
    replaced = {*_ANNOUNCE_CHECKS, *(verdict.check for verdict in new)}
    others = [each for each in source.verdicts if each.check not in replaced]
    return msgspec.structs.replace(source, verdicts=(*new, *others))


def _to_pin_verdict(verdict: Verdict) -> Verdict:
    """A bound key that signed an announcement is the pinned one."""
    evidence = {"key_id": verdict.evidence["key_id"], "via": verdict.evidence["bound_by"]}
    return msgspec.structs.replace(verdict, check=PIN_CHECK, evidence=evidence)


def _fail_if_revoked(verdict: Verdict, revoked: Sequence[BoundKey]) -> Verdict:
    if any(key.key.key_id == verdict.evidence.get("key_id") for key in revoked):
        return msgspec.structs.replace(verdict, state="failed", reason="the key that signed this was revoked")
    return verdict


def _to_message(dialect: str, document: bytes) -> JsonObject:
    """The document; a bare announced agent is wrapped into a message without a signature."""
    parsed = parse_object(document)
    if dialect == "announce" and ("agent" not in parsed or "agent_id" in parsed):
        return {"agent": parsed}
    return parsed


class Reverification(msgspec.Struct, frozen=True, kw_only=True):
    """A registration as it is stored, and with the verdicts of now."""

    stored: Registration
    now: Registration
    at: float


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
        stored = await self._reader.get(principal, key)
        now = self._clock.now()
        sources = recheck_sources(stored, await self._key_notes(stored.id), now)
        return Reverification(stored=stored, now=msgspec.structs.replace(stored, sources=sources), at=now)

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
                keys=(agent_id,),
                notes=ownership_notes((agent_id,)),
                decide=_update_verdicts(agent_id, self._clock.now()),
            )
            if (await self._store.execute(command)).outcome == "judged":
                changed.append(agent_id)
        return changed

    def _ids_of(self, name: str) -> Sequence[str]:
        known = self._catalog.resolve(announced_record_id(name)) or self._catalog.resolve(name)
        if known is not None and revocation_subject(known) == revocation_subject(name):
            return (known,)
        return [agent_id for agent_id in self._catalog.ids() if domain_of(agent_id) == name] if "." in name else ()


def _update_verdicts(agent_id: str, now: float) -> Rule:
    def decide(state: StoreState) -> Decision:
        current = state.registrations.get(agent_id)
        if current is None:
            return Decision(outcome="gone")
        after = msgspec.structs.replace(current, sources=recheck_sources(current, state.notes, now), changed_at=now)
        if _verdict_states(after) == _verdict_states(current):
            return Decision(outcome="unchanged", registration=current)
        change = RegistrationChange(type="updated", at=now, registration=after, before=current.scopes)
        entry = audit_reverification(after.id, after.etag, level_of(verdicts_of(after)), now)
        bindings = bindings_of(after, state.notes, now)
        return Decision(outcome="judged", change=change, audit=(entry,), notes=dump_bindings(bindings))

    return decide


def _verdict_states(registration: Registration) -> list[set[tuple[str, VerdictState]]]:
    return [states_of(source.verdicts) for source in registration.sources]
