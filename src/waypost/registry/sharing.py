"""Who besides its owner sees a private agent: the rule of a change of invitees, pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.principal import Principal
from waypost.model.record import record_bytes
from waypost.model.registration import Registration
from waypost.registry.auditing import entry_by
from waypost.registry.etags import content_etag
from waypost.registry.ports import Change, Decision, Held
from waypost.registry.renewing import need_current


def parse_invitees(value: object, path: str) -> tuple[str, ...]:
    """Names of subjects."""
    if not isinstance(value, list) or len(value) > limits.INVITEES:
        raise InvalidParameter(f"An array of at most {limits.INVITEES} subjects is wanted.", path=path)
    for name in value:
        if not isinstance(name, str) or not 0 < len(name) <= limits.SUBJECT_CHARS or not name.isprintable():
            raise InvalidParameter(
                f"A subject is a printable text of 1 to {limits.SUBJECT_CHARS} characters.",
                path=path,
                hint="Name it as its token does (`sub`).",
            )
    return tuple(dict.fromkeys(value))


def share(
    principal: Principal, key: str, add: Sequence[str], remove: Sequence[str], *, now: float
) -> Callable[[Held], Decision]:
    """Let subjects see an agent, or no longer. Whoever is named in both is let in no more."""

    def decide(held: Held) -> Decision:
        current = need_current(principal, key, held, now)
        wanted = [name for name in (*current.invitees, *add) if name not in remove]
        invitees = tuple(dict.fromkeys(wanted))
        if len(invitees) > limits.INVITEES:
            raise InvalidParameter(
                f"An agent is shared with at most {limits.INVITEES} subjects.",
                path="$.add",
                hint="Remove some, or make it internal: then every reader with a token sees it.",
            )
        if invitees == current.invitees:
            return Decision(outcome="unchanged", registration=current)
        return _changed(principal, current, invitees, now)

    return decide


def _changed(principal: Principal, current: Registration, invitees: tuple[str, ...], now: float) -> Decision:
    registration = msgspec.structs.replace(current, invitees=invitees, changed_at=now)
    document = record_bytes(registration.record)
    registration = msgspec.structs.replace(registration, etag=content_etag(registration, document))
    change = Change(
        type="updated", at=now, registration=registration, before=current.scopes, replaced=current, document=document
    )
    entry = entry_by(
        principal, "share", now=now, object=current.id, outcome="updated", etag=registration.etag,
        detail=f"{len(invitees)} invitees",
    )  # fmt: skip
    return Decision(outcome="updated", change=change, audit=(entry,))
