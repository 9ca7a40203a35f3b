"""Checks of a request's head that the HTTP parser leaves out, and heads without an offer to change the protocol.

A request that two servers would read differently is refused: a proxy in front of this service decides by what it reads, and
this service would answer something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from waypost import limits
from waypost.errors import HeadTooLarge, InvalidRequest, MethodNotImplemented, UriTooLong, WaypostError

Header = tuple[bytes, bytes]  # the name in lower case

_HEADER_OVERHEAD = 4  # colon, space and line end
_VERSIONS = ("1.0", "1.1")
# RFC 9110 §7.2 without the characters that no host on the Internet has: a comma would join two hosts to one.
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]*)(?::[0-9]{0,5})?")
_ABSOLUTE_TARGET = re.compile(rb"https?://([^/?#]+)/[^#]*", re.IGNORECASE)
_REQUEST_LINE = re.compile(rb"(?:\r?\n)*([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}) [!-~]+ HTTP/1\.[01]\r?\n")
_METHODS = (
    b"CONNECT",
    b"DELETE",
    b"GET",
    b"HEAD",
    b"OPTIONS",
    b"PATCH",
    b"POST",
    b"PUT",
    b"TRACE",
)  # of RFC 9110 and 5789
_UPGRADE_OPTIONS = (b"upgrade", b"http2-settings")


def find_head_error(method: bytes, target: bytes, version: str, headers: Sequence[Header]) -> WaypostError | None:
    """Why a request with this head is refused, or None."""
    size, hosts, codings = len(target), [], []
    for name, value in headers:
        size += len(name) + len(value) + _HEADER_OVERHEAD
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value)
    if len(headers) > limits.HEADERS:
        return too_many_headers()
    if size > limits.HEADER_BYTES:
        return head_too_large(target)
    if version not in _VERSIONS:
        return _invalid(f"HTTP/{version} is not supported.", "request", "Send HTTP/1.1.")
    return (
        _find_host_error(hosts, version)
        or _find_target_error(method, target, hosts)
        or _find_framing_error(version, codings)
    )


def find_method_error(data: bytes) -> WaypostError | None:
    """The error of data that the parser refused, if it begins with the line of a request with an unknown method."""
    line = _REQUEST_LINE.match(data)
    if line is None or line[1] in _METHODS:
        return None
    return MethodNotImplemented(
        f"This service does not know the method {line[1].decode()}.",
        path="method",
        hint="OPTIONS at the same path lists its methods.",
    )


def _find_host_error(hosts: Sequence[bytes], version: str) -> WaypostError | None:
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        return _invalid(f"The request has {len(hosts)} Host headers.", "Host", "Send exactly one (RFC 9112 §3.2).")
    if hosts and not _HOST.fullmatch(hosts[0]):
        return _invalid("The Host header is not a host and a port.", "Host", "Send the host of the URL.")
    return None


def _find_target_error(method: bytes, target: bytes, hosts: Sequence[bytes]) -> WaypostError | None:
    if method == b"CONNECT":
        return _invalid("This service is not a proxy.", "method", "Send the request to the service itself.")
    if target.startswith(b"/"):
        is_valid = b"#" not in target
    elif target == b"*":
        is_valid = method == b"OPTIONS"
    else:
        absolute = _ABSOLUTE_TARGET.fullmatch(target)
        is_valid = absolute is not None and [absolute[1].lower()] == [host.lower() for host in hosts]
    if is_valid:
        return None
    return _invalid(
        "The target of the request is neither a path nor a URL of the host in its Host header.",
        "request",
        "Send the path of the URL (RFC 9112 §3.2).",
    )


def _find_framing_error(version: str, codings: Sequence[bytes]) -> WaypostError | None:
    """The parser refuses a wrong Content-Length, and one beside Transfer-Encoding."""
    if not codings or ([coding.strip().lower() for coding in codings] == [b"chunked"] and version == "1.1"):
        return None
    return _invalid(
        "The only transfer coding is chunked, once, and in HTTP/1.1.",
        "Transfer-Encoding",
        "Send Transfer-Encoding: chunked, or a Content-Length.",
    )


def head_too_large(target: bytes) -> WaypostError:
    """Names what is too long: a query string has a bound and an error of its own (AF-42), and so has a path."""
    if len(target.partition(b"?")[2]) > limits.QUERY_STRING_BYTES:
        return UriTooLong(
            f"The query string has more than {limits.QUERY_STRING_BYTES} bytes.", path="request", hint="Shorten it."
        )
    if len(target) > limits.QUERY_STRING_BYTES:
        return UriTooLong(
            f"The path has more than {limits.QUERY_STRING_BYTES} bytes.", path="request", hint="Shorten it."
        )
    return HeadTooLarge(
        f"The request line and the headers have more than {limits.HEADER_BYTES} bytes.",
        path="headers",
        hint="Send shorter headers; long texts belong in the body.",
    )


def too_many_headers() -> WaypostError:
    return HeadTooLarge(
        f"The request has more than {limits.HEADERS} headers or trailers.", path="headers", hint="Send fewer headers."
    )


def _invalid(problem: str, path: str, hint: str) -> WaypostError:
    return InvalidRequest(problem, path=path, hint=hint)


# --- Offers to change the protocol ----------------------------------------------------------------


def has_body(headers: Sequence[Header]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" \t0")) for name, value in headers
    )


def has_short_body(headers: Sequence[Header]) -> bool:
    """Whether the body, if there is one, can be read and dropped. One that is only announced (`Expect`) may never come."""
    for name, value in headers:
        if name in (b"transfer-encoding", b"expect"):
            return False
        if name == b"content-length" and int(value) > limits.DOCUMENT_BYTES:
            return False
    return True


def is_websocket_handshake(method: bytes, headers: Sequence[Header]) -> bool:
    """A handshake of RFC 6455 §4.1 in the one form that browsers and libraries send."""
    by_name: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        by_name.setdefault(name, []).append(value.strip().lower())
    connections = by_name.get(b"connection", [])
    return (
        method == b"GET"
        and by_name.get(b"upgrade") == [b"websocket"]
        and by_name.get(b"sec-websocket-version") == [b"13"]
        and len(connections) == 1
        and b"upgrade" in _split_options(connections[0])
    )


def without_upgrade(method: bytes, target: bytes, version: str, headers: Sequence[Header]) -> bytes:
    """The head without its offer to change the protocol, which a server may ignore (RFC 9110 §7.8)."""
    lines = [b"%s %s HTTP/%s" % (method, target, version.encode())]
    for name, value in headers:
        if name == b"connection":
            options = _split_options(value)
            value = b", ".join(option for option in options if option not in _UPGRADE_OPTIONS)
        if name not in _UPGRADE_OPTIONS:
            lines.append(name + b": " + value)
    return b"\r\n".join([*lines, b"", b""])


def _split_options(connection: bytes) -> list[bytes]:
    return [option.strip().lower() for option in connection.split(b",")]
