"""Pages for people: plain, quick, without outside resources. Text of records is always escaped."""

from __future__ import annotations

import html

from waypost.server.asgi import Headers, Response

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#667;--line:#d8dce2;--accent:#0b5cad}
@media (prefers-color-scheme:dark){:root{--ink:#e8eaed;--paper:#14171a;--soft:#9aa3ad;--line:#30363d;--accent:#6cb2ff}}
body{font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;padding:0 1rem}
a{color:var(--accent)}code,pre{font:14px ui-monospace,monospace}pre{overflow:auto;border:1px solid var(--line);padding:.6rem}
section,li.agent{border-top:1px solid var(--line);padding:.6rem 0}h1{font-size:1.6rem}h2{font-size:1.05rem;margin:.3rem 0}
ul.agents{list-style:none;padding:0}.soft{color:var(--soft)}
.tag{border:1px solid var(--line);border-radius:.6rem;padding:0 .5rem;font-size:13px}
.note{border-left:4px solid #c77700;padding:.2rem .8rem}
"""
_HEADERS: Headers = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"vary", b"Host"),
    (b"cache-control", b"no-cache"),
]


def page(title: str, body: str) -> bytes:
    """`body` is HTML that the caller escaped."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{html.escape(title)} · Waypost</title>'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>"
    ).encode()


def html_response(body: bytes, status: int = 200) -> Response:
    return Response(status, body, content_type=b"text/html; charset=utf-8", headers=list(_HEADERS))
