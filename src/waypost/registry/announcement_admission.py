"""Announcements on their way into the registry: what is read off the document, and the decision that joins the rules of
trust (`trust/announce/admission.py`) with those of every write (`decisions.py`), in one transaction.

An announce document that comes in through another face is a registration like any other, but the keys that are bound and
those that are revoked bind it too, and a signature that it carries must hold (ANN-3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

import msgspec

from waypost.errors import BadSignature, InvalidDocument, InvalidKey, KeyConflict, Replayed, Revoked, WaypostError
from waypost.model.json import JsonObject, parse_object
from waypost.model.registration import Registration
from waypost.model.times import find_instant
from waypost.protocols.announce.messages import parse_minor
from waypost.registry import write_rules
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.ports import AuditEntry, Decision, StoreState
from waypost.registry.publication import Publication
from waypost.trust.announce.admission import (
    FORK_REASON,
    AdmissionPolicy,
    AdmissionRequest,
    AdmissionResult,
    AnnouncementStamp,
    admit,
    revoked_error,
)
from waypost.trust.announce.allow_list import find_agent_id
from waypost.trust.announce.key_pins import AgentPin, dump_pin, load_pin, pin_note_key
from waypost.trust.announce.signed_announcement import SignedAnnouncement, parse_signed_announcement

SHUTDOWN = "shutdown"
_URN = "urn:uuid:"
Decide = Callable[[StoreState], Decision]


class CertificateChecker(Protocol):
    """Who says what a certificate is worth: its chain, its dates, its revocation."""

    def names_of(self, der: bytes, now: float, *, chained: bool) -> tuple[str, ...]:
        """The names in a certificate that is in force; with `chained`, only of one that a known authority signed.
        Raises what is wrong with it."""
        ...


class AnnouncementAdmission:
    """One announce document, read, and ready to be decided on."""

    def __init__(
        self,
        publication: Publication,
        terms: AdmissionPolicy,
        *,
        legacy: bool,
        certificates: CertificateChecker,
        now: float,
    ):
        message = _message(publication.document)
        agent: JsonObject = message["agent"]
        metadata = agent.get("metadata") or {}
        self._now = now
        self._terms = terms
        self._publication = publication
        self._ends = metadata.get("__state") == SHUTDOWN
        announced = _read(message, legacy=legacy, lenient=not terms.gated)
        names: tuple[str, ...] = ()
        if announced.key is not None and announced.key.certificate is not None:
            names = certificates.names_of(announced.key.certificate, now, chained=terms.mode == "ca")
        self._said = AdmissionRequest(
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
            names=names if terms.mode == "ca" else (),
            find_canonical_form=announced.find_canonical_form,
        )
        self._check_carried_id()

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes that the decision must see."""
        agent_id, key = self._said.agent_id, self._said.key
        names = (pin_note_key(agent_id), revoked_agent_note(agent_id))
        return names if key is None else (*names, revoked_key_note(key.key_id))

    def decide(self, publish: Callable[[Publication], Decide]) -> Decide:
        """`publish` makes the rule of a write out of the publication with its verdicts."""

        def decide(held: StoreState) -> Decision:
            pin = load_pin(held.notes.get(pin_note_key(self._said.agent_id)))
            try:
                current = self._current(held)
                admitted = self._admit(pin, current, held)
            except WaypostError as error:
                alarm = self._alarm(error, pin)
                if alarm is None:
                    raise
                return Decision(outcome="refused", audit=(alarm,), refusal=error)
            rule = self._end(pin, admitted) if self._ends else publish(self._as_admitted(pin, admitted, current))
            return self._with_pin(rule(held), pin, admitted)

        return decide

    # --- Deciding --------------------------------------------------------------------------------

    def _current(self, held: StoreState) -> Registration | None:
        """The record that would change. One that another announced id stands behind is not this one's to change."""
        current = write_rules.find_current(self._publication, held)
        source = current.source("announce") if current is not None else None
        if source is not None and source.id.lower() != self._said.agent_id:
            raise KeyConflict(
                "This record was announced under another agent_id.",
                path="$.agent.agent_id",
                hint="Announce it under that id, signed with the key that is bound to it.",
                details={"reason": "other_key"},
            )
        return current

    def _admit(self, pin: AgentPin | None, current: Registration | None, held: StoreState) -> AdmissionResult:
        if revoked_agent_note(self._said.agent_id) in held.notes:
            raise revoked_error(f"The agent {self._said.agent_id} was revoked.", "$.agent.agent_id")
        if self._said.key is not None and revoked_key_note(self._said.key.key_id) in held.notes:
            raise revoked_error("The key of this announcement was revoked.", "$.agent.public_key")
        gone = held.tombstones.get(self._publication.decoded.record.id)
        withdrawn = current is None and gone is not None and gone.type == "withdrawn"
        terms = msgspec.structs.replace(self._terms, withdrawn=withdrawn) if withdrawn else self._terms
        return admit(self._said, pin, terms, self._now)

    def _as_admitted(
        self, pin: AgentPin | None, admitted: AdmissionResult, current: Registration | None
    ) -> Publication:
        """With verdicts; and where the same content is announced again, whatever stands unsigned around it is not news:
        the document that is held stays, and only its lease runs on."""
        publication = msgspec.structs.replace(
            self._publication,
            verdicts=(*self._publication.verdicts, *admitted.verdicts),
            is_news=admitted.pin is not None and self._said.stamp.seq is not None,
        )
        source = current.source("announce") if current is not None else None
        if source is None or pin is None or pin.digest != self._said.stamp.digest or admitted.event:
            return publication
        return msgspec.structs.replace(publication, document=source.document)

    def _end(self, pin: AgentPin | None, admitted: AdmissionResult) -> Decide:
        """P-19: a goodbye counts when it is signed by the bound key under a new sequence."""
        before = pin.find_key(admitted.key_id) if pin is not None and admitted.key_id is not None else None
        seq = self._said.stamp.seq
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
            pin_note_key(self._said.agent_id): dump_pin(admitted.pin),
        }
        if not admitted.event:
            return msgspec.structs.replace(decision, notes=notes)
        told = self._entry(admitted.event, "done", f"key {admitted.key_id}")
        return msgspec.structs.replace(decision, notes=notes, audit=(*decision.audit, told))

    # --- Refusing --------------------------------------------------------------------------------

    def _alarm(self, error: WaypostError, pin: AgentPin | None) -> AuditEntry | None:
        """What an operator should see although nothing was changed: another key, a fork, a revoked key that is in use, a
        signature that was left out where a key is bound (C15)."""
        reason = str(error.details.get("reason", ""))
        is_bound = pin is not None and len(pin.keys) > 0
        is_stripped = isinstance(error, BadSignature) and self._said.signature is None and is_bound
        if not isinstance(error, KeyConflict | Revoked) and reason != FORK_REASON and not is_stripped:
            return None
        key = self._said.key
        return self._entry("refuse", reason, f"key {key.key_id}" if key is not None else "")

    def _entry(self, action: str, outcome: str, detail: str) -> AuditEntry:
        publication = self._publication
        return audit_entry_by(
            publication.principal,
            action,
            now=self._now,
            object=_URN + self._said.agent_id,
            outcome=outcome,
            via=publication.via,
            detail=detail,
        )

    def _check_carried_id(self) -> None:
        """A document may carry the id that its record has elsewhere, but not the announced id of another agent."""
        carried = find_agent_id(self._publication.decoded.record.id)
        if carried is not None and carried != self._said.agent_id:
            raise InvalidDocument(
                "The announcement carries a record of another agent_id.",
                path="$.agent.agent_id",
                hint="Announce each agent under its own id.",
            )


def revoked_agent_note(agent_id: str) -> str:
    return f"revoked:agent:{agent_id}"


def revoked_key_note(key_id: str) -> str:
    return f"revoked:key:{key_id}"


def _message(document: bytes) -> JsonObject:
    """The message, or the bare agent as one."""
    message = parse_object(document)
    is_bare = "agent" not in message or "agent_id" in message
    return {"agent": message} if is_bare else message


def _read(message: JsonObject, *, legacy: bool, lenient: bool) -> SignedAnnouncement:
    """Without a signature, and where none is asked for, a key is only a text: one that cannot be read refuses nothing."""
    if not lenient or message.get("signature") is not None:
        return parse_signed_announcement(message, legacy=legacy)
    with suppress(InvalidKey):
        return parse_signed_announcement(message, legacy=legacy)
    bare = {name: value for name, value in message["agent"].items() if name != "public_key"}
    return parse_signed_announcement({**message, "agent": bare}, legacy=legacy)
