"""Style, script and icon. Their address contains their digest, so that browsers can cache them forever."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from waypost.server.http.asgi import AnyResponse, Headers, Response
from waypost.server.http.conditional_requests import is_not_modified, strong_etag
from waypost.server.http.content_coding import not_modified_response
from waypost.server.http.routing import BodySpec, Handler, RequestContext, Route
from waypost.server.web.templating import TEMPLATES

_FOLDER = Path(__file__).with_name("assets")
_MEDIA_TYPES = {
    "/style.css": "text/css",
    "/page.js": "text/javascript",
    "/icon.svg": "image/svg+xml",
    "/preview.png": "image/png",  # of link previews; their readers do not take SVG
}
_FAVICON = "/favicon.ico"  # browsers ask for it where no page names an icon, as for JSON
_CACHE_IMMUTABLE = b"public, max-age=31536000, immutable"
_CACHE_HOUR = b"public, max-age=3600"


def _read(path: str) -> bytes:
    return (_FOLDER / path[1:]).read_bytes()


@cache
def asset_path(path: str) -> str:
    """The address of an asset with its digest."""
    return f"{path}?v={hashlib.sha256(_read(path)).hexdigest()[:12]}"


TEMPLATES.globals["asset"] = asset_path


def asset_routes() -> list[Route]:
    return [
        Route(
            method="GET",
            path=path,
            operation="page",
            handler=_handler(path, kind),
            summary=f"{path[1:]}, used by the pages",
            answers={200: BodySpec(schema={"type": "string"}, content_type=kind)},
            open=True,
        )
        for path, kind in {**_MEDIA_TYPES, _FAVICON: "image/vnd.microsoft.icon"}.items()
    ]


def _handler(path: str, kind: str) -> Handler:
    content_type = kind.encode() if kind.startswith("image/") else f"{kind}; charset=utf-8".encode()
    body = cache(lambda: _read(path))

    async def handle(call: RequestContext) -> AnyResponse:
        etag = strong_etag(body(), kind.encode())
        kept = _CACHE_IMMUTABLE if call.request.query_string else _CACHE_HOUR
        headers: Headers = [(b"etag", etag.encode()), (b"cache-control", kept)]
        if is_not_modified(call.request, etag, None):
            return not_modified_response(call.request, headers, body(), content_type)
        return Response(200, body(), content_type=content_type, headers=headers)

    return handle
