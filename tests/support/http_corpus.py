"""Malformed, ambiguous and slow requests as raw bytes, and what a server may make of each.

A request to `/smuggled` is always inside something else: a body, a header, a trailer. A server that answers it has read
other people's bytes as a request. `bench/http_servers.py` compares servers with this corpus; tests hold ours to it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
REFUSALS = frozenset((400, 405, 408, 411, 413, 414, 417, 421, 431, 501, 505))

# served: answered as the listed requests. refused: one error, then the end of the connection, and no request.
# either: one of both. cut: no request; an error or the end of the connection.
Verdict = Literal["served", "refused", "either", "cut"]


@dataclass(frozen=True)
class Received:
    """A request as the application sees it."""

    method: str
    path: str
    body: bytes = b""


@dataclass(frozen=True)
class Case:
    name: str
    group: str
    sent: bytes
    verdict: Verdict
    requests: tuple[Received, ...] = ()  # if it is served
    is_slow: bool = False  # the server has to give up waiting

    @property
    def is_ambiguous(self) -> bool:
        """Two readers may cut it differently."""
        return b"/smuggled" in self.sent

    def judge(self, statuses: list[int], *, closed: bool, seen: list[Received]) -> str | None:
        """What is wrong with the outcome, or None. `statuses` are those of the final responses."""
        if any("smuggled" in request.path for request in seen):
            return "answered a request made of something else"
        is_served = seen == list(self.requests) and statuses == [200] * len(self.requests)
        is_refused = not seen and len(statuses) == 1 and statuses[0] in REFUSALS and closed
        if self.verdict == "cut":
            return None if not seen and closed and all(status in REFUSALS for status in statuses) else "not cut off"
        if self.verdict == "served" and not is_served:
            return "a valid request was not served"
        if self.verdict == "refused" and not is_refused:
            return "not refused"
        if self.verdict == "either" and not (is_served or is_refused):
            return "neither served as sent nor refused"
        return None


def message(line: str, *headers: str, body: bytes = b"", host: str | None = "x") -> bytes:
    lines = [line, *(() if host is None else (f"Host: {host}",)), *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


GET = "GET /first HTTP/1.1"
POST = "POST /first HTTP/1.1"
FIRST = Received("GET", "/first")
CHUNKED = "Transfer-Encoding: chunked"


def _post(body: bytes) -> Received:
    return Received("POST", "/first", body)


@functools.cache
def corpus() -> tuple[Case, ...]:
    cases = (
        *_upgrades(),
        *_lengths(),
        *_codings(),
        *_chunks(),
        *_trailers(),
        *_headers(),
        *_lines(),
        *_targets(),
        *_hosts(),
        *_sizes(),
        *_pipelines(),
        *_other_protocols(),
        *_slow(),
    )
    assert len({case.name for case in cases}) == len(cases)
    return cases


# --- Where a body ends ----------------------------------------------------------------------------


def _upgrades() -> Iterator[Case]:
    for protocol, framing, method in product(
        ("h2c", "foo", "websocket"), ("length", "chunked"), ("GET", "POST", "PUT")
    ):
        header = f"Content-Length: {len(SMUGGLED)}" if framing == "length" else CHUNKED
        body = SMUGGLED if framing == "length" else chunked(SMUGGLED)
        upgrade = (
            "Connection: Upgrade",
            f"Upgrade: {protocol}",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: eA==",
        )
        yield Case(
            f"{method} with a {framing} body and an upgrade to {protocol}",
            "upgrade",
            message(f"{method} /first HTTP/1.1", *upgrade, header, body=body),
            "either",
            (Received(method, "/first", SMUGGLED),),
        )
    java = (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    )
    yield Case(
        "h2c offered with a body, as Java does",
        "upgrade",
        message(POST, *java, "Content-Length: 2", body=b"{}"),
        "served",
        (_post(b"{}"),),
    )
    yield Case("h2c offered without a body", "upgrade", message(GET, *java), "served", (FIRST,))
    yield Case(
        "h2c offered, then another request",
        "upgrade",
        message(GET, *java) + message("GET /second HTTP/1.1"),
        "either",
        (FIRST, Received("GET", "/second")),
    )
    yield Case(
        "upgrade in a list of options",
        "upgrade",
        message(
            POST,
            "Connection: keep-alive, upgrade",
            "Upgrade: foo/1, bar",
            f"Content-Length: {len(SMUGGLED)}",
            body=SMUGGLED,
        ),
        "either",
        (_post(SMUGGLED),),
    )
    yield Case(
        "upgrade in two Connection headers",
        "upgrade",
        message(
            POST,
            "Connection: keep-alive",
            "Connection: upgrade",
            "Upgrade: foo",
            f"Content-Length: {len(SMUGGLED)}",
            body=SMUGGLED,
        ),
        "either",
        (_post(SMUGGLED),),
    )
    yield Case(
        "upgrade with Content-Length 00",
        "upgrade",
        message(POST, "Connection: upgrade", "Upgrade: foo", "Content-Length: 00"),
        "either",
        (_post(b""),),
    )
    yield Case(
        "upgrade over HTTP/1.0",
        "upgrade",
        message(
            "POST /first HTTP/1.0",
            "Connection: upgrade",
            "Upgrade: foo",
            f"Content-Length: {len(SMUGGLED)}",
            body=SMUGGLED,
        ),
        "either",
        (_post(SMUGGLED),),
    )
    yield Case(
        "CONNECT with a body",
        "upgrade",
        message("CONNECT x:80 HTTP/1.1", f"Content-Length: {len(SMUGGLED)}", body=SMUGGLED),
        "refused",
    )
    yield Case("CONNECT", "upgrade", message("CONNECT x:80 HTTP/1.1", body=SMUGGLED), "refused")


def _lengths() -> Iterator[Case]:
    refused = {
        "two lengths": ("Content-Length: 2", "Content-Length: 3"),
        "two lengths in one header": ("Content-Length: 2, 3",),
        "negative length": ("Content-Length: -1",),
        "length with a sign": ("Content-Length: +2",),
        "hexadecimal length": ("Content-Length: 0x2",),
        "fractional length": ("Content-Length: 2.0",),
        "length with an exponent": ("Content-Length: 1e1",),
        "length with a group separator": ("Content-Length: 1_0",),
        "length with a space inside": ("Content-Length: 1 0",),
        "length with letters": ("Content-Length: 2abc",),
        "length in full-width digits": ("Content-Length: \xef\xbc\x92",),
        "length beyond 64 bits": ("Content-Length: 18446744073709551618",),
        "length beyond any number": ("Content-Length: 99999999999999999999999",),
        "empty length": ("Content-Length:",),
        "length in quotes": ('Content-Length: "2"',),
        "length and a space before the colon": ("Content-Length : 2",),
        "length and a tab before the colon": ("Content-Length\t: 2",),
        "length after a folded line": ("X: y", " Content-Length: 2"),
        "length with NUL": ("Content-Length: 2\x00",),
        "length with a vertical tab": ("Content-Length: \x0b2",),
    }
    for name, headers in refused.items():
        yield Case(name, "length", message(POST, *headers, body=b"{}" + SMUGGLED), "refused")
    yield Case(
        "the same length twice",
        "length",
        message(POST, "Content-Length: 2", "Content-Length: 2", body=b"{}"),
        "either",
        (_post(b"{}"),),
    )
    yield Case(
        "the same length twice in one header",
        "length",
        message(POST, "Content-Length: 2, 2", body=b"{}"),
        "either",
        (_post(b"{}"),),
    )
    yield Case(
        "length with leading zeros",
        "length",
        message(POST, "Content-Length: 002", body=b"{}"),
        "either",
        (_post(b"{}"),),
    )
    yield Case(
        "length with spaces around",
        "length",
        message(POST, "Content-Length: \t 2 ", body=b"{}"),
        "either",
        (_post(b"{}"),),
    )
    yield Case(
        "a body of a GET",
        "length",
        message(GET, f"Content-Length: {len(SMUGGLED)}", body=SMUGGLED),
        "either",
        (Received("GET", "/first", SMUGGLED),),
    )
    yield Case(
        "a body that looks like a request",
        "length",
        message(POST, f"Content-Length: {len(SMUGGLED)}", body=SMUGGLED),
        "served",
        (_post(SMUGGLED),),
    )
    yield Case("no body and no length", "length", message(POST), "either", (_post(b""),))
    yield Case("a length of zero", "length", message(POST, "Content-Length: 0"), "served", (_post(b""),))


def _codings() -> Iterator[Case]:
    body = chunked(b"{}") + SMUGGLED
    refused = {
        "length and chunks": ("Content-Length: 6", CHUNKED),
        "chunks and length": (CHUNKED, "Content-Length: 6"),
        "chunks and a length of zero": (CHUNKED, "Content-Length: 0"),
        "length in capitals and chunks": ("CONTENT-LENGTH: 6", "TRANSFER-ENCODING: chunked"),
        "chunked with a space before the colon": ("Transfer-Encoding : chunked",),
        "chunked with a tab before the colon": ("Transfer-Encoding\t: chunked",),
        "chunked with a space before the name": (" Transfer-Encoding: chunked",),
        "unknown coding": ("Transfer-Encoding: xchunked",),
        "chunked with a suffix": ("Transfer-Encoding: chunkedx",),
        "chunked in quotes": ('Transfer-Encoding: "chunked"',),
        "chunked twice": ("Transfer-Encoding: chunked, chunked",),
        "chunked in two headers": (CHUNKED, CHUNKED),
        "chunked and identity": (CHUNKED, "Transfer-Encoding: identity"),
        "identity": ("Transfer-Encoding: identity", "Content-Length: 2"),
        "identity and chunked": ("Transfer-Encoding: identity, chunked",),
        "chunked is not the last": ("Transfer-Encoding: chunked, gzip",),
        "gzip and chunked": ("Transfer-Encoding: gzip, chunked",),
        "gzip alone": ("Transfer-Encoding: gzip",),
        "gzip and chunked in two headers": ("Transfer-Encoding: gzip", CHUNKED),
        "chunked with a parameter": ("Transfer-Encoding: chunked;q=1",),
        "chunked after a vertical tab": ("Transfer-Encoding: \x0bchunked",),
        "chunked with NUL": ("Transfer-Encoding: chunked\x00",),
        "chunked on a folded line": ("Transfer-Encoding:", " chunked"),
        "chunked in a folded header": ("X: y\r\n Transfer-Encoding: chunked", "Content-Length: 2"),
        "empty coding": ("Transfer-Encoding:", "Content-Length: 2"),
        "a comma before chunked": ("Transfer-Encoding: ,chunked",),
        "chunked with a bare carriage return": ("Transfer-Encoding: chunked\rX: y",),
        "chunked after a bare line feed": ("X: y\nTransfer-Encoding: chunked",),
        "underscore for hyphen and a length": ("Transfer_Encoding: chunked", "Content-Length : 2"),
    }
    for name, headers in refused.items():
        yield Case(name, "coding", message(POST, *headers, body=body), "refused")
    yield Case("chunked over HTTP/1.0", "coding", message("POST /first HTTP/1.0", CHUNKED, body=body), "refused")
    yield Case(
        "chunked in capitals",
        "coding",
        message(POST, "Transfer-Encoding: CHUNKED", body=chunked(b"{}")),
        "served",
        (_post(b"{}"),),
    )
    yield Case(
        "chunked with spaces around",
        "coding",
        message(POST, "Transfer-Encoding:  chunked  ", body=chunked(b"{}")),
        "either",
        (_post(b"{}"),),
    )
    yield Case(
        "a chunked GET",
        "coding",
        message(GET, CHUNKED, body=chunked(SMUGGLED)),
        "either",
        (Received("GET", "/first", SMUGGLED),),
    )
    yield Case(
        "chunks that look like a request",
        "coding",
        message(POST, CHUNKED, body=chunked(SMUGGLED)),
        "served",
        (_post(SMUGGLED),),
    )


def _chunks() -> Iterator[Case]:
    refused = {
        "chunk without a size": b"\r\n{}\r\n0\r\n\r\n",
        "chunk size in letters": b"zz\r\n{}\r\n0\r\n\r\n",
        "negative chunk size": b"-2\r\n{}\r\n0\r\n\r\n",
        "chunk size with a sign": b"+2\r\n{}\r\n0\r\n\r\n",
        "chunk size with 0x": b"0x2\r\n{}\r\n0\r\n\r\n",
        "chunk size with an underscore": b"0_2\r\n{}\r\n0\r\n\r\n",
        "chunk size with a space before": b" 2\r\n{}\r\n0\r\n\r\n",
        "chunk size beyond 64 bits": b"10000000000000002\r\n{}\r\n0\r\n\r\n",
        "overlong chunk size": b"f" * 40 + b"\r\n{}\r\n0\r\n\r\n",
        "chunk size with a bare line feed": b"2\n{}\r\n0\r\n\r\n",
        "chunk size with a bare carriage return": b"2\r{}\r\n0\r\n\r\n",
        "chunk longer than its size": b"2\r\n{}x\r\n0\r\n\r\n",
        "chunk without a line end": b"2\r\n{}0\r\n\r\n",
        "chunk ended by a bare line feed": b"2\r\n{}\n0\r\n\r\n",
        "chunk ended by a bare carriage return": b"2\r\n{}\r0\r\n\r\n",
        "chunk extension with a bare line feed": b"2;a\nb\r\n{}\r\n0\r\n\r\n",
        "chunk extension with a bare carriage return": b"2;a\rb\r\n{}\r\n0\r\n\r\n",
        "chunk extension with NUL": b"2;a=\x00\r\n{}\r\n0\r\n\r\n",
        "last chunk with a bare line feed": b"2\r\n{}\r\n0\n\r\n",
        "last chunk ended by a bare line feed": b"2\r\n{}\r\n0\r\n\n",
        "chunk size with NUL": b"2\x00\r\n{}\r\n0\r\n\r\n",
    }
    for name, body in refused.items():
        yield Case(name, "chunk", message(POST, CHUNKED, body=body + SMUGGLED), "refused")
    either = {
        "chunk extension": b"2;a=b\r\n{}\r\n0\r\n\r\n",
        "chunk extension in quotes": b'2;a="b;c"\r\n{}\r\n0\r\n\r\n',
        "chunk extension that looks like a request": b"2;GET /smuggled\r\n{}\r\n0\r\n\r\n",
        "extension of the last chunk": b"2\r\n{}\r\n0;a=b\r\n\r\n",
        "chunk size with leading zeros": b"0000000000000002\r\n{}\r\n0\r\n\r\n",
        "chunk size with a space after": b"2 \r\n{}\r\n0\r\n\r\n",
        "last chunk of many zeros": b"2\r\n{}\r\n0000000\r\n\r\n",
        "many chunks": b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
    }
    for name, body in either.items():
        yield Case(name, "chunk", message(POST, CHUNKED, body=body), "either", (_post(b"{}"),))
    yield Case(
        "chunk extension of 64 KiB",
        "chunk",
        message(POST, CHUNKED, body=b"2;" + b"a" * 65536 + b"\r\n{}\r\n0\r\n\r\n"),
        "refused",
    )
    yield Case(
        "chunk size of 64 KiB of zeros",
        "chunk",
        message(POST, CHUNKED, body=b"0" * 65536 + b"2\r\n{}\r\n0\r\n\r\n"),
        "refused",
    )


def _trailers() -> Iterator[Case]:
    either = {
        "a trailer": b"X-Sum: 1\r\n",
        "a token in a trailer": b"Authorization: Bearer stolen\r\nX-Forwarded-For: 10.0.0.1\r\n",
        "a length in a trailer": b"Content-Length: 36\r\n",
        "a coding in a trailer": b"Transfer-Encoding: chunked\r\n",
        "a host in a trailer": b"Host: other\r\n",
        "an upgrade in a trailer": b"Connection: upgrade\r\nUpgrade: foo\r\n",
    }
    for name, trailer in either.items():
        yield Case(
            name,
            "trailer",
            message(POST, CHUNKED, body=b"2\r\n{}\r\n0\r\n" + trailer + b"\r\n"),
            "either",
            (_post(b"{}"),),
        )
    yield Case(
        "trailers of 64 KiB",
        "trailer",
        message(POST, CHUNKED, body=b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 11000 + b"\r\n"),
        "cut",
    )
    yield Case(
        "a trailer with a space before the colon",
        "trailer",
        message(POST, CHUNKED, body=b"2\r\n{}\r\n0\r\nX : y\r\n\r\n" + SMUGGLED),
        "refused",
    )
    yield Case(
        "a trailer with a bare line feed",
        "trailer",
        message(POST, CHUNKED, body=b"2\r\n{}\r\n0\r\nX: y\nZ: w\r\n\r\n" + SMUGGLED),
        "refused",
    )
    yield Case(
        "a folded trailer",
        "trailer",
        message(POST, CHUNKED, body=b"2\r\n{}\r\n0\r\nX: y\r\n z\r\n\r\n" + SMUGGLED),
        "refused",
    )


# --- The head -------------------------------------------------------------------------------------


def _headers() -> Iterator[Case]:
    refused = {
        "folded header": ("X: a", " b"),
        "header folded by a tab": ("X: a", "\tb"),
        "first header folded": (" X: a",),
        "space before the colon": ("X : a",),
        "header without a colon": ("X",),
        "header without a name": (": a",),
        "space in a name": ("X Y: a",),
        "NUL in a name": ("X\x00Y: a",),
        "NUL in a value": ("X: a\x00b",),
        "carriage return in a value": ("X: a\rb",),
        "control character in a value": ("X: a\x01b",),
        "delete in a value": ("X: a\x7fb",),
        "brackets in a name": ("X(Y): a",),
        "quotes in a name": ('"X": a',),
        "slash in a name": ("X/Y: a",),
        "byte beyond ASCII in a name": ("X\xe9: a",),
        "a request hidden behind a bare line feed": ("X: a\n\nGET /smuggled HTTP/1.1\nHost: x\n",),
        "a request hidden behind a bare carriage return": ("X: a\r\rGET /smuggled HTTP/1.1\rHost: x\r",),
    }
    for name, headers in refused.items():
        yield Case(name, "header", message(GET, *headers), "refused")
    yield Case("empty value", "header", message(GET, "X:"), "served", (FIRST,))
    yield Case("no space after the colon", "header", message(GET, "X:a"), "served", (FIRST,))
    yield Case("byte beyond ASCII in a value", "header", message(GET, "X: \xe9"), "either", (FIRST,))
    yield Case("unknown expectation", "header", message(GET, "Expect: 200-maybe"), "either", (FIRST,))
    yield Case("a folded first line", "header", b"GET /first\r\n HTTP/1.1\r\nHost: x\r\n\r\n", "refused")
    yield Case("headers ended by bare line feeds", "header", b"GET /first HTTP/1.1\nHost: x\n\n", "refused")
    yield Case(
        "headers ended by bare carriage returns", "header", b"GET /first HTTP/1.1\rHost: x\r\r", "cut", is_slow=True
    )
    yield Case("last line ended by a bare line feed", "header", b"GET /first HTTP/1.1\r\nHost: x\r\n\n", "refused")


def _lines() -> Iterator[Case]:
    refused = {
        "no version": b"GET /first\r\n\r\n",
        "HTTP/0.9": b"GET /first\r\n",
        "version without a number": b"GET /first HTTP\r\nHost: x\r\n\r\n",
        "version in lower case": b"GET /first http/1.1\r\nHost: x\r\n\r\n",
        "version 1.10": b"GET /first HTTP/1.10\r\nHost: x\r\n\r\n",
        "version 1": b"GET /first HTTP/1\r\nHost: x\r\n\r\n",
        "version 2.0": b"GET /first HTTP/2.0\r\nHost: x\r\n\r\n",
        "version 9.9": b"GET /first HTTP/9.9\r\nHost: x\r\n\r\n",
        "version -1.1": b"GET /first HTTP/-1.1\r\nHost: x\r\n\r\n",
        "another protocol's name": b"GET /first HTTPS/1.1\r\nHost: x\r\n\r\n",
        "tab between the parts": b"GET\t/first\tHTTP/1.1\r\nHost: x\r\n\r\n",
        "space before the method": b" GET /first HTTP/1.1\r\nHost: x\r\n\r\n",
        "method in lower case": b"get /first HTTP/1.1\r\nHost: x\r\n\r\n",
        "method with a control character": b"GE\x01T /first HTTP/1.1\r\nHost: x\r\n\r\n",
        "method with a colon": b"GET: /first HTTP/1.1\r\nHost: x\r\n\r\n",
        "no target": b"GET HTTP/1.1\r\nHost: x\r\n\r\n",
        "no method": b"/first HTTP/1.1\r\nHost: x\r\n\r\n",
        "words after the version": b"GET /first HTTP/1.1 HTTP/1.1\r\nHost: x\r\n\r\n",
        "carriage return in the line": b"GET /first\r HTTP/1.1\r\nHost: x\r\n\r\n",
    }
    for name, sent in refused.items():
        yield Case(name, "line", sent, "cut" if name == "HTTP/0.9" else "refused", is_slow=name == "HTTP/0.9")
    yield Case("empty lines before the request", "line", b"\r\n\r\n" + message(GET), "either", (FIRST,))
    yield Case("unknown method", "line", message("FROB /first HTTP/1.1"), "either", (Received("FROB", "/first"),))
    yield Case("HTTP/1.0", "line", message("GET /first HTTP/1.0"), "served", (FIRST,))
    yield Case("HTTP/1.0 without a host", "line", message("GET /first HTTP/1.0", host=None), "either", (FIRST,))


def _targets() -> Iterator[Case]:
    refused = {
        "relative target": "first",
        "authority as the target of a GET": "x:80",
        "space in the target": "/fir st",
        "NUL in the target": "/fir\x00st",
        "control character in the target": "/fir\x01st",
        "delete in the target": "/fir\x7fst",
        "byte beyond ASCII in the target": "/fir\xe9st",
        "fragment in the target": "/first#part",
        "absolute target of another host": "http://other/first",
        "absolute target with a name and a password": "http://user:pass@x/first",
        "absolute target of another protocol": "ftp://x/first",
        "absolute target without a host": "http:///first",
        "absolute target with an empty port": "http://x:99999999/first",
        "asterisk of a GET": "*",
        "backslash first": "\\first",
    }
    for name, target in refused.items():
        yield Case(name, "target", message(f"GET {target} HTTP/1.1"), "refused")
    yield Case("absolute target", "target", message("GET http://x/first HTTP/1.1"), "either", (FIRST,))
    yield Case("absolute target in capitals", "target", message("GET HTTP://X/first HTTP/1.1"), "either", (FIRST,))
    yield Case("two slashes first", "target", message("GET //first HTTP/1.1"), "either", (Received("GET", "//first"),))


def _hosts() -> Iterator[Case]:
    refused = {
        "host with a space": "a b",
        "host with a tab": "a\tb",
        "host with a comma": "a, b",
        "host with a path": "x/first",
        "host with a query": "x?a",
        "host with a fragment": "x#a",
        "host with a name and a password": "user@x",
        "host with a backslash": "x\\y",
        "host with a protocol": "http://x",
        "host with NUL": "x\x00y",
        "host with letters for a port": "x:http",
        "host with two ports": "x:80:80",
        "host with a negative port": "x:-1",
        "host with an open bracket": "[::1",
        "host with quotes": '"x"',
        "host with angle brackets": "<script>",
        "host beyond ASCII": "x\xe9",
    }
    for name, host in refused.items():
        yield Case(name, "host", message(GET, host=host), "refused")
    yield Case("no host", "host", message(GET, host=None), "refused")
    yield Case("two hosts", "host", message(GET, "Host: y"), "refused")
    yield Case("the same host twice", "host", message(GET, "Host: x"), "refused")
    yield Case("host with a space before the colon", "host", message(GET, "Host : x", host=None), "refused")
    yield Case("host on a folded line", "host", message(GET, "Host:", " x", host=None), "refused")
    yield Case("empty host", "host", message(GET, host=""), "either", (FIRST,))
    yield Case("host with a port", "host", message(GET, host="x:80"), "served", (FIRST,))
    yield Case("host in capitals", "host", message(GET, host="X.Example"), "served", (FIRST,))
    yield Case("host with an IPv6 address", "host", message(GET, host="[::1]:80"), "served", (FIRST,))


def _sizes() -> Iterator[Case]:
    yield Case("path of 64 KiB", "size", message(f"GET /{'a' * 65536} HTTP/1.1"), "refused")
    yield Case("query of 64 KiB", "size", message(f"GET /first?{'a' * 65536} HTTP/1.1"), "refused")
    yield Case("header of 64 KiB", "size", message(GET, f"X: {'a' * 65536}"), "refused")
    yield Case("header name of 64 KiB", "size", message(GET, f"{'a' * 65536}: x"), "refused")
    yield Case("ten thousand headers", "size", message(GET, *(f"X{number}: y" for number in range(10_000))), "refused")
    yield Case("a path without end", "size", b"GET /" + b"a" * 300_000, "refused")
    yield Case("a header without end", "size", b"GET /first HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 300_000, "refused")
    yield Case("a method without end", "size", b"A" * 300_000, "refused")


# --- More than one request ------------------------------------------------------------------------


def _pipelines() -> Iterator[Case]:
    second = message("GET /second HTTP/1.1")
    both = (FIRST, Received("GET", "/second"))
    yield Case("two requests in one packet", "pipeline", message(GET) + second, "served", both)
    yield Case(
        "a body, then a request",
        "pipeline",
        message(POST, "Content-Length: 2", body=b"{}") + second,
        "served",
        (_post(b"{}"), both[1]),
    )
    yield Case(
        "chunks, then a request",
        "pipeline",
        message(POST, CHUNKED, body=chunked(b"{}")) + second,
        "served",
        (_post(b"{}"), both[1]),
    )
    yield Case(
        "a request after Connection: close",
        "pipeline",
        message(GET, "Connection: close") + SMUGGLED,
        "served",
        (FIRST,),
    )
    yield Case("a request after HTTP/1.0", "pipeline", message("GET /first HTTP/1.0") + SMUGGLED, "served", (FIRST,))
    yield Case("a hundred requests in one packet", "pipeline", message(GET) * 100, "served", (FIRST,) * 100)
    yield Case(
        "a trailer, then a request",
        "pipeline",
        message(POST, CHUNKED, body=b"2\r\n{}\r\n0\r\nX: y\r\n\r\n") + second,
        "either",
        (_post(b"{}"), both[1]),
    )
    yield Case("line ends between requests", "pipeline", message(GET) + b"\r\n" + second, "either", both)


def _other_protocols() -> Iterator[Case]:
    yield Case(
        "HTTP/2 preface", "protocol", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "refused"
    )
    yield Case("TLS", "protocol", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500, "refused")
    yield Case("SSH", "protocol", b"SSH-2.0-OpenSSH_9.2\r\n", "refused")
    yield Case("SMTP", "protocol", b"EHLO x\r\nMAIL FROM:<a@x>\r\n", "refused")
    yield Case("SOCKS", "protocol", b"\x05\x01\x00", "refused")
    yield Case("PROXY protocol", "protocol", b"PROXY TCP4 10.0.0.1 10.0.0.2 1 80\r\n" + message(GET), "refused")
    yield Case(
        "PROXY protocol, binary", "protocol", b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + b"\x00" * 12, "refused"
    )
    yield Case("a response", "protocol", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "refused")
    yield Case("bytes of no protocol", "protocol", bytes(range(256)), "refused")
    yield Case("a line of JSON", "protocol", b'{"jsonrpc": "2.0"}\r\n\r\n', "refused")
    yield Case("SIP", "protocol", b"OPTIONS sip:x SIP/2.0\r\nHost: x\r\n\r\n", "refused")
    yield Case("RTSP", "protocol", b"DESCRIBE rtsp://x/first RTSP/1.0\r\nHost: x\r\n\r\n", "refused")


def _slow() -> Iterator[Case]:
    yield Case("half a request line", "slow", b"GET /fi", "cut", is_slow=True)
    yield Case("half a head", "slow", b"GET /first HTTP/1.1\r\nHost: x\r\n", "cut", is_slow=True)
    yield Case("half a header", "slow", b"GET /first HTTP/1.1\r\nHo", "cut", is_slow=True)
    yield Case("half a body", "slow", message(POST, "Content-Length: 10", body=b"{"), "cut", is_slow=True)
    yield Case("no body", "slow", message(POST, "Content-Length: 10"), "cut", is_slow=True)
    yield Case("half a chunk", "slow", message(POST, CHUNKED, body=b"a\r\n{"), "cut", is_slow=True)
    yield Case("no chunk", "slow", message(POST, CHUNKED), "cut", is_slow=True)
    yield Case("half a chunk size", "slow", message(POST, CHUNKED, body=b"2"), "cut", is_slow=True)
    yield Case("no last chunk", "slow", message(POST, CHUNKED, body=b"2\r\n{}\r\n"), "cut", is_slow=True)
    yield Case("half a trailer", "slow", message(POST, CHUNKED, body=b"2\r\n{}\r\n0\r\nX: "), "cut", is_slow=True)
    yield Case("an empty line only", "slow", b"\r\n", "cut", is_slow=True)
