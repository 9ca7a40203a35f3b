"""The service itself: what changes, how it is, what it says of itself."""

from __future__ import annotations

from waypost import errors
from waypost.model.principal import SCOPE_ADMIN, SCOPE_READ
from waypost.registry.operations.operation import READ_ERRORS, Operation

SERVICE = (
    Operation(
        name="watch",
        summary="Follow changes as server-sent events, resumable by cursor.",
        scope=SCOPE_READ,
        idempotent=True,
        errors=(*READ_ERRORS, errors.InvalidCursor, errors.CursorTooOld, errors.Unavailable),
        command="watch",
        method="watch",
    ),
    Operation(
        name="export",
        summary="All agents the caller sees, one document a line.",
        scope=SCOPE_READ,
        idempotent=True,
        errors=READ_ERRORS,
        command="export",
        method="export",
    ),
    Operation(
        name="stats",
        summary="Figures over what the caller sees.",
        scope=SCOPE_READ,
        idempotent=True,
        errors=READ_ERRORS,
        method="stats",
    ),
    Operation(
        name="doctor",
        summary="What protects this deployment, and what does not, with the setting that changes it.",
        scope=SCOPE_ADMIN,
        idempotent=True,
        errors=READ_ERRORS,
        command="doctor",
        method="doctor",
    ),
    Operation(
        name="describe",
        summary="Schemas, the API description and the table of operations.",
        scope=SCOPE_READ,
        idempotent=True,
        errors=(*READ_ERRORS, errors.PreconditionFailed),
    ),
    Operation(
        name="document",
        summary="A public document: well-known files and schemas.",
        scope=None,
        idempotent=True,
        errors=(errors.InvalidParameter, errors.NotFound, errors.PreconditionFailed),
    ),
    Operation(
        name="page",
        summary="A page for people; whoever signed in on it acts with their own token.",
        scope=None,
        idempotent=True,
        errors=(errors.InvalidParameter, errors.InvalidRequest, errors.Forbidden, errors.NotFound),
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
        errors=READ_ERRORS,
    ),
)
