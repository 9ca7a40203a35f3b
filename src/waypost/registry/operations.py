"""The one table of operations. Faces, SDK, command, reference and API description are read off it."""

from __future__ import annotations

import msgspec

from waypost import errors
from waypost.model.principal import SCOPE_ADMIN, SCOPE_READ, SCOPE_WRITE

_WRITE_ERRORS = (
    errors.MalformedJson,
    errors.InvalidDocument,
    errors.UnknownDialect,
    errors.EndpointRejected,
    errors.InvalidParameter,
    errors.TooLarge,
    errors.Unauthorized,
    errors.MissingScope,
    errors.OwnerConflict,
    errors.StaleMetadata,
    errors.PreconditionFailed,
    errors.IdempotencyConflict,
    errors.StorageFull,
    errors.StoreUnavailable,
)
_READ_ERRORS = (errors.InvalidParameter, errors.Unauthorized, errors.MissingScope)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    scope: str | None  # None: open to all, shows public agents only
    idempotent: bool
    errors: tuple[type[errors.WaypostError], ...] = ()
    command: str | None = None  # `waypost …`
    method: str | None = None  # `Client.…`


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            name="register",
            summary="Register an agent, or update it: one document of any dialect.",
            scope=SCOPE_WRITE,
            idempotent=True,
            errors=_WRITE_ERRORS,
            command="register",
            method="register",
        ),
        Operation(
            name="register_many",
            summary="Register many documents, one JSON line each.",
            scope=SCOPE_WRITE,
            idempotent=True,
            errors=_WRITE_ERRORS,
            command="import",
            method="register_many",
        ),
        Operation(
            name="get",
            summary="Read one agent, in any dialect.",
            scope=SCOPE_READ,
            idempotent=True,
            errors=(*_READ_ERRORS, errors.NotFound),
            command="get",
            method="get",
        ),
        Operation(
            name="list",
            summary="List agents page by page.",
            scope=SCOPE_READ,
            idempotent=True,
            errors=(*_READ_ERRORS, errors.InvalidCursor),
            command="list",
            method="list",
        ),
        Operation(
            name="find",
            summary="Find agents for a task: ranked candidates, with evidence.",
            scope=SCOPE_READ,
            idempotent=True,
            errors=(
                errors.MalformedJson,
                errors.InvalidRequest,
                errors.UnsupportedFilter,
                errors.TooLarge,
                *_READ_ERRORS,
            ),
            command="find",
            method="find",
        ),
        Operation(
            name="facets",
            summary="Count agents by tag, protocol, status and owner.",
            scope=SCOPE_READ,
            idempotent=True,
            errors=_READ_ERRORS,
            command="facets",
            method="facets",
        ),
        Operation(
            name="renew",
            summary="Let an agent's lease run on.",
            scope=SCOPE_WRITE,
            idempotent=True,
            errors=(
                errors.MalformedJson,
                errors.TooLarge,
                errors.InvalidParameter,
                errors.Unauthorized,
                errors.MissingScope,
                errors.NotOwner,
                errors.NotFound,
                errors.StorageFull,
                errors.StoreUnavailable,
            ),
            command="renew",
            method="renew",
        ),
        Operation(
            name="host",
            summary="Answer for an agent under a domain, by the Host header.",
            scope=SCOPE_ADMIN,
            idempotent=True,
            errors=(errors.InvalidParameter, errors.Unauthorized, errors.MissingScope, errors.NotFound),
            command="host",
            method="host",
        ),
        Operation(
            name="withdraw",
            summary="Withdraw an agent.",
            scope=SCOPE_WRITE,
            idempotent=True,
            errors=(
                errors.InvalidParameter,
                errors.Unauthorized,
                errors.MissingScope,
                errors.NotOwner,
                errors.NotFound,
                errors.PreconditionFailed,
                errors.StorageFull,
                errors.StoreUnavailable,
            ),
            command="withdraw",
            method="withdraw",
        ),
        Operation(
            name="held",
            summary="Show the change of a verified agent that waits for its owner.",
            scope=SCOPE_WRITE,
            idempotent=True,
            errors=(
                errors.InvalidParameter,
                errors.Unauthorized,
                errors.MissingScope,
                errors.NotOwner,
                errors.NotFound,
            ),
            command="confirm",
            method="held",
        ),
        Operation(
            name="confirm",
            summary="Let a change pass that waits.",
            scope=SCOPE_WRITE,
            idempotent=False,
            errors=(*_WRITE_ERRORS, errors.NotOwner, errors.NotFound),
            command="confirm",
            method="confirm",
        ),
        Operation(
            name="reject",
            summary="Forget a change that waits.",
            scope=SCOPE_WRITE,
            idempotent=False,
            errors=(
                errors.MalformedJson,
                errors.TooLarge,
                errors.InvalidParameter,
                errors.Unauthorized,
                errors.MissingScope,
                errors.NotOwner,
                errors.NotFound,
                errors.PreconditionFailed,
                errors.StorageFull,
                errors.StoreUnavailable,
            ),
            command="confirm",
            method="reject",
        ),
        Operation(
            name="watch",
            summary="Follow changes as server-sent events, resumable by cursor.",
            scope=SCOPE_READ,
            idempotent=True,
            errors=(*_READ_ERRORS, errors.InvalidCursor, errors.CursorTooOld, errors.Unavailable),
            command="watch",
            method="watch",
        ),
        Operation(
            name="export",
            summary="All agents the caller sees, one document a line.",
            scope=SCOPE_READ,
            idempotent=True,
            errors=_READ_ERRORS,
            command="export",
            method="export",
        ),
        Operation(
            name="stats",
            summary="Figures over what the caller sees.",
            scope=SCOPE_READ,
            idempotent=True,
            errors=_READ_ERRORS,
            method="stats",
        ),
        Operation(
            name="mint_token",
            summary="Mint a token for a subject.",
            scope=SCOPE_ADMIN,
            idempotent=False,
            errors=(
                errors.MalformedJson,
                errors.TooLarge,
                errors.InvalidParameter,
                errors.Unauthorized,
                errors.MissingScope,
            ),
            command="token mint",
            method="mint_token",
        ),
        Operation(
            name="audit",
            summary="Read the audit trail: who changed what.",
            scope=SCOPE_ADMIN,
            idempotent=True,
            errors=_READ_ERRORS,
            command="audit",
            method="audit",
        ),
        Operation(
            name="audit_checkpoint",
            summary="Size and root of the audit trail, signed.",
            scope=SCOPE_ADMIN,
            idempotent=True,
            errors=(*_READ_ERRORS, errors.NotAcceptable),
            command="verify",
            method="audit_checkpoint",
        ),
        Operation(
            name="audit_proof",
            summary="Prove that an entry is in the audit trail, or that the trail only grew.",
            scope=SCOPE_ADMIN,
            idempotent=True,
            errors=_READ_ERRORS,
            command="verify",
            method="audit_proof",
        ),
        Operation(
            name="describe",
            summary="Schemas, the API description and the table of operations.",
            scope=SCOPE_READ,
            idempotent=True,
            errors=_READ_ERRORS,
        ),
        Operation(
            name="document",
            summary="A public document: well-known files and schemas.",
            scope=None,
            idempotent=True,
            errors=(errors.InvalidParameter, errors.NotFound),
        ),
        Operation(
            name="health",
            summary="Is the process alive, and does it accept work?",
            scope=None,
            idempotent=True,
            errors=(errors.Unavailable,),
        ),
        Operation(
            name="metrics",
            summary="Figures for Prometheus.",
            scope=SCOPE_READ,
            idempotent=True,
            errors=_READ_ERRORS,
        ),
    )
}
