"""API keys: opaque credentials for programs, which an admin creates and revokes.

A key is `wp_<id>_<secret>`. The store has the SHA-256 of the secret, never the key: the secret has 256 random bits, so a
slow password hash would add nothing. Each key is a note in the store, mirrored in memory, so that a request needs no
lookup there. A revoked key is removed; the audit trail says when and by whom.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, NotFound, Unauthorized
from waypost.model.principal import Principal
from waypost.model.times import rfc3339_or_none, to_rfc3339
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.ports import Clock, Command, Decision, Store, StoreState
from waypost.responses.trust import ApiKeyRow, CreatedApiKey
from waypost.trust.jwt import check_scopes, check_subject

API_KEY_PREFIX = "wp_"
API_KEY_NOTES = "apikey:"
_KEY = re.compile(r"wp_([0-9a-f]{16})_([A-Za-z0-9_-]{43})\Z")
_ID_BYTES = 8
_SECRET_BYTES = 32
_UNKNOWN = hashlib.sha256(
    b""
).hexdigest()  # compared with the secret of an unknown key, so that both take the same time


class ApiKeyEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as it is stored."""

    id: str
    digest: str  # SHA-256 of the secret, in hex
    subject: str
    scopes: tuple[str, ...]
    created_at: float
    created_by: str
    expires_at: float | None = None
    note: str = ""

    def view(self) -> ApiKeyRow:
        return ApiKeyRow(
            id=self.id,
            sub=self.subject,
            scopes=self.scopes,
            created_at=to_rfc3339(self.created_at),
            created_by=self.created_by,
            expires_at=rfc3339_or_none(self.expires_at),
            note=self.note,
        )


class ApiKeyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an admin asks for. Without `ttl_seconds` the key is valid until it is revoked."""

    subject: str
    scopes: tuple[str, ...]
    ttl_seconds: int | None = None
    note: str = ""

    def check(self) -> None:
        check_subject(self.subject)
        check_scopes(self.scopes)
        if self.ttl_seconds is not None and not 0 < self.ttl_seconds <= limits.API_KEY_TTL_MAX_SECONDS:
            raise InvalidParameter(
                f"The lifetime of an API key is 1 s to {limits.API_KEY_TTL_MAX_SECONDS} s.",
                path="ttl_seconds",
                hint="Leave it out for a key that is valid until it is revoked.",
            )
        if len(self.note) > limits.API_KEY_NOTE_CHARS or not self.note.isprintable():
            raise InvalidParameter(
                f"A note must be printable and have at most {limits.API_KEY_NOTE_CHARS} characters.", path="note"
            )


class ApiKeyStore:
    """All keys of the service. Lists are read from the store; requests are checked against the mirror in memory."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._entries: dict[str, ApiKeyEntry] = {}

    # --- The mirror in memory --------------------------------------------------------------------

    async def load(self) -> None:
        """Read everything from the store. A process that only reads repeats it."""
        self._entries = {entry.id: entry for entry in await self.entries()}

    def apply_notes(self, notes: Mapping[str, bytes | None]) -> None:
        """Apply committed notes of any kind."""
        for name, value in notes.items():
            if name.startswith(API_KEY_NOTES):
                key_id = name.removeprefix(API_KEY_NOTES)
                if value is None:
                    self._entries.pop(key_id, None)
                else:
                    self._entries[key_id] = _decode(value)

    # --- Requests --------------------------------------------------------------------------------

    def authenticate(self, key: str) -> Principal:
        """Return the principal of a valid key. Raises Unauthorized."""
        found = _KEY.match(key)
        entry = self._entries.get(found[1]) if found else None
        secret = found[2] if found else ""
        is_right = hmac.compare_digest(_digest(secret), _UNKNOWN if entry is None else entry.digest)
        if entry is None or not is_right:
            raise Unauthorized(
                "Invalid API key: it is unknown or was revoked.",
                path="Authorization",
                hint="Ask an admin for a new one: `waypost apikeys create`.",
            )
        if entry.expires_at is not None and self._clock.wall() >= entry.expires_at:
            raise Unauthorized(
                "Invalid API key: it has expired.",
                path="Authorization",
                hint="Ask an admin for a new one: `waypost apikeys create`.",
            )
        return Principal(
            subject=entry.subject,
            scopes=frozenset(entry.scopes),
            via="apikey",
            credential=f"{API_KEY_NOTES}{entry.id}",
        )

    # --- For admins ------------------------------------------------------------------------------

    async def entries(self) -> list[ApiKeyEntry]:
        """All keys, in the order of their ids."""
        return [_decode(value) for _, value in await self._store.notes(API_KEY_NOTES)]

    async def create(self, principal: Principal, request: ApiKeyRequest) -> CreatedApiKey:
        """Make a key. The answer is the only place where it is shown."""
        request.check()
        if len(self._entries) >= limits.API_KEYS:
            raise InvalidParameter(
                f"There are {limits.API_KEYS} API keys, which is the limit.",
                path="$",
                hint="Revoke those that are not used: `waypost apikeys list`.",
            )
        now = self._clock.wall()
        key_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        entry = ApiKeyEntry(
            id=key_id,
            digest=_digest(secret),
            subject=request.subject,
            scopes=check_scopes(request.scopes),
            created_at=now,
            created_by=principal.subject or "anonymous",
            expires_at=None if request.ttl_seconds is None else now + request.ttl_seconds,
            note=request.note,
        )
        name = API_KEY_NOTES + key_id
        lifetime = "no expiry" if request.ttl_seconds is None else f"{request.ttl_seconds}s"
        audit = audit_entry_by(
            principal,
            "create",
            now=now,
            object=name,
            outcome="created",
            detail=f"{entry.subject} {' '.join(entry.scopes)} {lifetime}",
        )

        def decide(state: StoreState) -> Decision:
            return Decision(outcome="created", notes={name: msgspec.json.encode(entry)}, audit=(audit,))

        await self._store.execute(Command(keys=(), notes=(name,), decide=decide))
        return CreatedApiKey(
            id=key_id,
            key=f"{API_KEY_PREFIX}{key_id}_{secret}",
            sub=entry.subject,
            scopes=entry.scopes,
            expires_at=rfc3339_or_none(entry.expires_at),
        )

    async def revoke(self, principal: Principal, key_id: str) -> None:
        name, now = API_KEY_NOTES + key_id, self._clock.now()

        def decide(state: StoreState) -> Decision:
            if name not in state.notes:
                raise NotFound(
                    f"There is no API key {key_id[:40]!r}.", path="id", hint="`waypost apikeys list` shows them."
                )
            entry = audit_entry_by(principal, "revoke", now=now, object=name, outcome="revoked")
            return Decision(outcome="revoked", notes={name: None}, audit=(entry,))

        await self._store.execute(Command(keys=(), notes=(name,), decide=decide))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _decode(value: bytes) -> ApiKeyEntry:
    return msgspec.json.decode(value, type=ApiKeyEntry)
