"""Content codings (RFC 9110 §8.4): large responses are compressed with gzip, encoded request bodies are refused.

Compression shows by the length of a response how much its parts have in common (BREACH). So a response is sent as it is if
it may hold a secret beside text of somebody else: HTML pages, whose forms have tokens; what must not be stored; and whatever
a browser asked for with a cookie, because another site can make it ask.
"""

from __future__ import annotations

import asyncio
import gzip
from functools import lru_cache

from waypost import limits
from waypost.errors import UnsupportedMediaType
from waypost.server.http.asgi import JSON, Headers, Request, Response, merge_vary
from waypost.server.http.conditional_requests import gzip_etag
from waypost.server.http.content_negotiation import accepts_gzip

CONTENT_ENCODING = "Content-Encoding"
_FASTEST = 1  # for large JSON a third of the processor time of the usual level 6, and a third more bytes
_VARY = ("Accept-Encoding",)


async def compress_response(request: Request, response: Response) -> None:
    """Compress the response if its size, type, headers and the client allow it."""
    if not _is_negotiable(response.headers, response.body):
        return
    merge_vary(response.headers, _VARY)
    if _accepts_gzip(request):
        response.body = await asyncio.to_thread(gzip.compress, response.body, _FASTEST, mtime=0)
        _tag_as_gzip(response.headers)
        response.headers.append((b"content-encoding", b"gzip"))


def not_modified_response(request: Request, headers: Headers, body: bytes, content_type: bytes = JSON) -> Response:
    """304 instead of a response with this body: with the Vary that it would have, and the tag that the client knows."""
    if _is_negotiable([*headers, (b"content-type", content_type)], body):
        merge_vary(headers, _VARY)
        known = request.header(b"if-none-match")
        etag = next((value.decode("latin-1") for name, value in headers if name == b"etag"), "")
        if _accepts_gzip(request) and (known is None or gzip_etag(etag) in known or etag not in known):
            _tag_as_gzip(headers)
    return Response(304, headers=headers)


def check_content_encoding(request: Request) -> None:
    """Raise if the body is encoded: it would have to be decoded before its size is known."""
    coding = request.header(b"content-encoding")
    if coding is None or coding.strip().lower() in ("", "identity"):
        return
    request.has_unread_body = True
    raise UnsupportedMediaType(
        f"The content coding {coding[:32]!r} is not supported.",
        path=CONTENT_ENCODING,
        hint="Send the body as it is, without Content-Encoding.",
    )


@lru_cache(maxsize=64)
def _is_compressible(content_type: bytes) -> bool:
    media_type = content_type.partition(b";")[0].strip().lower()
    if media_type in (b"text/html", b"text/event-stream"):
        return False
    return media_type.startswith(b"text/") or media_type.endswith((b"json", b"xml", b"javascript"))


def _is_negotiable(headers: Headers, body: bytes) -> bool:
    """Whether clients that accept gzip get the response compressed."""
    if len(body) < limits.GZIP_BYTES:
        return False
    values = dict(headers)
    if b"content-encoding" in values or b"set-cookie" in values or b"no-store" in values.get(b"cache-control", b""):
        return False
    return _is_compressible(values.get(b"content-type", b""))


def _accepts_gzip(request: Request) -> bool:
    return request.header(b"cookie") is None and accepts_gzip(request.header(b"accept-encoding"))


def _tag_as_gzip(headers: Headers) -> None:
    for index, (name, value) in enumerate(headers):
        if name == b"etag":
            headers[index] = (name, gzip_etag(value.decode("latin-1")).encode("latin-1"))
