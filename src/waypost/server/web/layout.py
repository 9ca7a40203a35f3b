"""What all pages share: the frame with navigation and footer, security headers, responses and error pages."""

from __future__ import annotations

from typing import Any

import msgspec

from waypost.errors import NotFound, WaypostError, error_codes
from waypost.server.auth.sessions import WebUser
from waypost.server.http.asgi import Headers, Response
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, strong_etag
from waypost.server.http.problems import problem_headers
from waypost.server.http.routing import RequestContext
from waypost.server.web.assets import asset_path
from waypost.server.web.templating import render

_TYPE = b"text/html; charset=utf-8"
# X1: style and images from this service only, no frames, no other base URL, forms only to this origin.
_POLICY = (
    "default-src 'none'; style-src 'self'; {script}img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_POLICY_NO_SCRIPT = _POLICY.format(script="").encode()
_POLICY_WITH_SCRIPT = _POLICY.format(script="script-src 'self'; connect-src 'self'; ").encode()


class LinkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What chats and feeds show of a link to the page (OpenGraph). Only for pages that everybody may read."""

    title: str
    description: str
    url: str
    base_url: str

    @property
    def image(self) -> str:
        return f"{self.base_url}{asset_path('/preview.png')}"


class WebPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page before rendering. Without a `visitor` it stands alone: no navigation, no script, equal for everybody."""

    template: str
    title: str
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    visitor: WebUser | None = None
    section: str = ""
    preview: LinkPreview | None = None
    open_access: bool = False  # authentication is off: the page says so
    scripted: bool = False  # with a script, although it stands alone


def render_page(page: WebPage) -> bytes:
    return render(
        page.template,
        title=page.title,
        visitor=page.visitor,
        section=page.section,
        preview=page.preview,
        open_access=page.open_access,
        scripted=page.scripted or page.visitor is not None,
        **page.values,
    ).encode()


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
    values = {
        "codes": codes,
        "error": error,
        "correlation_id": correlation_id,
        "suggestions": error.details.get("suggestions", ()),
        "is_unknown_agent": isinstance(error, NotFound) and error.path == "id",
    }
    page = WebPage(template="error.html", title=codes.title, visitor=visitor, values=values)
    response = uncached_response(render_page(page), visitor, codes.http)
    response.headers += [pair for pair in problem_headers(error) if pair[0] not in (b"cache-control",)]
    return response


def plain_page(template: str, title: str, **values: Any) -> bytes:
    """A page that stands alone, for an API that describes itself."""
    return render_page(WebPage(template=template, title=f"{title} · Waypost", values=values))


def html_response(body: bytes, status: int = 200, *, private: bool = False, scripted: bool = False) -> Response:
    """`private`: only callers with read access get this page, so shared caches must not store it (H9)."""
    headers = page_headers(None)
    if private:
        headers = [pair for pair in headers if pair[0] not in (b"vary", b"cache-control")]
        headers += [(b"vary", b"Authorization"), (b"cache-control", b"private, no-cache")]
    if scripted:
        headers = [(b"content-security-policy", _POLICY_WITH_SCRIPT), *headers[1:]]
    return Response(status, body, content_type=_TYPE, headers=headers)
