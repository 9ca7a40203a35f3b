"""Errors as problem+json (RFC 9457), with the members of profile.md §12."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import quote

import msgspec

from waypost.errors import (
    InternalError,
    InvalidParameter,
    MethodNotAllowed,
    MissingScope,
    UpgradeRequired,
    WaypostError,
    error_codes,
)
from waypost.model.json import dump_json
from waypost.responses.service import Problem
from waypost.server.http.asgi import PROBLEM, Headers, Request, Response

_RETRY_AFTER_DEFAULT = {429: 5, 503: 5, 507: 30}
BARE_CHALLENGE = b'Bearer realm="waypost"'  # the application adds the address of its metadata
_PROBLEM_TYPES = "/.well-known/agentframework/v1/problems/"


def problem_json(error: WaypostError, *, instance: str, correlation_id: str) -> dict[str, Any]:
    """The body. It contains no stack, file path or SQL (H13)."""
    codes = error_codes(error)
    problem: dict[str, Any] = msgspec.to_builtins(
        Problem(
            type=_PROBLEM_TYPES + error.code,
            title=codes.title,
            status=codes.http,
            detail=str(error),
            instance=instance,
            code=error.code,
            message=error.message,
            correlation_id=correlation_id,
            retry_after=error.retry_after or _RETRY_AFTER_DEFAULT.get(codes.http),
            path=error.path,
            hint=error.hint,
        )
    )
    if isinstance(error, InvalidParameter) and error.path is not None:
        problem["invalid_params"] = [{"name": error.path, "reason": error.message}]
    for name, value in error.details.items():
        problem.setdefault(name, value)
    return problem


def problem_instance(request: Request) -> str:
    """The path of the request as a URI reference, with its escapes."""
    raw: bytes | None = request.scope.get("raw_path")
    return quote(request.path) if raw is None else quote(raw.partition(b"?")[0], safe="/%:@!$&'()*+,;=~")


def problem_headers(error: WaypostError) -> Headers:
    codes = error_codes(error)
    headers: Headers = [(b"cache-control", b"no-store")]
    retry_after = error.retry_after or _RETRY_AFTER_DEFAULT.get(codes.http)
    if retry_after is not None:
        headers.append((b"retry-after", str(retry_after).encode()))
    if codes.http == 401:
        headers.append((b"www-authenticate", BARE_CHALLENGE))
    if isinstance(error, MissingScope) and "scope" in error.details:  # RFC 6750 §3.1
        parameters = f', error="insufficient_scope", scope="{error.details["scope"]}"'
        headers.append((b"www-authenticate", BARE_CHALLENGE + parameters.encode()))
    if isinstance(error, UpgradeRequired):
        headers += [(b"upgrade", b"websocket"), (b"sec-websocket-version", b"13")]
    if isinstance(error, MethodNotAllowed) and "allow" in error.details:
        headers.append((b"allow", ", ".join(error.details["allow"]).encode()))
    return headers


def problem_response(error: WaypostError, *, instance: str, correlation_id: str) -> Response:
    body = dump_json(problem_json(error, instance=instance, correlation_id=correlation_id))
    return Response(error_codes(error).http, body, content_type=PROBLEM, headers=problem_headers(error))


def problem_page(error: WaypostError, *, correlation_id: str) -> bytes:
    """The error for a browser where there is no request yet that could have a visitor, a menu or a stylesheet."""
    codes = error_codes(error)
    texts = (error.message, error.hint, f"Correlation id {correlation_id}")
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in texts if text)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{codes.title} · Waypost</title></head>'
        f"<body><h1>{codes.http} {codes.title}</h1>{paragraphs}</body></html>"
    ).encode()


def internal_error() -> InternalError:
    return InternalError("The service failed on this request.", hint="Report the correlation_id to the operator.")
