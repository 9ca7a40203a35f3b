"""HTTP for the clients without I/O: line and event decoders, TLS contexts, errors from failed responses, retries."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
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
from waypost.settings import ConnectionSettings, is_loopback

# scripts/unasync.py replaces the first name by the second in the sync client.
async_pause = asyncio.sleep
pause = time.sleep


async def async_resolve(host: str, port: int) -> Sequence[Any]:
    """The addresses of a host.

    Args:
        host: The name, or an IP address.
        port: The port.
    """
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _unresolved(host, error) from None


def resolve(host: str, port: int) -> Sequence[Any]:
    """The same, blocking.

    Args:
        host: The name, or an IP address.
        port: The port.
    """
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _unresolved(host, error) from None


def _unresolved(host: str, error: OSError) -> Unavailable:
    return Unavailable(
        f"The name {host!r} cannot be resolved: {error.strerror or error}.",
        hint="Is it the right name, and are you online?",
    )


_SENT = "sent"  # details[_SENT]: the service may have processed the request although no response arrived
_UNCLEAR_STATUSES = (500, 502, 504)  # the service may have processed the request

# Several errors may share status and code; their titles differ.
_SERVICE_ERRORS = [(kind, codes) for kind, codes in ERROR_CODES.items() if kind is not ConfigurationError]
_BY_TITLE = {(codes.http, kind.code, codes.title): kind for kind, codes in _SERVICE_ERRORS}
# The first of several counts, so it is written last.
_BY_CODE = {(codes.http, kind.code): kind for kind, codes in reversed(_SERVICE_ERRORS)}
_BY_STATUS = {codes.http: kind for kind, codes in reversed(_SERVICE_ERRORS)}


class LineDecoder:
    """Splits a byte stream into lines at LF only: JSON strings may contain U+2028 and other line separators."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that a chunk completes.

        Args:
            chunk: The next bytes of the stream.
        """
        self._rest += chunk
        *lines, rest = self._rest.split(b"\n")
        if len(rest) > limits.CLIENT_LINE_BYTES:
            raise TooLarge(f"The service sent a line of more than {limits.CLIENT_LINE_BYTES} bytes.")
        self._rest = rest
        for line in lines:
            yield bytes(line.removesuffix(b"\r"))

    def rest(self) -> bytes:
        """The last line, if no LF ended it."""
        return bytes(self._rest)


class ServerEvent(msgspec.Struct, frozen=True):
    """One server-sent event. `id` is that of the last event that had one."""

    event: str
    data: str
    id: str | None


class EventStreamDecoder:
    """Splits a byte stream into server-sent events. An event without a final blank line is dropped."""

    def __init__(self) -> None:
        self._lines = LineDecoder()
        self._event = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that a chunk completes.

        Args:
            chunk: The next bytes of the stream.
        """
        for line in self._lines.feed(chunk):
            if line:
                self._read_field(line.decode("utf-8", "replace"))
            elif self._data or self._event:
                yield ServerEvent(self._event or "message", "\n".join(self._data), self._id)
                self._event, self._data = "", []

    def _read_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value


def tls_context(address: ConnectionSettings) -> ssl.SSLContext:
    """The TLS context of a client. Without `ca` it trusts the authorities of certifi and of this machine.

    A plain HTTP address gets an empty context: loading the default authorities takes longer than most commands.

    Args:
        address: The settings of the connection, with `ca`, `cert` and `cert_key`.
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


# Waypost answers every error with problem details; another program, or a proxy before it, does not.
_NO_PROBLEM_HINT = "Is this the address of a Waypost service? It prints it when it starts: `waypost ready URL`."


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> WaypostError:
    """The error that a response reports.

    Args:
        status: The HTTP status.
        headers: The headers of the response.
        body: The body, usually problem details (RFC 9457).
    """
    problem = _parse_problem(body)
    retry_after = str(problem.get("retry_after", headers.get("retry-after", "")))
    correlation_id = problem.get("correlation_id") or headers.get("x-request-id")
    details: dict[str, Any] = {"status": status}
    if correlation_id is not None:
        details["correlation_id"] = correlation_id
    if isinstance(problem.get("suggestions"), list):
        details["suggestions"] = problem["suggestions"]
    return _error_class(status, problem)(
        str(problem.get("message") or problem.get("detail") or f"The service answered with status {status}."),
        path=_text(problem.get("path")),
        hint=_text(problem.get("hint")) if problem else _NO_PROBLEM_HINT,
        retry_after=int(retry_after) if retry_after.isdecimal() else None,
        details=details,
    )


def error_from_transport(error: httpx2.HTTPError, base_url: str) -> WaypostError:
    """The error for a request without a response.

    Args:
        error: What the HTTP library raised.
        base_url: The address of the service.
    """
    sent = not isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout))
    if isinstance(error, httpx2.TimeoutException):
        return Timeout(
            f"{base_url} did not answer in time.", hint="Try again, or allow more time.", details={_SENT: sent}
        )
    reason = str(error) or type(error).__name__
    problem = "The connection was lost" if sent else "Cannot connect"
    hint = "Is the service running, and is this its address?"
    if is_loopback(httpx2.URL(base_url).host):
        hint += " `waypost serve` starts one, `waypost demo` one to try."
    if base_url.startswith("https:") and "SSL" in reason:
        hint = f"If the service has no TLS, its address is http{base_url.removeprefix('https')}."
    return Unavailable(
        f"{problem}: {base_url} ({reason}).",
        hint=hint,
        details={_SENT: sent},
    )


def agent_unreachable(error: httpx2.HTTPError, endpoint: str) -> WaypostError:
    """The error for a request to an agent without a response.

    Args:
        error: What the HTTP library raised.
        endpoint: The URL of the agent.
    """
    if isinstance(error, httpx2.TimeoutException):
        return Timeout(f"The agent at {endpoint} did not answer in time.", path="bindings", hint="Allow more time.")
    return Unavailable(
        f"The agent at {endpoint} cannot be reached: {error or type(error).__name__}.",
        path="bindings",
        hint="Is the agent running? Its record may be outdated.",
    )


def may_have_been_applied(error: WaypostError) -> bool:
    """True if the service may have processed the request in spite of the error.

    Args:
        error: An error of this module.
    """
    return bool(error.details.get(_SENT)) or error.details.get("status") in _UNCLEAR_STATUSES


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
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return problem if isinstance(problem, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """When to repeat a failed request: exponential backoff with full jitter, so that many clients do not return at once.

    Example:
        client = Client(retry=Retry(attempts=10, most_seconds=30.0))
    """

    attempts: int = limits.CLIENT_ATTEMPTS
    base_seconds: float = limits.CLIENT_BACKOFF_SECONDS
    most_seconds: float = limits.CLIENT_BACKOFF_MAX_SECONDS

    def delay(self, error: WaypostError, attempt: int, *, repeatable: bool, chance: float) -> float | None:
        """Seconds before the next attempt; None if there is none.

        Args:
            error: Why the attempt failed.
            attempt: The number of the attempt, from 1.
            repeatable: Whether the request may be processed twice.
            chance: A random number from 0 to 1.

        Example:
            error = errors.Unavailable("The service is starting.", retry_after=2)
            seconds = Retry().delay(error, attempt=1, repeatable=True, chance=0.5)
        """
        if attempt >= self.attempts or not _is_transient(error):
            return None
        if may_have_been_applied(error) and not repeatable:
            return None
        backoff = self.backoff(attempt, chance)
        if error.retry_after is None:
            return backoff
        if error.retry_after > limits.CLIENT_RETRY_AFTER_MAX_SECONDS:
            return None
        return error.retry_after + backoff  # never earlier than the service asks for

    def backoff(self, attempt: int, chance: float) -> float:
        """Seconds to wait after a failed attempt.

        Args:
            attempt: The number of the attempt, from 1.
            chance: A random number from 0 to 1.

        Example:
            print([Retry().backoff(attempt, chance=1.0) for attempt in range(1, 5)])
        """
        return float(min(self.most_seconds, self.base_seconds * 2 ** min(attempt - 1, 30))) * chance


def _is_transient(error: WaypostError) -> bool:
    """True if the request may succeed later. A timeout is final: the caller has waited long enough."""
    if isinstance(error, (StorageFull, QuotaExceeded, Timeout)):
        return False
    return isinstance(error, (Unavailable, RateLimited))
