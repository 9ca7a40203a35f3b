"""The sign-in page."""

from __future__ import annotations

import re

from waypost.errors import WaypostError
from waypost.server.auth.sessions import WebUser
from waypost.server.web.layout import WebPage, error_note
from waypost.server.web.markup import Html, el

_RETURN_PATH = re.compile(r"/(?:register|changes|reference|a/[A-Za-z0-9._~%-]{1,600})?\Z")


def parse_return_path(text: str | None) -> str:
    """Redirect after sign-in to a page of this service only."""
    return text if text is not None and _RETURN_PATH.match(text) else "/"


def make_sign_in_page(visitor: WebUser, goes_to: str, error: WaypostError | None = None) -> WebPage:
    return WebPage(title="Sign in", main=_main(visitor, goes_to, error), visitor=visitor, section="/sign-in")


def _main(visitor: WebUser, goes_to: str, error: WaypostError | None) -> Html:
    if visitor.is_signed_in:
        return el(
            "div",
            el("h1", "Signed in"),
            el("p", "Signed in as ", el("b", visitor.principal.subject or ""), "."),
            class_="state",
        )
    form = el(
        "form",
        el("label", "Token", for_="token"),
        el("input", id="token", name="token", type="password", required=True, autocomplete="off", spellcheck="false"),
        el("input", type="hidden", name="next", value=goes_to),
        el("div", el("button", "Sign in", class_="first"), class_="row"),
        action="/sign-in",
        method="post",
        class_="entry",
    )
    return el(
        "div",
        el("h1", "Sign in"),
        error_note(error) if error is not None else None,
        el("p", "Open the link that ", el("code", "waypost serve"), " printed, or paste a token.", class_="lead"),
        form,
        el(
            "p",
            "Create a token: ",
            el("code", "waypost token mint --sub NAME --scope discover:read --scope discover:write"),
            class_="soft",
        ),
        el(
            "p",
            "On the machine of the service, the admin token is in the file ",
            el("code", "admin.token"),
            " of its data folder.",
            class_="soft",
        ),
        class_="narrow",
    )
