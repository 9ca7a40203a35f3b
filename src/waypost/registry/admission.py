"""What a write must pass before its own rules: quota, names, revocations, signatures, announcement policy."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Protocol

import msgspec

from waypost import limits
from waypost.errors import (
    BadSignature,
    ConfusableName,
    InvalidDocument,
    InvalidKey,
    KeyConflict,
    OverQuota,
    QuotaExceeded,
    Replayed,
    Revoked,
    WaypostError,
)
from waypost.model.federation import peer_of
from waypost.model.json import JsonObject, parse_object
from waypost.model.principal import LAN_VIA, Principal
from waypost.model.registration import Registration, stored_bytes_of
from waypost.model.times import find_instant
from waypost.protocols.announce.messages import parse_minor
from waypost.rate_limit import RateLimiter
from waypost.registry import write_rules
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.catalog.catalog import Catalog, ConfusableNames
from waypost.registry.ports import AuditEntry, Clock, CommittedChange, Decision, Rule, StoreState
from waypost.registry.publication import PendingChange, Publication
from waypost.registry.trust_store import RegistryTrustStore, revoked_agent_note, revoked_key_note
from waypost.registry.verification import DocumentVerification, has_claims
from waypost.search.ranking.boosts import CONFUSABLE_NAME
from waypost.search.text.spam import lint_record
from waypost.trust.announce.admission import (
    FORK_REASON,
    AdmissionPolicy,
    AdmissionRequest,
    AdmissionResult,
    AnnouncementStamp,
    admit,
    revoked_error,
)
from waypost.trust.announce.signed_announcement import SignedAnnouncement, parse_signed_announcement
from waypost.trust.announce.trust_store import AgentPin, dump_pin, find_agent_id, load_pin, pin_note_key
from waypost.trust.keys.certificates import (
    check_validity_period,
    load_der_certificate,
    subject_alternative_names,
    verify_chain,
)

SHUTDOWN = "shutdown"

_URN = "urn:uuid:"


class CertificateChecker(Protocol):
    """Checks the chain, the validity period and the revocation of a certificate."""

    def names_of(self, der: bytes, now: float, *, chained: bool) -> tuple[str, ...]:
        """The names in a valid certificate; with `chained`, it must also lead to a known authority. Raises otherwise."""
        ...


class AnnouncementAdmission:
    """One announce document, parsed before the transaction."""

    def __init__(
        self,
        publication: Publication,
        policy: AdmissionPolicy,
        *,
        legacy: bool,
        certificates: CertificateChecker,
        now: float,
        latest: float,
    ):
        """Signed times are compared with `latest` (`Clock.latest`)."""
        message = _message(publication.document)
        agent: JsonObject = message["agent"]
        metadata = agent.get("metadata") or {}
        self._now = now
        self._latest = latest
        self._policy = policy
        self._publication = publication
        self._ends = metadata.get("__state") == SHUTDOWN
        announced = _read(message, legacy=legacy, lenient=not policy.gated)
        names: tuple[str, ...] = ()
        if announced.key is not None and announced.key.certificate is not None:
            names = certificates.names_of(announced.key.certificate, latest, chained=policy.mode == "ca")
        self._request = AdmissionRequest(
            agent_id=agent["agent_id"].lower(),
            stamp=AnnouncementStamp(
                digest=hashlib.sha256(announced.signing_input).hexdigest(),
                seq=publication.decoded.sequence,
                iat=find_instant(metadata.get("__iat")),
            ),
            key=announced.key,
            signature=announced.signature,
            previous_signature=announced.previous_signature,
            minor=parse_minor(message["protocol_version"]) if "protocol_version" in message else 0,
            names=names if policy.mode == "ca" else (),
            find_canonical_form=announced.find_canonical_form,
        )
        self._check_carried_id()

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes that the rule must see."""
        agent_id, key = self._request.agent_id, self._request.key
        names = (pin_note_key(agent_id), revoked_agent_note(agent_id))
        return names if key is None else (*names, revoked_key_note(key.key_id))

    def decide(self, publish: Callable[[Publication], Rule]) -> Rule:
        """`publish` makes the write rule of the publication with its verdicts."""

        def decide(state: StoreState) -> Decision:
            pin = load_pin(state.notes.get(pin_note_key(self._request.agent_id)))
            try:
                current = self._current(state)
                admitted = self._admit(pin, current, state)
            except WaypostError as error:
                alarm = self._alarm(error, pin)
                if alarm is None:
                    raise
                return Decision(outcome="refused", audit=(alarm,), refusal=error)
            rule = self._end(pin, admitted) if self._ends else publish(self._as_admitted(pin, admitted, current))
            decision = rule(self._with_rotated_key(state, admitted))
            is_over = decision.outcome in (
                write_rules.KEPT,
                write_rules.DISPLACED,
            )  # the announcement itself comes next
            return decision if is_over else self._with_pin(decision, pin, admitted)

        return decide

    # --- The rule --------------------------------------------------------------------------------

    def _current(self, state: StoreState) -> Registration | None:
        """The registration that would change. One that was announced under another id is refused."""
        current = write_rules.find_current(self._publication, state)
        source = current.source("announce") if current is not None else None
        if source is not None and source.id.lower() != self._request.agent_id:
            raise KeyConflict(
                "This record was announced under another agent_id.",
                path="$.agent.agent_id",
                hint="Announce it under that id, signed with the key that is pinned to it.",
                details={"reason": "other_key"},
            )
        return current

    def _admit(self, pin: AgentPin | None, current: Registration | None, state: StoreState) -> AdmissionResult:
        if revoked_agent_note(self._request.agent_id) in state.notes:
            raise revoked_error(f"The agent {self._request.agent_id} was revoked.", "$.agent.agent_id")
        if self._request.key is not None and revoked_key_note(self._request.key.key_id) in state.notes:
            raise revoked_error("The key of this announcement was revoked.", "$.agent.public_key")
        tombstone = state.tombstones.get(self._publication.decoded.record.id)
        withdrawn = current is None and tombstone is not None and tombstone.type == "withdrawn"
        policy = msgspec.structs.replace(self._policy, withdrawn=withdrawn) if withdrawn else self._policy
        return admit(self._request, pin, policy, self._latest)

    def _as_admitted(
        self, pin: AgentPin | None, admitted: AdmissionResult, current: Registration | None
    ) -> Publication:
        """The publication with its verdicts. If the same signed content is announced again, the unsigned rest is ignored: the
        stored document stays and only its lease is renewed."""
        publication = msgspec.structs.replace(
            self._publication,
            verdicts=(*self._publication.verdicts, *admitted.verdicts),
            is_news=admitted.pin is not None and self._request.stamp.seq is not None,
        )
        source = current.source("announce") if current is not None else None
        if source is None or pin is None or pin.digest != self._request.stamp.digest or admitted.event:
            return publication
        return msgspec.structs.replace(publication, document=source.document)

    def _with_rotated_key(self, state: StoreState, admitted: AdmissionResult) -> StoreState:
        """A key that the bound one has introduced (`previous_signature`) counts as bound in the same write."""
        if admitted.event != "rotate" or admitted.pin is None:
            return state
        notes = {**state.notes, pin_note_key(self._request.agent_id): dump_pin(admitted.pin)}
        return msgspec.structs.replace(state, notes=notes)

    def _end(self, pin: AgentPin | None, admitted: AdmissionResult) -> Rule:
        """P-19: a goodbye must be signed by the pinned key, with a new sequence number."""
        before = pin.find_key(admitted.key_id) if pin is not None and admitted.key_id is not None else None
        seq = self._request.stamp.seq
        if admitted.pin is None or seq is None or (before is not None and before.seq == seq):
            raise Replayed(
                "A goodbye must be signed by the key of the agent, with a higher __seq.",
                path="$.agent.metadata.__state",
                hint="Raise __seq and sign it again, or withdraw the agent with DELETE.",
                retry_after=30,
                details={"reason": "replay"},
            )
        record_id = self._publication.decoded.record.id
        return write_rules.withdraw(
            self._publication.principal, record_id, None, now=self._now, via=self._publication.via
        )

    def _with_pin(self, decision: Decision, pin: AgentPin | None, admitted: AdmissionResult) -> Decision:
        if admitted.pin is None or admitted.pin == pin:
            return decision
        notes: Mapping[str, bytes | None] = {
            **decision.notes,
            pin_note_key(self._request.agent_id): dump_pin(admitted.pin),
        }
        if not admitted.event:
            return msgspec.structs.replace(decision, notes=notes)
        entry = self._entry(admitted.event, "done", f"key {admitted.key_id}")
        return msgspec.structs.replace(decision, notes=notes, audit=(*decision.audit, entry))

    # --- Refusals --------------------------------------------------------------------------------

    def _alarm(self, error: WaypostError, pin: AgentPin | None) -> AuditEntry | None:
        """An audit entry for a refusal that an operator should see: another key, a fork, a revoked key in use, a missing
        signature where a key is pinned (C15)."""
        reason = str(error.details.get("reason", ""))
        is_pinned = pin is not None and len(pin.keys) > 0
        is_stripped = isinstance(error, BadSignature) and self._request.signature is None and is_pinned
        if not isinstance(error, KeyConflict | Revoked) and reason != FORK_REASON and not is_stripped:
            return None
        key = self._request.key
        return self._entry("refuse", reason, f"key {key.key_id}" if key is not None else "")

    def _entry(self, action: str, outcome: str, detail: str) -> AuditEntry:
        publication = self._publication
        return audit_entry_by(
            publication.principal,
            action,
            now=self._now,
            object=_URN + self._request.agent_id,
            outcome=outcome,
            via=publication.via,
            detail=detail,
        )

    def _check_carried_id(self) -> None:
        """A document may state its id in another dialect, but not the announced id of another agent."""
        carried = find_agent_id(self._publication.decoded.record.id)
        if carried is not None and carried != self._request.agent_id:
            raise InvalidDocument(
                "The announcement contains a record of another agent_id.",
                path="$.agent.agent_id",
                hint="Announce each agent under its own id.",
            )


def _message(document: bytes) -> JsonObject:
    """The message; a bare agent is wrapped into one."""
    message = parse_object(document)
    is_bare = "agent" not in message or "agent_id" in message
    return {"agent": message} if is_bare else message


def _read(message: JsonObject, *, legacy: bool, lenient: bool) -> SignedAnnouncement:
    """If no signature is given or required, an unreadable key is ignored: it is only a text then."""
    if not lenient or message.get("signature") is not None:
        return parse_signed_announcement(message, legacy=legacy)
    with suppress(InvalidKey):
        return parse_signed_announcement(message, legacy=legacy)
    bare = {name: value for name, value in message["agent"].items() if name != "public_key"}
    return parse_signed_announcement({**message, "agent": bare}, legacy=legacy)


_NO_LIMIT = nullcontext()


class OwnerQuota:
    """How many agents an owner may have; 0 is no limit, and admins have none. The process that writes counts the agents in
    the catalog and those that are being written."""

    def __init__(self, catalog: Catalog, limit: int) -> None:
        self._catalog = catalog
        self._limit = limit
        self._reserved: dict[str, set[str]] = {}  # by owner, ids of new agents that are being written

    def reserve(self, principal: Principal, keys: Sequence[str]) -> AbstractContextManager[None]:
        """Count the agent of these names while it is written, or refuse. An agent that exists needs no reservation."""
        return self._reserve(principal, keys) if self._limit and not principal.is_admin else _NO_LIMIT

    @contextmanager
    def _reserve(self, principal: Principal, keys: Sequence[str]) -> Iterator[None]:
        if any(self._catalog.resolve(key) is not None for key in keys):
            yield
            return
        owner, agent_id = principal.subject or "", keys[0]
        reserved = self._reserved.setdefault(owner, set())
        self._check(owner, reserved - {agent_id})
        reserved.add(agent_id)
        try:
            yield
        finally:
            reserved.discard(agent_id)
            if not reserved:
                self._reserved.pop(owner, None)

    def _check(self, owner: str, reserved: set[str]) -> None:
        uncommitted = sum(not self._catalog.is_alive(agent_id) for agent_id in reserved)
        if self._catalog.count_of_owner(owner) + uncommitted >= self._limit:
            raise OverQuota(
                f"An owner may have {self._limit} agents here.",
                path="owner",
                hint="Withdraw some, or ask the operator for a higher agents_per_owner.",
            )


_RECORD_CHANGES = ("registered", "updated")  # the events that carry a record


class StoredBytesQuota:
    """How many bytes the documents of one owner's agents may have, and those of one peer's records; 0 is no limit, and admins
    have none. A write that makes no record larger always passes.

    The catalog counts what is committed. Writes that share a commit are decided one after the other before it, so those of the
    open transaction are counted here, by the revisions that they expect. Nodes of a cluster count a write of another node once
    they have it."""

    def __init__(
        self, catalog: Catalog, clock: Clock, committed: Callable[[], int], *, per_owner: int, per_peer: int
    ) -> None:
        """`committed` returns the last revision that the catalog has."""
        self._catalog = catalog
        self._clock = clock
        self._committed = committed
        self._per_owner = per_owner
        self._per_peer = per_peer
        self._open: deque[tuple[int, str, int]] = deque()  # expected revision, owner, growth; in the order of revisions
        self._open_growth: Counter[str] = Counter()  # by owner

    def limit(self, principal: Principal, decide: Rule) -> Rule:
        """The rule, but it refuses a record that would make the documents of its owner too large."""

        def decide_within_quota(state: StoreState) -> Decision:
            decision = decide(state)
            change = decision.change
            after = None if change is None else change.registration
            if change is None or after is None or change.type not in _RECORD_CHANGES:
                return decision
            self._forget_closed(state.revision)
            growth = stored_bytes_of(after) - self._size_before(after, state)
            if growth > 0 and not principal.is_admin:
                self._check(after.owner, growth)
            self._open.append((state.revision + 1, after.owner, growth))
            self._open_growth[after.owner] += growth
            return decision

        return decide_within_quota if self._per_owner or self._per_peer else decide

    def _size_before(self, after: Registration, state: StoreState) -> int:
        """What the owner is counted for already. An expired agent, which the store may still have, is not."""
        before = state.registrations.get(after.id)
        is_counted = before is not None and before.owner == after.owner and not before.has_expired(self._clock.now())
        return stored_bytes_of(before) if before is not None and is_counted else 0

    def _forget_closed(self, revision: int) -> None:
        """Forget writes that are committed by now, and those beyond the revision of the transaction, which were lost."""
        committed = self._committed()
        while self._open and self._open[0][0] <= committed:
            self._forget(*self._open.popleft())
        while self._open and self._open[-1][0] > revision:
            self._forget(*self._open.pop())

    def _forget(self, _: int, owner: str, growth: int) -> None:
        self._open_growth[owner] -= growth
        if not self._open_growth[owner]:
            del self._open_growth[owner]

    def _check(self, owner: str, growth: int) -> None:
        is_peer = peer_of(owner) is not None
        most = self._per_peer if is_peer else self._per_owner
        stored = self._catalog.stored_bytes_of_owner(owner) + self._open_growth[owner]
        if not most or stored + growth <= most:
            return
        setting = "stored_bytes_per_peer" if is_peer else "stored_bytes_per_owner"
        raise OverQuota(
            f"The documents of one owner may have {most} bytes here; they have {stored}, and this one adds {growth}.",
            path="owner",
            hint=f"Withdraw agents, send smaller documents, or ask the operator for a higher {setting}.",
            details={"reason": "stored_bytes"},
        )


class ByteQuota:
    """How many bytes of new and changed records an owner may make in an hour; 0 is no limit, and admins have none. Each of them
    is stored in the change log. Renewals and withdrawals go on: they add little."""

    def __init__(self, hourly_bytes: int, clock: Clock) -> None:
        self._hourly_bytes = hourly_bytes
        self._clock = clock
        self._limiter: RateLimiter[str] = RateLimiter(hourly_bytes / 3600, hourly_bytes, max_keys=limits.RATE_CALLERS)

    def charge(self, committed: CommittedChange) -> None:
        """Count a change that was committed. The last one may exceed the quota."""
        event = committed.event
        if self._hourly_bytes and event.type in _RECORD_CHANGES:
            self._limiter.charge(event.owner, self._clock.now(), len(event.record or b""))

    def limit(self, principal: Principal, decide: Rule) -> Rule:
        """The rule; if the quota is used up, one that refuses to change a record."""
        owner, now = principal.subject or "anonymous", self._clock.now()
        if not self._hourly_bytes or principal.is_admin or self._limiter.available(owner, now) > 0:
            return decide
        error = QuotaExceeded(
            f"The records of an owner may change by {self._hourly_bytes} bytes an hour.",
            path="owner",
            hint="Change less often, send smaller documents, or ask the operator for a higher hourly_bytes_per_owner.",
            retry_after=max(1, math.ceil(self._limiter.wait_seconds(owner, now))),
        )

        def decide_within_quota(state: StoreState) -> Decision:
            decision = decide(state)
            if decision.change is not None and decision.change.type in _RECORD_CHANGES:
                raise error
            return decision

        return decide_within_quota


def publication_warnings(registration: Registration, names: ConfusableNames) -> Iterator[str]:
    """Warnings about an accepted document: texts that address a reader or a model, a name that looks like another's."""
    record = registration.record
    yield from map(str, lint_record(record))
    similar = names.find(record.name, registration.owner)
    if similar is not None:
        yield (
            f"{CONFUSABLE_NAME}: $.name could be mistaken for {similar!r}, a verified agent of another owner; "
            "it ranks lower until it is verified itself"
        )


def check_name(publication: Publication, catalog: Catalog) -> None:
    """Refuse a new name that looks like that of another owner's verified agent. Admins may use it."""
    name, principal = publication.decoded.record.name, publication.principal
    agent_id = catalog.resolve(publication.decoded.record.id)
    before = catalog.find(agent_id) if agent_id is not None else None
    similar = None if principal.is_admin else catalog.confusable_names.find(name, principal.subject or "anonymous")
    if similar is not None and (before is None or before.name != name):
        raise ConfusableName(
            f"The name could be mistaken for {similar!r}, a verified agent of another owner.",
            path="$.name",
            hint="Choose another name, or ask the operator (confusable_names is refuse).",
        )


def pending_warning(change: PendingChange) -> str:
    parts = ", ".join(each.part for each in change.differences)
    return (
        f"held: the agent is verified and this would change its {parts}, so readers still see the previous version; "
        f"sign it with the agent's key, or confirm it within {limits.PENDING_CHANGE_SECONDS // 86_400} days"
    )


_UNAUTHENTICATED = ("open", LAN_VIA)  # principals that showed no credential


class AnnouncementOptions(msgspec.Struct, frozen=True, kw_only=True):
    trust_mode: str = "allowlist-tofu"
    unsigned: str = "reject"
    bind_subject: bool = False
    legacy_canon: bool = False


class SelfSignedCertificates:
    """Without configured authorities, a certificate is accepted for its own key within its validity period."""

    def names_of(self, der: bytes, now: float, *, chained: bool) -> tuple[str, ...]:
        certificate = load_der_certificate(der)
        check_validity_period(certificate, now)
        if chained:
            verify_chain(certificate, (), now)
        return subject_alternative_names(certificate)


class AdmissionControl:
    """Revocations, signatures and the announcement policy. An unsigned document of another dialect costs one lookup in an
    empty set."""

    def __init__(
        self,
        trust: RegistryTrustStore,
        options: AnnouncementOptions,
        certificates: CertificateChecker,
        resolve: Callable[[str], str | None],
        clock: Clock,
    ) -> None:
        """`resolve` returns the canonical id of an id or an alias."""
        self._trust = trust
        self._resolve = resolve
        self._options = options
        self._certificates = certificates
        self._clock = clock

    @property
    def pinned(self) -> Collection[str] | None:
        """The names of all pins, if they are known."""
        return self._trust.pinned

    def rule(
        self, publication: Publication, publish: Callable[[Publication], Rule], now: float
    ) -> tuple[tuple[str, ...], Rule]:
        """The notes that the rule must see, and the rule of the write."""
        if publication.dialect != "announce":
            verification = self.verification(publication, now)
            if verification is None:
                return (), publish(publication)
            return verification.notes, verification.decide(publish)
        admission = AnnouncementAdmission(
            publication,
            self._policy(publication.principal, gated=publication.gated),
            legacy=self._options.legacy_canon,
            certificates=self._certificates,
            now=now,
            latest=self._clock.latest(),
        )
        return admission.notes, admission.decide(publish)

    def verification(self, publication: Publication, now: float) -> DocumentVerification | None:
        """The check of a document that is no announcement; None if it has no signature. Raises if its agent was revoked."""
        decoded = publication.decoded
        self._trust.check_id(decoded.record.id, decoded.source_id, *decoded.aliases)
        if not has_claims(publication):
            return None
        return DocumentVerification(publication, self._canonical(publication), self._trust.revoked_keys, now)

    def _canonical(self, publication: Publication) -> str:
        """The id of the agent that a document would change."""
        decoded = publication.decoded
        names = (decoded.record.id, decoded.source_id, *decoded.aliases)
        return next((found for name in names if (found := self._resolve(name)) is not None), decoded.record.id)

    def _policy(self, principal: Principal, *, gated: bool) -> AdmissionPolicy:
        return AdmissionPolicy(
            mode=self._options.trust_mode,
            unsigned=self._options.unsigned,
            bind_subject=self._options.bind_subject and principal.via != LAN_VIA,  # it is about tokens
            rules=self._trust.rules,
            revoked_keys=self._trust.revoked_keys,
            revoked_agents=self._trust.revoked_agents,
            gated=gated,
            authenticated=not principal.is_anonymous and principal.via not in _UNAUTHENTICATED,
            admin=principal.is_admin,
            subject=principal.subject,
        )
