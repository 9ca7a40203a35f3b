"""Lines and server-sent events out of chunks of bytes. No sockets: chunks in, values out."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any

import certifi
import httpx2
import msgspec

from waypost import limits
from waypost.errors import (
    ERROR_CODES,
    ConfigurationError,
    Forbidden,
    InternalError,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    RateLimited,
    StorageFull,
    Timeout,
    TooLarge,
    Unauthorized,
    Unavailable,
    WaypostError,
)
from waypost.settings import ConnectionSettings

# The generator of the sync client replaces the first name by the second.
async_pause = asyncio.sleep
pause = time.sleep


class LineDecoder:
    """Splits at LF alone: U+2028 and its kind may stand inside JSON strings."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._rest += chunk
        *whole, rest = self._rest.split(b"\n")
        if len(rest) > limits.CLIENT_LINE_BYTES:
            raise TooLarge("The service sent a line without end.")
        self._rest = rest
        for line in whole:
            yield bytes(line.removesuffix(b"\r"))

    def rest(self) -> bytes:
        """A last line that no LF ended."""
        return bytes(self._rest)


class ServerEvent(msgspec.Struct, frozen=True):
    event: str
    data: str
    id: str | None


class EventStreamDecoder:
    """One server-sent event for each blank line. An event that the end of the stream cut short is not told."""

    def __init__(self) -> None:
        self._lines = LineDecoder()
        self._event = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        for line in self._lines.feed(chunk):
            if line:
                self._take(line.decode("utf-8", "replace"))
            elif self._data or self._event:
                yield ServerEvent(self._event or "message", "\n".join(self._data), self._id)
                self._event, self._data = "", []

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value


# ---- How a client knows the service, and the service the client: certificates of the connection.


def tls_context(address: ConnectionSettings) -> ssl.SSLContext:
    """Trust the authorities in `address.ca`; without it, those of certifi and of this machine.

    A plain HTTP address gets an empty context: loading the default authorities takes longer than most commands do.
    """
    if address.ca is None and address.cert is None and not address.base_url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context = ssl.create_default_context(cafile=str(address.ca or certifi.where()))
        if address.ca is None:
            context.load_default_certs()
        if address.cert is not None:
            context.load_cert_chain(address.cert, address.cert_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"The certificates cannot be used: {error.strerror or error}.",
            path="ca",
            hint="`ca`, `cert` and `cert_key` name PEM files.",
        ) from None
    return context


# ---- From an answer that failed, or none at all, to a leaf of the one error tree. Pure.

_SENT = "sent"  # details[_SENT]: the request may have been carried out, though no answer came

# More than one leaf may share status and code; the title tells them apart.
_BY_TITLE = {
    (codes.http, kind.code, codes.title): kind for kind, codes in ERROR_CODES.items() if kind is not ConfigurationError
}

_BY_CODE: dict[tuple[int, str], type[WaypostError]] = {}

_BY_STATUS: dict[int, type[WaypostError]] = {}

for _kind, _codes in ERROR_CODES.items():
    if _kind is not ConfigurationError:
        _BY_CODE.setdefault((_codes.http, _kind.code), _kind)
        _BY_STATUS.setdefault(_codes.http, _kind)


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> WaypostError:
    """The error that a service told of."""
    problem = _parse_problem(body)
    kind = _error_class(status, problem)
    retry_after = str(problem.get("retry_after", headers.get("retry-after", "")))
    return kind(
        str(problem.get("message") or problem.get("detail") or f"The service answered with status {status}."),
        path=_text(problem.get("path")),
        hint=_text(problem.get("hint")),
        retry_after=int(retry_after) if retry_after.isdecimal() else None,
        details={
            name: value
            for name, value in (
                ("status", status),
                ("correlation_id", problem.get("correlation_id") or headers.get("x-request-id")),
            )
            if value is not None
        },
    )


def error_from_transport(error: httpx2.HTTPError, base_url: str) -> WaypostError:
    """No answer. Whether the request may have been carried out decides what may be tried again."""
    sent = not isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout))
    if isinstance(error, httpx2.TimeoutException):
        return Timeout(
            f"{base_url} did not answer in time.", hint="Try again, or allow more time.", details={_SENT: sent}
        )
    reason = str(error) or type(error).__name__
    what = "The connection broke" if sent else "There is no connection"
    return Unavailable(
        f"{what}: {base_url} ({reason}).",
        hint="Is the service running, and is this its address?",
        details={_SENT: sent},
    )


def may_have_been_applied(error: WaypostError) -> bool:
    """True when the request reached the service and nobody knows what became of it."""
    return bool(error.details.get(_SENT)) or error.details.get("status") in (500, 502, 504)


def _error_class(status: int, problem: Mapping[str, Any]) -> type[WaypostError]:
    code = str(problem.get("code", ""))
    exact = _BY_TITLE.get((status, code, str(problem.get("title", "")))) or _BY_CODE.get((status, code))
    if exact is not None:
        return exact
    if status in (401, 403, 404):
        return {401: Unauthorized, 403: Forbidden, 404: NotFound}[status]
    if status in (502, 503, 504):
        return Unavailable
    return _BY_STATUS.get(status) or (InvalidRequest if 400 <= status < 500 else InternalError)


def _parse_problem(body: bytes) -> dict[str, Any]:
    try:
        problem = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# ---- When to try again, and after how long. Pure: chance is an argument.


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Full jitter: a delay drawn from zero to a bound that doubles. The bound keeps a fleet from coming back at once."""

    attempts: int = limits.CLIENT_ATTEMPTS
    base_seconds: float = limits.CLIENT_BACKOFF_SECONDS
    most_seconds: float = limits.CLIENT_BACKOFF_MAX_SECONDS

    def delay(self, error: WaypostError, attempt: int, *, repeatable: bool, chance: float) -> float | None:
        """Seconds to wait before attempt `attempt + 1` (they count from 1), or None when the error is final."""
        if attempt >= self.attempts or not _is_transient(error):
            return None
        if may_have_been_applied(error) and not repeatable:
            return None
        drawn = self.backoff(attempt, chance)
        if error.retry_after is None:
            return drawn
        if error.retry_after > limits.CLIENT_RETRY_AFTER_MAX_SECONDS:
            return None
        return error.retry_after + drawn  # never earlier than asked

    def backoff(self, attempt: int, chance: float) -> float:
        return float(min(self.most_seconds, self.base_seconds * 2 ** min(attempt - 1, 30))) * chance


def _is_transient(error: WaypostError) -> bool:
    """True for what time alone may heal. Whoever waited as long as was asked for does not wait again."""
    if isinstance(error, (StorageFull, QuotaExceeded, Timeout)):
        return False
    return isinstance(error, (Unavailable, RateLimited))
