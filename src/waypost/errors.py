"""One error tree, and one table with the codes of each error in every API.

    WaypostError
    ├── InvalidRequest            the request cannot be processed as it is
    │   ├── MalformedJson         not JSON, or JSON that parsers read differently
    │   ├── InvalidCall           not a JSON-RPC request
    │   ├── InvalidDocument       a document violates a rule of its dialect
    │   │   ├── InvalidCapability one capability of an otherwise valid card
    │   │   ├── UnsupportedVersion a message of an unsupported version
    │   │   └── UnsupportedType   a message of an unsupported type
    │   ├── EndpointRejected      the endpoint of an agent violates the address policy
    │   ├── AddressDenied         an address that the service never connects to
    │   ├── LoopDetected          a fetch caused by a fetch
    │   ├── UnknownDialect        no dialect recognises the document
    │   ├── InvalidKey            a key that cannot be parsed, or is too weak
    │   ├── InvalidParameter      a query parameter or header has an invalid value
    │   ├── InvalidCursor         a cursor that was not issued to this caller
    │   ├── UnsupportedFilter     a hard filter that cannot be applied
    │   ├── TooLarge              more bytes than `limits` allows
    │   │   └── TooComplex        more members, items or depth than `limits` allows
    │   ├── UriTooLong            the path or the query string is longer than `limits` allows
    │   ├── HeadTooLarge          the request line and the headers are longer than `limits` allows
    │   ├── TooSlow               the request did not arrive within the time that `limits` allows
    │   │   └── HandshakeTimeout  a session was not opened within the time that `limits` allows
    │   ├── UnsupportedMediaType  the Content-Type of the body is not supported
    │   ├── NotAcceptable         no representation matches the Accept header
    │   ├── MethodNotAllowed      the path exists, the method does not
    │   ├── MethodNotImplemented  a method that this service has at no path
    │   ├── Misdirected           the Host header names another service
    │   └── UpgradeRequired       the path is a WebSocket (version 13)
    ├── Unauthorized              no credential, or an invalid one
    │   ├── BadSignature          the signature of a document is invalid
    │   ├── UnknownPeer           the key of an agent that opens a session is unknown
    │   └── FingerprintMismatch   an agent presents another key than the known one
    ├── Forbidden                 the credential is valid, but has no permission
    │   ├── MissingScope          the token lacks a scope
    │   ├── NotOwner              the record belongs to another subject
    │   ├── NotAllowed            no rule of the allow-list admits the agent
    │   ├── OverQuota             the owner has as much as it may have: waiting does not help
    │   └── Revoked               the key, the certificate or the id was revoked
    ├── NotFound                  the caller can see nothing with this name
    ├── Conflict                  the write conflicts with the stored state
    │   ├── OwnerConflict         the id belongs to another owner
    │   ├── ConfusableName        the name looks like that of another owner's verified agent
    │   ├── KeyConflict           the id is bound to another key
    │   ├── PreconditionFailed    If-Match names another version
    │   ├── ProofMissing          the proof of a domain was not found
    │   ├── AgentRefused          the agent of a domain is not the one in its DNS
    │   └── IdempotencyConflict   the key was used for another request
    ├── StaleMetadata             the stored version is newer
    │   └── Replayed              a signed message that was received before, or is too old
    │       └── OutOfTime         a message of a conversation with a timestamp outside the window
    ├── Gone                      it existed, but is no longer available
    │   └── CursorTooOld          the change log no longer reaches back to the cursor
    ├── RateLimited               too many requests from one caller
    │   └── QuotaExceeded         too much of one owner or sender for now
    ├── Unavailable               try again later
    │   ├── StoreUnavailable      the store cannot be written or read now
    │   │   └── DamagedStore      stored data is damaged
    │   ├── StorageFull           the disk is full: writes are rejected, reads continue
    │   ├── FetchFailed           another server did not return the document
    │   └── Timeout               the peer did not answer in time
    ├── ConfigurationError        invalid settings (never sent over the wire)
    └── InternalError             a fault of this service

Every error says what is wrong (`message`), where (`path`, a JSON path or a parameter name) and what to do (`hint`).

Example:
    from waypost import SyncClient, errors

    try:
        SyncClient().get("no-such-agent")
    except errors.NotFound as error:
        print(error.message, error.hint)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


class WaypostError(Exception):
    """The root of the tree. Raise a leaf, catch a branch.

    Example:
        try:
            client.get("invoice-translator")
        except WaypostError as error:
            print(error.code, error.message, error.hint)
    """

    code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        hint: str | None = None,
        retry_after: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint
        self.retry_after = retry_after
        self.details = details or {}

    def __str__(self) -> str:
        where = f" (at {self.path})" if self.path else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"{self.message}{where}{hint}"


class InvalidRequest(WaypostError):
    code = "invalid_request"


class MalformedJson(InvalidRequest):
    pass


class InvalidCall(InvalidRequest):
    pass


class InvalidDocument(InvalidRequest):
    pass


class InvalidCapability(InvalidDocument):
    pass


class UnsupportedVersion(InvalidDocument):
    pass


class UnsupportedType(InvalidDocument):
    pass


class EndpointRejected(InvalidRequest):
    pass


class AddressDenied(InvalidRequest):
    pass


class LoopDetected(InvalidRequest):
    pass


class UnknownDialect(InvalidRequest):
    pass


class InvalidKey(InvalidRequest):
    pass


class InvalidParameter(InvalidRequest):
    pass


class InvalidCursor(InvalidRequest):
    pass


class UnsupportedFilter(InvalidRequest):
    code = "unsupported_filter"


class TooLarge(InvalidRequest):
    pass


class TooComplex(TooLarge):
    pass


class UriTooLong(InvalidRequest):
    pass


class HeadTooLarge(InvalidRequest):
    pass


class TooSlow(InvalidRequest):
    pass


class HandshakeTimeout(TooSlow):
    pass


class UnsupportedMediaType(InvalidRequest):
    pass


class NotAcceptable(InvalidRequest):
    pass


class MethodNotAllowed(InvalidRequest):
    pass


class MethodNotImplemented(InvalidRequest):
    pass


class Misdirected(InvalidRequest):
    pass


class UpgradeRequired(InvalidRequest):
    pass


class Unauthorized(WaypostError):
    code = "unauthorized"


class BadSignature(Unauthorized):
    """Its `details` name the reason, which distinguishes it from an invalid token."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        hint: str | None = None,
        retry_after: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        details = {"reason": "bad_signature"} | (details or {})
        super().__init__(message, path=path, hint=hint, retry_after=retry_after, details=details)


class UnknownPeer(Unauthorized):
    pass


class FingerprintMismatch(Unauthorized):
    pass


class Forbidden(WaypostError):
    code = "forbidden"


class MissingScope(Forbidden):
    pass


class NotOwner(Forbidden):
    pass


class NotAllowed(Forbidden):
    pass


class OverQuota(Forbidden):
    pass


class Revoked(Forbidden):
    pass


class NotFound(WaypostError):
    code = "not_found"


class Conflict(WaypostError):
    code = "conflict"


class OwnerConflict(Conflict):
    pass


class ConfusableName(Conflict):
    pass


class KeyConflict(Conflict):
    pass


class PreconditionFailed(Conflict):
    pass


class IdempotencyConflict(Conflict):
    pass


class ProofMissing(Conflict):
    pass


class AgentRefused(Conflict):
    pass


class StaleMetadata(WaypostError):
    code = "stale_metadata"


class Replayed(StaleMetadata):
    pass


class OutOfTime(Replayed):
    pass


class Gone(WaypostError):
    code = "stale_metadata"


class CursorTooOld(Gone):
    pass


class RateLimited(WaypostError):
    code = "rate_limited"


class QuotaExceeded(RateLimited):
    pass


class Unavailable(WaypostError):
    code = "unavailable"


class StoreUnavailable(Unavailable):
    pass


class DamagedStore(StoreUnavailable):
    pass


class StorageFull(Unavailable):
    pass


class FetchFailed(Unavailable):
    pass


class Timeout(Unavailable):
    pass


class ConfigurationError(WaypostError):
    code = "configuration"


class InternalError(WaypostError):
    code = "internal"


@dataclass(frozen=True, slots=True)
class ErrorCodes:
    """The codes of one error in each API. Most errors differ from their parent only in `title`."""

    http: int  # the status
    jsonrpc: int  # the code of a JSON-RPC error: RTFS, MCP, A2A
    ann: str  # announce: `code`
    ws_close: int  # the close code of a WebSocket
    # The exit code of the command: 1, or 64 usage, 69 unavailable, 75 try again, 77 no permission, 78 settings.
    exit: int
    ard: str  # ARD: `errorCode`
    title: str  # unique among errors with one status and one `code`: clients tell them apart by it


# Parents come before their children: a client that gets only a status or a code takes the first row that has it.
ERROR_CODES: dict[type[WaypostError], ErrorCodes] = {
    InvalidRequest: ErrorCodes(400, -32602, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Invalid request"),
    MalformedJson: ErrorCodes(400, -32700, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Malformed JSON"),
    InvalidCall: ErrorCodes(400, -32600, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Invalid call"),
    InvalidDocument: ErrorCodes(400, -32001, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Invalid document"),
    InvalidCapability: ErrorCodes(
        400, -32006, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Invalid capability"
    ),
    EndpointRejected: ErrorCodes(400, -32005, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Endpoint rejected"),
    AddressDenied: ErrorCodes(422, -32005, "ErrForbidden", 4403, 77, "INVALID_ARGUMENT", "Address denied"),
    LoopDetected: ErrorCodes(508, -32600, "ErrForbidden", 4403, 1, "INVALID_ARGUMENT", "Loop detected"),
    UnsupportedVersion: ErrorCodes(
        400, -32001, "ErrUnsupportedVersion", 4426, 1, "INVALID_ARGUMENT", "Unsupported version"
    ),
    UnsupportedType: ErrorCodes(400, -32001, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Unsupported type"),
    UnknownDialect: ErrorCodes(400, -32001, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Unknown dialect"),
    InvalidKey: ErrorCodes(400, -32001, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Invalid key"),
    InvalidParameter: ErrorCodes(400, -32602, "ErrMalformedPayload", 4400, 64, "INVALID_ARGUMENT", "Invalid parameter"),
    InvalidCursor: ErrorCodes(400, -32602, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Invalid cursor"),
    UnsupportedFilter: ErrorCodes(
        400, -32004, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Unsupported filter"
    ),
    TooLarge: ErrorCodes(413, -32600, "ErrTooLarge", 1009, 1, "PAYLOAD_TOO_LARGE", "Too large"),
    TooComplex: ErrorCodes(400, -32600, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Too complex"),
    UriTooLong: ErrorCodes(414, -32600, "ErrTooLarge", 1009, 1, "INVALID_ARGUMENT", "URI too long"),
    HeadTooLarge: ErrorCodes(431, -32600, "ErrTooLarge", 1009, 1, "INVALID_ARGUMENT", "Headers too large"),
    TooSlow: ErrorCodes(408, -32600, "ErrMalformedPayload", 4400, 75, "INVALID_ARGUMENT", "Too slow"),
    HandshakeTimeout: ErrorCodes(
        408, -32600, "ErrMalformedPayload", 4408, 75, "INVALID_ARGUMENT", "Handshake timed out"
    ),
    UnsupportedMediaType: ErrorCodes(
        415, -32600, "ErrMediaType", 1003, 1, "UNSUPPORTED_MEDIA_TYPE", "Unsupported media type"
    ),
    NotAcceptable: ErrorCodes(406, -32600, "ErrMediaType", 1003, 1, "INVALID_ARGUMENT", "Not acceptable"),
    MethodNotAllowed: ErrorCodes(
        405, -32601, "ErrMalformedPayload", 4400, 1, "METHOD_NOT_ALLOWED", "Method not allowed"
    ),
    MethodNotImplemented: ErrorCodes(
        501, -32601, "ErrMalformedPayload", 4400, 1, "METHOD_NOT_ALLOWED", "Method not implemented"
    ),
    Misdirected: ErrorCodes(421, -32600, "ErrForbidden", 4403, 1, "INVALID_ARGUMENT", "Misdirected"),
    UpgradeRequired: ErrorCodes(426, -32600, "ErrMalformedPayload", 4400, 1, "INVALID_ARGUMENT", "Upgrade required"),
    Unauthorized: ErrorCodes(401, -32008, "ErrAuth", 4401, 77, "UNAUTHENTICATED", "Unauthorized"),
    BadSignature: ErrorCodes(401, -32008, "ErrAuth", 4401, 77, "UNAUTHENTICATED", "Bad signature"),
    UnknownPeer: ErrorCodes(401, -32008, "ErrAuth", 4401, 77, "UNAUTHENTICATED", "Unknown peer"),
    FingerprintMismatch: ErrorCodes(401, -32008, "ErrAuth", 4401, 77, "UNAUTHENTICATED", "Fingerprint mismatch"),
    Forbidden: ErrorCodes(403, -32003, "ErrForbidden", 4403, 77, "PERMISSION_DENIED", "Forbidden"),
    MissingScope: ErrorCodes(403, -32003, "ErrForbidden", 4403, 77, "PERMISSION_DENIED", "Missing scope"),
    NotOwner: ErrorCodes(403, -32003, "ErrForbidden", 4403, 77, "PERMISSION_DENIED", "Not the owner"),
    NotAllowed: ErrorCodes(403, -32003, "ErrForbidden", 4403, 77, "PERMISSION_DENIED", "Not on the allow-list"),
    OverQuota: ErrorCodes(403, -32010, "ErrForbidden", 4403, 77, "PERMISSION_DENIED", "Over quota"),
    Revoked: ErrorCodes(403, -32003, "ErrForbidden", 4403, 77, "PERMISSION_DENIED", "Revoked"),
    NotFound: ErrorCodes(404, -32002, "ErrNotFound", 4404, 1, "NOT_FOUND", "Not found"),
    Conflict: ErrorCodes(409, -32007, "ErrDuplicateID", 4409, 1, "INVALID_ARGUMENT", "Conflict"),
    ConfusableName: ErrorCodes(409, -32007, "ErrDuplicateID", 4409, 1, "INVALID_ARGUMENT", "Confusable name"),
    OwnerConflict: ErrorCodes(409, -32007, "ErrDuplicateID", 4409, 77, "PERMISSION_DENIED", "Held by another owner"),
    KeyConflict: ErrorCodes(409, -32007, "ErrDuplicateID", 4409, 77, "PERMISSION_DENIED", "Bound to another key"),
    PreconditionFailed: ErrorCodes(412, -32007, "ErrDuplicateID", 4409, 1, "INVALID_ARGUMENT", "Precondition failed"),
    IdempotencyConflict: ErrorCodes(
        409, -32007, "ErrDuplicateID", 4409, 1, "INVALID_ARGUMENT", "Idempotency key reused"
    ),
    AgentRefused: ErrorCodes(409, -32007, "ErrForbidden", 4409, 1, "INVALID_ARGUMENT", "Agent refused"),
    ProofMissing: ErrorCodes(409, -32007, "ErrForbidden", 4409, 75, "INVALID_ARGUMENT", "Proof missing"),
    StaleMetadata: ErrorCodes(409, -32007, "ErrDuplicateID", 4409, 1, "INVALID_ARGUMENT", "Stale metadata"),
    # Not 409, which would mean that the id is bound to another key (ANN-35).
    Replayed: ErrorCodes(401, -32007, "ErrAuth", 4401, 1, "UNAUTHENTICATED", "Replayed"),
    OutOfTime: ErrorCodes(401, -32007, "ErrAuth", 4401, 1, "UNAUTHENTICATED", "Out of time"),
    Gone: ErrorCodes(410, -32002, "ErrNotFound", 4404, 1, "NOT_FOUND", "Gone"),
    CursorTooOld: ErrorCodes(410, -32602, "ErrNotFound", 4410, 1, "INVALID_ARGUMENT", "Cursor too old"),
    RateLimited: ErrorCodes(429, -32009, "ErrRateLimited", 4429, 75, "RATE_LIMIT_EXCEEDED", "Rate limited"),
    QuotaExceeded: ErrorCodes(429, -32010, "ErrRateLimited", 4429, 75, "RATE_LIMIT_EXCEEDED", "Quota exceeded"),
    Unavailable: ErrorCodes(503, -32011, "ErrUnavailable", 1013, 69, "UNAVAILABLE", "Unavailable"),
    StoreUnavailable: ErrorCodes(503, -32011, "ErrUnavailable", 1013, 69, "UNAVAILABLE", "Store unavailable"),
    DamagedStore: ErrorCodes(503, -32011, "ErrUnavailable", 1013, 78, "UNAVAILABLE", "Stored data is damaged"),
    StorageFull: ErrorCodes(507, -32011, "ErrUnavailable", 1013, 75, "UNAVAILABLE", "Storage full"),
    FetchFailed: ErrorCodes(502, -32011, "ErrUnavailable", 1013, 69, "UNAVAILABLE", "Could not be fetched"),
    Timeout: ErrorCodes(503, -32011, "ErrUnavailable", 1013, 75, "UNAVAILABLE", "Timed out"),
    ConfigurationError: ErrorCodes(500, -32603, "ErrUnavailable", 1011, 78, "INTERNAL_ERROR", "Configuration"),
    InternalError: ErrorCodes(500, -32603, "ErrUnavailable", 1011, 1, "INTERNAL_ERROR", "Internal error"),
}


def error_codes(error: WaypostError) -> ErrorCodes:
    """The codes of an error: its own, or those of its nearest ancestor."""
    for kind in type(error).__mro__:
        row = ERROR_CODES.get(kind)
        if row is not None:
            return row
    return ERROR_CODES[InternalError]


# The code of an error in a conversation (adp.md §6.6); its close code is `ws_close`.
AGP_CODES: dict[type[WaypostError], str] = {
    InvalidRequest: "bad_message",
    UnsupportedType: "unsupported_type",
    Unauthorized: "not_authorized",
    BadSignature: "bad_signature",
    UnknownPeer: "unknown_peer",
    FingerprintMismatch: "fingerprint_mismatch",
    Forbidden: "not_authorized",
    NotFound: "not_authorized",
    Replayed: "replay",
    OutOfTime: "stale_timestamp",
    RateLimited: "rate_limited",
    WaypostError: "internal",
}


def agp_code_of(error: WaypostError) -> str:
    """The AGP code of an error: its own, or that of its nearest ancestor."""
    return next(AGP_CODES[kind] for kind in type(error).__mro__ if kind in AGP_CODES)
