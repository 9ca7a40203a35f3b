"""Shared by all stores: the state, event and result that follow from a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from waypost.errors import IdempotencyConflict, StoreUnavailable, WaypostError
from waypost.model.events import Event
from waypost.model.record import record_bytes
from waypost.model.registration import Registration
from waypost.registry.catalog.entries import entry_of
from waypost.registry.ports import CommandResult, CommittedChange, Idempotency, RegistrationChange
from waypost.registry.publication import shown_etag


def commit_change(change: RegistrationChange, revision: int) -> CommittedChange:
    """The change with its revision: the new registration and the event."""
    event = _event_of(change, revision)
    if change.registration is None:
        return CommittedChange(event=event, registration=None)
    registration = msgspec.structs.replace(change.registration, revision=revision)
    return CommittedChange(event=event, registration=registration, entry=entry_of(registration))


def _event_of(change: RegistrationChange, revision: int) -> Event:
    subject = change.registration or change.removed
    if subject is None:
        raise ValueError("A change without a registration must name what it removes.")
    hidden = change.replaced if set(change.before or ()) - set(subject.scopes) else None
    shown = shown_etag(subject)
    return Event(
        revision=revision,
        type=change.type,
        id=subject.id,
        at=change.at,
        etag=subject.etag,
        owner=subject.owner,
        visibility=subject.visibility,
        invitees=subject.invitees,
        before=change.before,
        shown=None if shown == subject.etag else shown,
        shown_before=None if hidden is None else shown_etag(hidden),
        record=(change.document or record_bytes(subject.record)) if change.registration is not None else None,
    )


def to_logged_event(event: Event) -> Event:
    """The event as stored in the log. Renewals omit the record: they are many, and their content is not new."""
    return msgspec.structs.replace(event, record=None) if event.type == "renewed" else event


def from_logged_event(event: Event, current: Registration | None) -> Event:
    """The event as delivered. A renewal gets its record back while the agent still has that content."""
    if event.type != "renewed" or current is None or current.etag != event.etag:
        return event
    return msgspec.structs.replace(event, record=record_bytes(current.record))


def without_documents(registration: Registration) -> Registration:
    """Keep the sources, with empty documents."""
    sources = tuple(msgspec.structs.replace(source, document=b"") for source in registration.sources)
    return msgspec.structs.replace(registration, sources=sources)


def strip_result(answer: CommandResult) -> CommandResult:
    """What is stored for an idempotency key: the result without the documents, which the caller has."""
    if answer.registration is None:
        return answer
    return msgspec.structs.replace(answer, registration=without_documents(answer.registration))


def replay_result(kept: CommandResult, fingerprint: str, idempotency: Idempotency) -> CommandResult:
    """Return the stored result, or refuse a key that was used for another request."""
    if fingerprint != idempotency.fingerprint:
        raise IdempotencyConflict(
            "This idempotency key was used for another request.",
            path="Idempotency-Key",
            hint="Use a new key for a new request.",
        )
    return msgspec.structs.replace(kept, replayed=True)


def is_renewal(before: Registration | None, after: Registration) -> bool:
    """Whether only the lease differs, so that the registration row need not be rewritten."""
    return before is not None and before == msgspec.structs.replace(
        after,
        revision=before.revision,
        renewed_at=before.renewed_at,
        ttl_seconds=before.ttl_seconds,
        lease_expires_at=before.lease_expires_at,
    )


async def gather_results(futures: Sequence[asyncio.Future[CommandResult]]) -> list[CommandResult | WaypostError]:
    """The results and the refusals of commands that share a commit. Any other error is raised."""
    results: list[CommandResult | WaypostError] = []
    for found in await asyncio.gather(*futures, return_exceptions=True):
        if isinstance(found, BaseException) and not isinstance(found, WaypostError):
            raise found
        results.append(found)
    return results


def store_closed_error() -> StoreUnavailable:
    return StoreUnavailable("The store is closed.", hint="The service is stopping; try again soon.", retry_after=5)
