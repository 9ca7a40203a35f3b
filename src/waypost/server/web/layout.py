"""What all pages share: style and script, head, navigation, footer, security headers; plain pages such as the API reference."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from waypost import __version__
from waypost.errors import WaypostError, error_codes
from waypost.server.auth.sessions import WebUser
from waypost.server.http.asgi import AnyResponse, Headers, Response
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, strong_etag
from waypost.server.http.content_coding import not_modified_response
from waypost.server.http.problems import problem_headers
from waypost.server.http.routing import BodySpec, Handler, RequestContext, Route
from waypost.server.web.markup import EMPTY_HTML, Html, HtmlContent, el, escape_text, join

# Style, script and icon. Their address contains their digest, so that browsers can cache them forever.

_FOLDER = Path(__file__).with_name("assets")

_MEDIA_TYPES = {"/style.css": "text/css", "/page.js": "text/javascript", "/icon.svg": "image/svg+xml"}
_FAVICON = "/favicon.ico"  # browsers ask for it where no page names an icon, as for JSON

_CACHE_IMMUTABLE = b"public, max-age=31536000, immutable"

_CACHE_HOUR = b"public, max-age=3600"


def _read(path: str) -> bytes:
    return (_FOLDER / path[1:]).read_bytes()


def _versioned_path(path: str) -> str:
    return f"{path}?v={hashlib.sha256(_read(path)).hexdigest()[:12]}"


STYLE_PATH, SCRIPT_PATH, ICON_PATH = map(_versioned_path, _MEDIA_TYPES)


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


_SECTIONS = (("/", "Agents"), ("/changes", "Changes"), ("/register", "Register"), ("/reference", "API"))

_TYPE = b"text/html; charset=utf-8"
# X1: style and images from this service only, no frames, no other base URL, forms only to this origin.
_POLICY = (
    "default-src 'none'; style-src 'self'; {script}img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)

_POLICY_NO_SCRIPT = _POLICY.format(script="").encode()

_POLICY_WITH_SCRIPT = _POLICY.format(script="script-src 'self'; connect-src 'self'; ").encode()


class WebPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page before rendering. Without a `visitor` it stands alone: no navigation, no script, equal for everybody."""

    title: str
    main: HtmlContent
    visitor: WebUser | None = None
    section: str = ""
    head: Html = EMPTY_HTML
    notice: HtmlContent = None


def render_page(sheet: WebPage) -> bytes:
    lively = sheet.visitor is not None
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("title", f"{sheet.title} · Waypost" if lively else sheet.title),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("link", rel="stylesheet", href=STYLE_PATH),
        el("link", rel="icon", href=ICON_PATH, type="image/svg+xml"),
        Html(f'<script src="{SCRIPT_PATH}" defer></script>') if lively else None,
        sheet.head,
    )
    body = el(
        "body",
        el("a", "Skip to the content", class_="skip", href="#main") if lively else None,
        _navigation(sheet.visitor, sheet.section) if sheet.visitor is not None else None,
        el("main", sheet.notice, sheet.main, id="main", tabindex="-1"),
        _footer() if lively else None,
    )
    return f'<!doctype html><html lang="en">{head}{body}</html>'.encode()


def _navigation(visitor: WebUser, section: str) -> Html:
    links = [
        el("li", el("a", name, href=path, aria_current="page" if path == section else None))
        for path, name in _SECTIONS
        if path != "/reference" or visitor.reads
    ]
    return el(
        "header",
        el("a", "Waypost", class_="brand", href="/"),
        el("nav", el("ul", links), aria_label="Sections"),
        _account(visitor),
        class_="bar",
    )


def _account(visitor: WebUser) -> Html:
    if not visitor.is_signed_in:
        if not visitor.principal.is_anonymous:  # authentication is off
            return el("p", "open to all", class_="who")
        return el("p", el("a", "Sign in", href="/sign-in"), class_="who")
    leave = el(
        "form",
        csrf_field(visitor),
        el("button", "Sign out", class_="plain"),
        action="/sign-out",
        method="post",
    )
    return el("div", el("span", visitor.principal.subject or "", class_="subject"), leave, class_="who")


def csrf_field(visitor: WebUser) -> Html:
    return el("input", type="hidden", name="form", value=visitor.form)


def _footer() -> Html:
    links = (
        ("/.well-known/ai-catalog.json", "AI Catalog"),
        ("/.well-known/agent.json", "ADP document"),
        ("/.well-known/agent-card.json", "A2A card"),
        ("/schemas/profile.json", "Schemas"),
    )
    shown = [el("li", el("a", name, href=path)) for path, name in links]
    return el("footer", el("p", "Waypost ", __version__), el("ul", shown), class_="foot")


def open_access_notice(open_access: bool) -> HtmlContent:
    if not open_access:
        return None
    return el(
        "p", "Authentication is off: everybody who can reach this address may read and write.", class_="notice warn"
    )


# --- Responses ------------------------------------------------------------------------------------


def page_headers(visitor: WebUser | None) -> Headers:
    """H9: a page for a signed-in visitor is never stored by a shared cache."""
    private = visitor is not None and visitor.is_signed_in
    return [
        (b"content-security-policy", _POLICY_NO_SCRIPT if visitor is None else _POLICY_WITH_SCRIPT),
        (b"referrer-policy", b"same-origin"),  # sent nowhere else; without it, forms would have `Origin: null`
        (b"vary", b"Host" if visitor is None else b"Host, Cookie"),
        (b"cache-control", b"private, no-cache" if private else b"no-cache"),
    ]


def page_response(
    call: RequestContext, body: bytes, visitor: WebUser | None, changed_at: float | None = None
) -> Response:
    """A page, or 304."""
    etag = strong_etag(body, b"text/html")
    headers = [*page_headers(visitor), (b"etag", etag.encode())]
    if changed_at is not None:
        headers.append((b"last-modified", format_http_date(changed_at)))
    if is_not_modified(call.request, etag, changed_at):
        return Response(304, headers=headers)
    return Response(200, body, content_type=_TYPE, headers=headers)


def uncached_response(body: bytes, visitor: WebUser | None, status: int = 200) -> Response:
    """The response to a form, or its errors."""
    headers = [pair for pair in page_headers(visitor) if pair[0] != b"cache-control"]
    return Response(status, body, content_type=_TYPE, headers=[*headers, (b"cache-control", b"no-store")])


def see_other(place: str, *cookies: bytes) -> Response:
    headers: Headers = [(b"location", place.encode()), (b"cache-control", b"no-store"), (b"vary", b"Cookie")]
    return Response(303, headers=[*headers, *((b"set-cookie", cookie) for cookie in cookies)])


def error_response(error: WaypostError, visitor: WebUser | None, correlation_id: str) -> Response:
    """An error page: what is wrong, what to do, and the id under which the log has it. Hidden and unknown agents look alike."""
    codes = error_codes(error)
    main = el(
        "div",
        el("p", str(codes.http), class_="code"),
        el("h1", codes.title),
        el("p", error.message),
        el("p", error.hint, class_="soft") if error.hint else None,
        el("p", el("a", "Back to the first page", href="/")),
        el("p", "Correlation id ", el("code", correlation_id), class_="soft"),
        class_="state",
    )
    response = uncached_response(
        render_page(WebPage(title=codes.title, main=main, visitor=visitor)), visitor, codes.http
    )
    response.headers += [pair for pair in problem_headers(error) if pair[0] not in (b"cache-control",)]
    return response


def error_note(error: WaypostError) -> Html:
    """The same inside a page."""
    where = el("code", error.path) if error.path else None
    return el(
        "div",
        el("p", el("strong", error.message)),
        el("p", "At ", where, class_="soft") if where else None,
        el("p", error.hint) if error.hint else None,
        class_="notice bad",
        role="alert",
    )


def section(title: str, *content: HtmlContent, name: str, class_: str = "") -> Html:
    return el(
        "section",
        el("h2", title, id=f"{name}-title"),
        content,
        id=name,
        aria_labelledby=f"{name}-title",
        class_=class_ or None,
    )


def definition_list(rows: list[tuple[str, HtmlContent]]) -> Html:
    """A definition list in two columns."""
    return el("dl", [join((el("dt", name), el("dd", value))) for name, value in rows if value], class_="facts")


PageRenderer = Callable[[RequestContext], Html]

__all__ = ["html_response", "plain_page", "escape_text"]


def plain_page(title: str, body: str) -> bytes:
    """`body` is escaped HTML."""
    back = el("p", el("a", "Waypost", class_="brand", href="/"))
    return render_page(WebPage(title=f"{title} · Waypost", main=el("div", back, Html(body), class_="plain-page")))


def html_response(body: bytes, status: int = 200, *, private: bool = False) -> Response:
    """`private`: only callers with read access get this page, so shared caches must not store it (H9)."""
    headers = page_headers(None)
    if private:
        headers = [pair for pair in headers if pair[0] not in (b"vary", b"cache-control")]
        headers += [(b"vary", b"Authorization"), (b"cache-control", b"private, no-cache")]
    return Response(status, body, content_type=b"text/html; charset=utf-8", headers=headers)
