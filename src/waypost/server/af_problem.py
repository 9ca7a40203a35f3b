"""Problems of the AF surface (RFC 9457): their members, their headers, and the pages that their types lead to."""

from __future__ import annotations

import secrets

from waypost import limits
from waypost.errors import MethodNotAllowed, Unauthorized, WaypostError
from waypost.model.json import dump_json
from waypost.server.af_paths import BASE, rooted
from waypost.server.asgi import PROBLEM, Request, Response, header_bytes
from waypost.server.problems import instance_of, problem_headers, problem_of

ALLOWED = ("GET", "HEAD", "OPTIONS")
ALLOW = ", ".join(ALLOWED).encode()

PAGES: dict[str, str] = {
    "invalid_request": "The request cannot be used as it is: a parameter, the path, the method or the Accept header.\n"
    "The member invalid_params names each parameter with the reason. Correct them and ask again.",
    "unauthorized": "No credential was sent, or one that does not hold. Send one as the WWW-Authenticate header asks.",
    "forbidden": "The credential holds, but this caller has no right to discovery here. Ask the operator for it.",
    "not_found": "There is no agent of this name that you may see, or no such page. The list of agents has the ids.",
    "conflict": "The write collides with what is held: another owner has the id, or it is no longer in the version that\n"
    "If-Match names, or the idempotency key was used before. Read the agent again, then decide.",
    "stale_metadata": "What was sent is older than what is held, or what was asked for is no longer kept. Read it anew.",
    "unsupported_filter": "A filter that must hold cannot be applied here. Leave it out, or filter the answers yourself.",
    "rate_limited": "Too many requests in a short time. Wait as long as the Retry-After header says.",
    "unavailable": "The directory cannot be read at the moment. Wait as long as the Retry-After header says.",
    "internal": "A fault of this service. Its operator finds it in the log by the correlation_id.",
}


def problem_page(code: str) -> bytes | None:
    """The text behind a problem type, or None for a code that has none."""
    text = PAGES.get(code)
    return None if text is None else f"{code}\n\n{text}\n".encode()


def correlation_id(request: Request) -> str:
    """The id that this request goes by: the caller's if it is fit to be repeated, else a new one."""
    given = request.header(b"x-request-id") or ""
    if 0 < len(given) <= limits.REQUEST_ID_CHARS and given.isascii() and given.isprintable():
        return given
    return secrets.token_hex(8)


def problem(
    request: Request,
    error: WaypostError,
    *,
    request_id: str | None = None,
    origin: str = "",
    challenge: str | None = None,
) -> Response:
    """The answer to an error. `origin` makes the type absolute; it comes from configuration, never from the request."""
    document = problem_of(error, instance=instance_of(request), correlation_id=request_id or correlation_id(request))
    document["type"] = (
        origin + rooted(request.scope, f"{BASE}/problems/{error.code}") if error.code in PAGES else "about:blank"
    )
    document.update(error.details)
    if document["status"] == 400:
        document.setdefault("invalid_params", [{"name": error.path or "query", "reason": error.message}])
    headers = problem_headers(error)
    if challenge is not None and isinstance(error, Unauthorized):
        headers = [pair for pair in headers if pair[0] != b"www-authenticate"]
        headers.append((b"www-authenticate", header_bytes(challenge)))
    headers.append((b"vary", b"Accept, Authorization"))
    return Response(document["status"], dump_json(document), content_type=PROBLEM, headers=headers)


def wrong_method(method: str) -> MethodNotAllowed:
    return MethodNotAllowed(
        f"{method[:16]} is not allowed here: discovery is read only.",
        path="method",
        hint=f"Use {', '.join(ALLOWED)}.",
        details={"allow": list(ALLOWED)},
    )
