"""Plain pages beside the catalogue, such as the API reference: a title and what the caller wrote and escaped."""

from __future__ import annotations

from waypost.server.asgi import Response
from waypost.server.page.layout import Sheet, page_headers, write
from waypost.server.page.markup import Html, el, shown_text

__all__ = ["html_response", "page", "shown_text"]


def page(title: str, body: str) -> bytes:
    """`body` is HTML that the caller escaped."""
    back = el("p", el("a", "Waypost", class_="brand", href="/"))
    return write(Sheet(title=f"{title} · Waypost", main=el("div", back, Html(body), class_="plain-page")))


def html_response(body: bytes, status: int = 200, *, private: bool = False) -> Response:
    """`private`: only who may read the service gets this page, so no shared cache keeps it (H9)."""
    headers = page_headers(None)
    if private:
        headers = [pair for pair in headers if pair[0] not in (b"vary", b"cache-control")]
        headers += [(b"vary", b"Authorization"), (b"cache-control", b"private, no-cache")]
    return Response(status, body, content_type=b"text/html; charset=utf-8", headers=headers)
