"""Who owns an id: one rule for every API, the LAN, the bus, imports and peers.

First come, first served holds only among equals. An id is reserved by a key that is bound to it or to its domain, and by a
proven domain. `decide_ownership` is pure: the publication with its verdicts, the current registration and the notes of the
transaction go in; what the publisher may do comes out, or an OwnerConflict. It is called inside the transaction that writes.
A document from elsewhere (a transport, an import, a peer) is a publication like any other, by a principal of its own.

A signature names no subject, so a copy of a signed document is no proof of its sender. If a subject has proven the id before,
another one must show a document that is newer than the last one, and can change the record with signed documents only: it
may have got that document elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Literal

import msgspec

from waypost import limits
from waypost.errors import OwnerConflict
from waypost.model.federation import peer_of
from waypost.model.json import parse_object
from waypost.model.names import canonical_id, domain_of, stored_spellings
from waypost.model.principal import LAN_SUBJECT
from waypost.model.registration import Registration, SourceDocument, verdicts_of
from waypost.model.resolution import VERIFIED_LEVELS
from waypost.model.times import find_instant
from waypost.model.verdict import CONSISTENT, SIGNED, Verdict, is_signed, level_of
from waypost.model.versions import FreshnessMarks, find_staleness
from waypost.registry.publication import DOMAIN_VIA, Publication
from waypost.trust.announce.trust_store import PinnedKey, decode_pin, find_agent_id, pin_note_key
from waypost.trust.checks.adp import KEY_CHECK, PROOF_CHECK
from waypost.trust.checks.bound_key import BoundKey
from waypost.trust.checks.signed_documents import ARD_CHECK
from waypost.trust.domain_claims import OwnershipClaim, claims_key, load_claims, parent_domains
from waypost.trust.keys.public_key import PublicKey, parse_der

_SERVED_LEVELS = frozenset(VERIFIED_LEVELS) - CONSISTENT  # a record in the DNS alone may be forged on the way
_NAME_PROOFS = frozenset((KEY_CHECK, PROOF_CHECK, ARD_CHECK))
_DOMAIN_CHECK = "domain"
_RESERVING = (pin_note_key(""), claims_key(""))  # beginnings of the names of notes
BOUND_REASON = "bound"  # error detail: a key or a proven domain reserves the id

OwnershipAction = Literal["create", "change", "adopt", "displace"]


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher may do: create the id, change its record, become the owner of the record (`adopt`), or put its own
    record in place of another (`displace`). `proof` says what it has shown."""

    action: OwnershipAction
    proof: str = ""  # a key id, a domain, or empty


# --- Names ----------------------------------------------------------------------------------------


def names_of(publication: Publication) -> tuple[str, ...]:
    """Every name that a document claims."""
    decoded = publication.decoded
    return tuple(dict.fromkeys((decoded.record.id, decoded.source_id, *decoded.aliases)))


def with_spellings(names: Iterable[str]) -> tuple[str, ...]:
    """The names, and other spellings of them that are the same id."""
    names = tuple(names)
    if not any(map(stored_spellings, names)):  # nearly always
        return names
    return tuple(dict.fromkeys(each for name in names for each in (name, *stored_spellings(name))))


def ownership_notes(names: Iterable[str], pinned: Collection[str] | None = None) -> tuple[str, ...]:
    """The notes about keys that the rule must see. `pinned` has the names of all pins that exist, if they are known: most ids
    have none, and need no lookup."""
    found: dict[str, None] = {}
    for name in names:
        keys = [note for note in key_notes(name) if pinned is None or note in pinned]
        if keys:
            found.update(dict.fromkeys((*keys, binding_note_name(name))))
    return tuple(found)


# --- Bound keys -----------------------------------------------------------------------------------


@lru_cache(limits.BOUND_KEY_CACHE)
def key_notes(agent_id: str) -> tuple[str, ...]:
    """The notes that may hold keys of this agent: that of its id in any spelling, and that of the domain of its id."""
    domain = domain_of(agent_id)
    own = find_agent_id(agent_id)
    names = (own, *stored_spellings(own)) if own is not None else (agent_id, canonical_id(agent_id))
    return tuple(dict.fromkeys(map(pin_note_key, names if domain is None else (*names, domain))))


def bound_keys(agent_id: str, notes: Mapping[str, bytes], now: float) -> tuple[list[BoundKey], list[BoundKey]]:
    """The keys that are bound to an agent, and its revoked keys."""
    keys: list[BoundKey] = []
    revoked: list[BoundKey] = []
    for name in key_notes(agent_id):
        note = notes.get(name)
        if note is None:
            continue
        owner, pinned = _pinned_keys(note)
        for pinned_key, key in pinned:
            state = pinned_key.state_at(now)
            if state == "retired":
                continue
            own, via = owner == agent_id, pinned_key.via
            bound = BoundKey(key, via if own else f"{via}:{owner}", own=own and via == "trust")
            (revoked if state == "revoked" else keys).append(bound)
    return keys, revoked


@lru_cache(limits.BOUND_KEY_CACHE)
def _pinned_keys(note: bytes) -> tuple[str, tuple[tuple[PinnedKey, PublicKey], ...]]:
    """The parsed keys of a note. The cache key is the note itself, so an entry is never outdated."""
    pin = decode_pin(note)
    return pin.agent_id, tuple((key, parse_der(key.spki)) for key in pin.keys)


# --- Bindings -------------------------------------------------------------------------------------


class KeyBinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The subject that last proved an id with a bound key, and how new its document was. Stored as a note, which outlives the
    lease of the agent."""

    id: str
    subject: str  # empty after an admin withdrew an adopted agent
    key_id: str
    at: float
    adopted: bool = False  # another subject had proven it before: changes must be signed
    sequence: int | None = None
    updated_at: float | None = None
    version: str | None = None

    @property
    def marks(self) -> FreshnessMarks:
        return FreshnessMarks(self.sequence, self.updated_at, self.version)


_BINDING_PREFIX = "bound:"
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(KeyBinding)


def binding_note_name(agent_id: str) -> str:
    return f"{_BINDING_PREFIX}{canonical_id(agent_id)}"


def load_binding(data: bytes | None) -> KeyBinding | None:
    return None if data is None else _decoder.decode(data)


def make_bindings(publication: Publication, notes: Mapping[str, bytes], now: float) -> list[KeyBinding]:
    """The bindings that an accepted publication makes: of each of its names to which its key is bound. Those that are
    stored already are left out."""
    key_id = signing_key_id(publication.verdicts)
    if key_id is None:
        return []
    subject, marks = publication.principal.subject or "anonymous", marks_of(publication)
    found = []
    for name in dict.fromkeys(map(canonical_id, names_of(publication))):
        is_announced = publication.dialect == "announce" and find_agent_id(name) is not None
        if not is_announced and key_id not in _key_ids(bound_keys(name, notes, now)[0]):
            continue
        known = load_binding(notes.get(binding_note_name(name)))
        made = KeyBinding(
            id=name,
            subject=subject,
            key_id=key_id,
            at=now,
            adopted=_is_adopted(known, subject),
            sequence=None if is_announced else marks.sequence,  # that of an announcement is stored in its pin
            updated_at=None if is_announced else marks.updated_at,
            version=None if is_announced else marks.version,
        )
        if known is None or msgspec.structs.replace(known, at=now) != made:
            found.append(made)
    return found


def _is_adopted(known: KeyBinding | None, subject: str) -> bool:
    if known is None or known.subject in ("", LAN_SUBJECT):  # on the LAN only the key counts
        return False
    return known.adopted if known.subject == subject else True


def release_binding(agent_id: str, notes: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """An admin who withdraws an adopted agent settles whose it is: the next newer signed document decides."""
    known = load_binding(notes.get(binding_note_name(agent_id)))
    if known is None or not known.adopted:
        return {}
    return dump_bindings([msgspec.structs.replace(known, subject="", adopted=False)])


def dump_bindings(bindings: Iterable[KeyBinding]) -> dict[str, bytes | None]:
    return {binding_note_name(each.id): _encode(each) for each in bindings}


def bindings_of(registration: Registration, notes: Mapping[str, bytes], now: float) -> list[KeyBinding]:
    """The bindings that follow from the verified documents of a registration: after a key was bound to it later, or of data
    that was stored before bindings were."""
    found = []
    for source in reversed(registration.sources):
        key_id = signing_key_id(source.verdicts)
        if key_id is not None and key_id in _key_ids(bound_keys(registration.id, notes, now)[0]):
            found.append(_binding_of(registration.id, source, key_id))
    return found[-1:]


def _binding_of(agent_id: str, source: SourceDocument, key_id: str) -> KeyBinding:
    return KeyBinding(
        id=canonical_id(agent_id),
        subject=source.subject,
        key_id=key_id,
        at=source.received_at,
        sequence=source.sequence,
        updated_at=source.updated_at,
        version=source.version,
    )


def signing_key_id(verdicts: Iterable[Verdict]) -> str | None:
    """The key that signed the whole document, if the checks passed."""
    known = tuple(verdicts)
    if not is_signed(known):
        return None
    found = (each.evidence.get("key_id") for each in known if each.check in SIGNED and each.state == "passed")
    return next((key_id for key_id in found if isinstance(key_id, str)), None)


def _key_ids(keys: Iterable[BoundKey]) -> set[str]:
    return {bound.key.key_id for bound in keys}


# --- Proven domains -------------------------------------------------------------------------------


def domain_notes(names: Iterable[str], is_claimed: Mapping[str, object]) -> tuple[str, ...]:
    """The notes with claims of the domains that these names contain. `is_claimed` has the domains with claims. None is left
    out: a name whose claims the rule does not see would be free."""
    if not is_claimed:
        return ()
    domains = dict.fromkeys(domain for name in names if (domain := domain_of(name)) is not None)
    parents = dict.fromkeys(parent for domain in domains for parent in parent_domains(domain))
    return tuple(claims_key(parent) for parent in parents if parent in is_claimed)


def find_domain_claims(name: str, notes: Mapping[str, bytes]) -> list[OwnershipClaim]:
    """The proofs of the domain in a name, or by DNS of a parent of it."""
    domain = domain_of(name)
    if domain is None:
        return []
    return [
        claim
        for parent in parent_domains(domain)
        if (note := notes.get(claims_key(parent))) is not None
        for claim in load_claims(note).claims.values()
        if claim.covers(domain)
    ]


# --- The rule -------------------------------------------------------------------------------------


class _NameStanding:
    """One name of a publication: what reserves it, and what the publisher has shown for it."""

    def __init__(
        self,
        name: str,
        publication: Publication,
        notes: Mapping[str, bytes],
        now: float,
        known: Registration | None,
    ) -> None:
        """`known` is the registration of the name, also if its lease has ended."""
        subject = publication.principal.subject or "anonymous"
        keys, revoked = bound_keys(name, notes, now)
        derived = (
            bindings_of(known, notes, now) if known is not None and canonical_id(known.id) == canonical_id(name) else []
        )
        binding = load_binding(notes.get(binding_note_name(name))) or next(iter(derived), None)
        claims = find_domain_claims(name, notes)
        key_id = signing_key_id(publication.verdicts)
        key_ids = _key_ids(keys)
        self.name = name
        self.is_bound = bool(keys or revoked)
        self.binding = binding if binding is not None and binding.key_id in key_ids else None
        self.domain_owners = frozenset(claim.subject for claim in claims)
        self.is_domain_proven = any(claim.domain == domain_of(name) for claim in claims)
        self.is_signed = key_id is not None and key_id in key_ids
        self.key_id = key_id or ""
        self.is_newer = self.binding is None or _is_newer(publication, self.binding, notes)
        self.was_proven = self.binding is not None and self.binding.subject == subject and not self.binding.adopted
        self.owns_domain = subject in self.domain_owners
        self.is_vouched = _is_vouched(publication, name, key_ids)

    @property
    def is_reserved(self) -> bool:
        """A subdomain of a proven domain may be used by others until the owner of the domain takes it over."""
        return self.is_bound or self.is_domain_proven

    def is_open(self, *, is_admin: bool) -> bool:
        """Whether the publisher may use the name if nobody does. An admin may register for a proven domain, not for a key."""
        if not self.is_reserved or self.proof or self.is_vouched:
            return True
        return is_admin and not self.is_bound

    @property
    def proof(self) -> str:
        """What proves that the publisher may have this name; empty if nothing does."""
        if self.was_proven or (self.is_signed and self.is_newer):
            return self.key_id or (self.binding.key_id if self.binding is not None else "")
        return domain_of(self.name) or "" if self.owns_domain else ""

    def is_proven_holder(self, owner: str) -> bool:
        """Whether the owner of a record has proven this name."""
        return owner in self.domain_owners or (self.binding is not None and self.binding.subject == owner)


def decide_ownership(
    publication: Publication,
    current: Registration | None,
    expired: Registration | None,
    notes: Mapping[str, bytes],
    now: float,
) -> Ownership:
    """`current` is the live registration that the publication would change, `expired` one whose lease has ended."""
    if current is not None and peer_of(current.owner) is not None:
        _check_reserved(
            [_NameStanding(name, publication, notes, now, None) for name in names_of(publication)], publication
        )
        return Ownership(action="displace", proof="a local registration")  # a copy makes room for the agent itself
    if not any(name.startswith(_RESERVING) for name in notes):  # nearly always: all are equal
        return _decide_among_equals(publication, current)
    standings = [_NameStanding(name, publication, notes, now, current or expired) for name in names_of(publication)]
    own = standings[0]
    if current is None:
        _check_reserved(standings, publication)
        return Ownership(action="create", proof=own.proof)
    holder = _NameStanding(current.id, publication, notes, now, current)
    if publication.principal.subject == current.owner:
        _check_owner([*standings, holder], current, publication)
        return Ownership(action="change")
    if publication.gated and current.owner == LAN_SUBJECT:  # the same key, which was checked
        _check_owner([*standings, holder], current, publication)  # it may carry the id of another
        return Ownership(action="adopt" if not publication.principal.is_admin else "change", proof=own.proof)
    return _decide_foreign(publication, standings, current, holder)


def _decide_among_equals(publication: Publication, current: Registration | None) -> Ownership:
    principal = publication.principal
    if current is None:
        return Ownership(action="create")
    if principal.subject == current.owner or principal.is_admin:
        return Ownership(action="change")
    if publication.gated and current.owner == LAN_SUBJECT:
        return Ownership(action="adopt")
    raise _foreign_error()


def _check_reserved(standings: Iterable[_NameStanding], publication: Publication) -> None:
    for each in standings:
        if not each.is_open(is_admin=publication.principal.is_admin):
            raise reserved_error(each.name, publication)


def _check_owner(standings: Iterable[_NameStanding], current: Registration, publication: Publication) -> None:
    """An owner that has not proven its id cannot change it once a key is bound to it. A domain that another subject has
    proven does not end what exists: its owner may take it over."""
    held = {current.id, *current.aliases}
    for each in standings:
        is_kept = each.is_signed or (each.name in held and not each.is_bound)
        if not is_kept and not each.is_open(is_admin=publication.principal.is_admin):
            raise reserved_error(each.name, publication)


def _decide_foreign(
    publication: Publication,
    standings: list[_NameStanding],
    current: Registration,
    holder: _NameStanding,
) -> Ownership:
    """`holder` is the standing of the id of the current record, which the publication may know by an alias only."""
    is_admin = publication.principal.is_admin
    held = {canonical_id(name) for name in (current.id, *current.aliases)}
    shared = next((each for each in standings if canonical_id(each.name) in held), standings[0])
    is_proven_holder = holder.is_proven_holder(current.owner) or shared.is_proven_holder(current.owner)
    if shared.proof or (shared.is_vouched and shared.is_bound and level_of(verdicts_of(current)) != "verified"):
        _check_reserved(standings, publication)
        if not is_proven_holder:
            return Ownership(action="displace", proof=shared.proof or domain_of(shared.name) or "")
        if shared.is_signed and shared.is_newer and publication.principal.subject != LAN_SUBJECT:
            return Ownership(action="change" if is_admin else "adopt", proof=shared.key_id)
    if is_admin and all(each.is_open(is_admin=True) for each in (holder, *standings)):
        return Ownership(action="change")
    if is_proven_holder or shared.is_reserved:
        raise reserved_error(shared.name, publication)
    raise _foreign_error()


def _foreign_error() -> OwnerConflict:
    return OwnerConflict(
        "This id belongs to another owner.",
        path="$.id",
        hint="Choose another id, or ask the owner to change the agent.",
    )


def reserved_error(name: str, publication: Publication) -> OwnerConflict:
    domain = domain_of(name)
    prove = f" or prove {domain}" if domain is not None else ""
    hint = f"Sign a newer document with the key that is bound to this id{prove}, or choose another id."
    if publication.principal.is_admin:
        hint += " An admin may withdraw the agent."
    return OwnerConflict(
        "This id is reserved for its proven owner.", path="$.id", hint=hint, details={"reason": BOUND_REASON}
    )


def _is_newer(publication: Publication, binding: KeyBinding, notes: Mapping[str, bytes]) -> bool:
    """Whether a signed document is newer than the last one that proved the id. A copy of that one is not."""
    if publication.dialect == "announce":
        return _is_newer_announcement(publication, binding, notes)
    return find_staleness(binding.marks, marks_of(publication)) is not None


def _is_newer_announcement(publication: Publication, binding: KeyBinding, notes: Mapping[str, bytes]) -> bool:
    sequence = publication.decoded.sequence
    note = notes.get(pin_note_key(find_agent_id(binding.id) or binding.id))
    if sequence is None or note is None:
        return False
    key = decode_pin(note).find_key(binding.key_id)
    return key is None or key.seq is None or sequence > key.seq


def _is_vouched(publication: Publication, name: str, key_ids: Collection[str]) -> bool:
    """Whether the domain or the key vouches for a document without proving its sender.

    The service fetched it from the domain itself, and more than a record in the DNS confirms it. Or it names a bound key, or
    has the proof of one over the name only (ADP, ARD): anybody can copy that, so each of its endpoints must be in the domain
    of the name, or be the relay of this service, which admits nobody to a conversation without the key. So a copy leads
    nobody astray.
    """
    domain = domain_of(name)
    if domain is None or level_of(publication.verdicts) == "failed":
        return False
    passed = [each for each in publication.verdicts if each.state == "passed"]
    if publication.via == DOMAIN_VIA and any(each.check in _SERVED_LEVELS for each in passed):
        return True
    has_key = any(each.check in _NAME_PROOFS and each.evidence.get("key_id") in key_ids for each in passed)
    return has_key and all(is_inside(url, domain) or url == publication.relay_url for url in _endpoints_of(publication))


def _endpoints_of(publication: Publication) -> list[str]:
    """The endpoints of a document; an ADP document has some that are no bindings."""
    found = [binding.endpoint for binding in publication.decoded.record.bindings]
    if publication.dialect != "adp":
        return found
    document = publication.decoded.parsed or parse_object(publication.document)
    stated = document.get("endpoints")
    return [*found, *(url for url in stated.values() if isinstance(url, str))] if isinstance(stated, dict) else found


def is_inside(url: str, domain: str) -> bool:
    """Whether a URL leads to a domain or a subdomain of it."""
    host = domain_of(url)
    return host is not None and (host == domain or host.endswith(f".{domain}"))


def marks_of(publication: Publication) -> FreshnessMarks:
    record = publication.decoded.record
    return FreshnessMarks(publication.decoded.sequence, find_instant(record.updated_at), record.version)


# --- Routing --------------------------------------------------------------------------------------


def is_verified_for_domain(registration: Registration, domain: str) -> bool:
    """Whether a key or a domain vouches for a record whose id names this domain. An announcement proves a UUID only."""
    verdicts = [each for source in registration.sources if source.dialect != "announce" for each in source.verdicts]
    is_failed = level_of(verdicts_of(registration)) == "failed"
    return domain_of(registration.id) == domain and not is_failed and level_of(verdicts) == "verified"


def speaks_for_domain(registration: Registration, domain: str) -> bool:
    """Whether the owner of a record may act for `agent:{domain}`: it has proven the domain, or has signed a document with a key
    that is bound to the id."""
    if not is_verified_for_domain(registration, domain):
        return False
    is_proven = any(each.check == _DOMAIN_CHECK and each.state == "passed" for each in verdicts_of(registration))
    signed = [source for source in registration.sources if signing_key_id(source.verdicts) is not None]
    return is_proven or any(source.dialect != "announce" and source.subject == registration.owner for source in signed)
