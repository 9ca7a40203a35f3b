"""One operation: what it is called everywhere, whom it is for, how it may fail."""

from __future__ import annotations

import msgspec

from waypost import errors

WRITE_ERRORS = (
    errors.MalformedJson,
    errors.InvalidDocument,
    errors.UnsupportedVersion,
    errors.UnknownDialect,
    errors.EndpointRejected,
    errors.InvalidKey,
    errors.InvalidParameter,
    errors.TooLarge,
    errors.Unauthorized,
    errors.MissingScope,
    errors.BadSignature,
    errors.NotAllowed,
    errors.Revoked,
    errors.OwnerConflict,
    errors.ConfusableName,
    errors.KeyConflict,
    errors.StaleMetadata,
    errors.Replayed,
    errors.RateLimited,
    errors.QuotaExceeded,
    errors.PreconditionFailed,
    errors.IdempotencyConflict,
    errors.StorageFull,
    errors.StoreUnavailable,
)
ADMIN_ERRORS = (
    errors.MalformedJson,
    errors.TooLarge,
    errors.InvalidParameter,
    errors.Unauthorized,
    errors.MissingScope,
    errors.StorageFull,
    errors.StoreUnavailable,
)
READ_ERRORS = (errors.InvalidParameter, errors.Unauthorized, errors.MissingScope, errors.RateLimited)
DOMAIN_ERRORS = (
    errors.InvalidParameter,
    errors.Unauthorized,
    errors.MissingScope,
    errors.RateLimited,
    errors.StorageFull,
    errors.StoreUnavailable,
)
TASK_ERRORS = (
    errors.MalformedJson,
    errors.InvalidDocument,
    errors.InvalidParameter,
    errors.TooLarge,
    errors.Unauthorized,
    errors.BadSignature,
    errors.Replayed,
    errors.MissingScope,
    errors.NotFound,
    errors.RateLimited,
    errors.StorageFull,
    errors.StoreUnavailable,
)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    scope: str | None  # None: open to all, shows public agents only
    idempotent: bool
    errors: tuple[type[errors.WaypostError], ...] = ()
    command: str | None = None  # `waypost …`
    method: str | None = None  # `Client.…`
