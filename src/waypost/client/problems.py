"""From an answer that failed, or none at all, to a leaf of the one error tree. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from waypost.errors import (
    CODES,
    ConfigurationError,
    Forbidden,
    InternalError,
    InvalidRequest,
    NotFound,
    Timeout,
    Unauthorized,
    Unavailable,
    WaypostError,
)

_SENT = "sent"  # details[_SENT]: the request may have been carried out, though no answer came

# More than one leaf may share status and code; the title tells them apart.
_BY_TITLE = {
    (codes.http, kind.code, codes.title): kind for kind, codes in CODES.items() if kind is not ConfigurationError
}
_BY_CODE: dict[tuple[int, str], type[WaypostError]] = {}
_BY_STATUS: dict[int, type[WaypostError]] = {}
for _kind, _codes in CODES.items():
    if _kind is not ConfigurationError:
        _BY_CODE.setdefault((_codes.http, _kind.code), _kind)
        _BY_STATUS.setdefault(_codes.http, _kind)


def error_of_answer(status: int, headers: Mapping[str, str], body: bytes) -> WaypostError:
    """The error that a service told of."""
    problem = _problem(body)
    kind = _kind_of(status, problem)
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


def error_of_line(problem: Mapping[str, Any]) -> WaypostError:
    """The error of one line of a batch: `{"code","message","path"}`."""
    code = str(problem.get("code", ""))
    kind = next((kind for kind in CODES if kind.code == code), InternalError)
    return kind(
        str(problem.get("message", "Refused.")), path=_text(problem.get("path")), hint=_text(problem.get("hint"))
    )


def error_of_transport(error: httpx.HTTPError, base_url: str) -> WaypostError:
    """No answer. Whether the request may have been carried out decides what may be tried again."""
    sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    if isinstance(error, httpx.TimeoutException):
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


def may_have_been_done(error: WaypostError) -> bool:
    """True when the request reached the service and nobody knows what became of it."""
    return bool(error.details.get(_SENT)) or error.details.get("status") in (500, 502, 504)


def _kind_of(status: int, problem: Mapping[str, Any]) -> type[WaypostError]:
    code = str(problem.get("code", ""))
    exact = _BY_TITLE.get((status, code, str(problem.get("title", "")))) or _BY_CODE.get((status, code))
    if exact is not None:
        return exact
    if status in (401, 403, 404):
        return {401: Unauthorized, 403: Forbidden, 404: NotFound}[status]
    if status in (502, 503, 504):
        return Unavailable
    return _BY_STATUS.get(status) or (InvalidRequest if 400 <= status < 500 else InternalError)


def _problem(body: bytes) -> dict[str, Any]:
    try:
        problem = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
