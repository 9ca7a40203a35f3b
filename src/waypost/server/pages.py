"""Pages for people: plain, quick, without script or outside resources. Text of records is data: `shown_text` makes it so."""

from __future__ import annotations

import html

from waypost.server.asgi import AnyResponse, Headers, Response
from waypost.server.conditional import not_modified, strong_etag
from waypost.server.routes import Body, Call, Route

STYLE_PATH = "/style.css"
_STYLE = b""":root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#667;--line:#d8dce2;--accent:#0b5cad}
@media (prefers-color-scheme:dark){:root{--ink:#e8eaed;--paper:#14171a;--soft:#9aa3ad;--line:#30363d;--accent:#6cb2ff}}
body{font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;padding:0 1rem}
a{color:var(--accent)}code,pre{font:14px ui-monospace,monospace}pre{overflow:auto;border:1px solid var(--line);padding:.6rem}
section,li.agent{border-top:1px solid var(--line);padding:.6rem 0}h1{font-size:1.6rem}h2{font-size:1.05rem;margin:.3rem 0}
ul.agents{list-style:none;padding:0}.soft{color:var(--soft)}
.tag{border:1px solid var(--line);border-radius:.6rem;padding:0 .5rem;font-size:13px}
.badge{font-size:12px;font-weight:normal;color:var(--soft)}.badge.verified{color:#1a7f37}.badge.failed{color:#c62828;font-weight:bold}
.note{border-left:4px solid #c77700;padding:.2rem .8rem}
"""
_STYLE_ETAG = strong_etag(_STYLE, b"text/css")
_STYLE_HEADERS: Headers = [(b"etag", _STYLE_ETAG.encode()), (b"cache-control", b"public, max-age=3600")]
# X1: no script at all, style from this service alone, no frame around the page, no other base for its links.
_HEADERS: Headers = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
]
_OPEN: Headers = [(b"vary", b"Host"), (b"cache-control", b"no-cache")]  # the same for all who ask for this host
_FOR_CALLER: Headers = [(b"vary", b"Authorization"), (b"cache-control", b"private, no-cache")]


def page(title: str, body: str) -> bytes:
    """`body` is HTML that the caller escaped."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{shown_text(title)} · Waypost</title>'
        f'<link rel="stylesheet" href="{STYLE_PATH}"></head><body>{body}</body></html>'
    ).encode()


def html_response(body: bytes, status: int = 200, *, private: bool = False) -> Response:
    """`private`: only who may read the service gets this page, so no shared cache keeps it (H9)."""
    headers = [*_HEADERS, *(_FOR_CALLER if private else _OPEN)]
    return Response(status, body, content_type=b"text/html; charset=utf-8", headers=headers)


def shown_text(value: str) -> str:
    """Text of a record as data: escaped, and with characters that turn or hide text made visible (X2)."""
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in value)
    return html.escape(shown)


def style_route() -> Route:
    return Route(
        method="GET",
        path=STYLE_PATH,
        operation="document",
        handler=_style,
        summary="The style of the pages",
        answers={200: Body(schema={"type": "string"}, content_type="text/css")},
        open=True,
    )


async def _style(call: Call) -> AnyResponse:
    if not_modified(call.request, _STYLE_ETAG, None):
        return Response(304, headers=list(_STYLE_HEADERS))
    return Response(200, _STYLE, content_type=b"text/css; charset=utf-8", headers=list(_STYLE_HEADERS))
